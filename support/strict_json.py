# SPDX-License-Identifier: Apache-2.0
"""Strict reading of JSON files that a user gives: unclear, huge or harmful content is refused with a message.

It refuses what is no regular file, files beyond ``MOST_BYTES`` and ``MOST_VALUES``, and text that is not UTF-8. It
refuses objects in which a key stands twice, nesting beyond ``MOST_DEPTH``, and integers beyond ``MOST_DIGITS`` digits.
It also refuses numbers that are not finite, and lone surrogates: strings that no file and no terminal can hold."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from weft.support.errors import WeftError, explain

MOST_BYTES = 256 << 20
MOST_VALUES = 4_000_000
"""Bound of the memory that a file's values take: some hundred bytes each."""
MOST_DEPTH = 32
MOST_DIGITS = 40
_SEPARATORS = (b",", b"[", b"{")
"""Each value but the first stands behind one of them."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Refused(ValueError):
    """An error whose text says what was found in a refused file."""


def read_object(path: Path, what: str, allowed: str, way_out: str, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Return the object in a file. Raise WeftError, in which ``what`` names the kind of file."""
    try:
        return parse_object(_content(path), most_values)
    except FileNotFoundError:
        found = "no such file"
    except OSError as error:
        found = f"something unreadable ({(error.strerror or str(error)).lower()})"
    except ValueError as error:  # of ours, of the decoder, of a path with a NUL
        found = f"something unreadable ({error})"
    raise WeftError(explain(f"{what} {path}", found, allowed, way_out))


def parse_object(content: bytes, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Return the object that is the whole of ``content``. Raise ValueError, which says what was found."""
    if sum(map(content.count, _SEPARATORS)) > most_values:
        raise _Refused(f"more than {most_values} values")
    text = content.decode()
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float,
                           parse_constant=_constant)
    except RecursionError:
        raise _too_deep() from None
    _check_depth(value)
    if _SURROGATE.search(text):
        _check_strings(value)
    if not isinstance(value, dict):
        raise _Refused(f"{_KINDS[type(value)]} instead of an object")
    return value


_KINDS = {dict: "an object", list: "an array", str: "a string", int: "a number", float: "a number",
          bool: "true or false", type(None): "null"}


def _content(path: Path) -> bytes:
    """Return the bytes of a regular file. Raise _Refused for other files and for more than MOST_BYTES.

    Other files may never end, or wait for a writer, so they are not even opened."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise _Refused("no regular file")
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise _Refused(f"more than {MOST_BYTES} bytes")
    return content


# -- hooks of the decoder ----------------------------------------------------------------------------------------------
def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the key-value pairs as a dictionary. Raise _Refused if a key stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {_short(double)} twice in one object")
    return found


def _integer(text: str) -> int:
    """Return an integer. Raise _Refused for more than MOST_DIGITS digits."""
    if len(text) > MOST_DIGITS:
        raise _Refused(f"an integer of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    """Return a float. Raise _Refused if it is not finite."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _Refused(f"the number {_short(text)}, which is not finite")
    return value


def _constant(text: str) -> float:
    """Raise _Refused for NaN and infinities, which JSON does not have."""
    raise _Refused(f"{text}, which is no JSON")


# -- what the decoder does not look at -----------------------------------------------------------------------------
def _check_depth(value: Any) -> None:
    """Raise _Refused if objects and arrays are nested deeper than MOST_DEPTH."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [inner for outer in level if isinstance(outer, (dict, list))
                 for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> _Refused:
    """Return the error for nesting beyond MOST_DEPTH."""
    return _Refused(f"objects or arrays nested more than {MOST_DEPTH} deep")


def _check_strings(value: Any) -> None:
    """Raise _Refused if a string holds a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Refused("a lone surrogate in a string") from None


def _short(text: str) -> str:
    """Return ``text`` in ASCII, cut to 40 characters."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")
