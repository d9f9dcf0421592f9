# SPDX-License-Identifier: Apache-2.0
"""Errors for the user: each says what is wrong, what was found, what is allowed and the way out.

docs/house.md, "Errors", has the rules."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

FINE, USER_ERROR, INTERRUPTED = 0, 1, 130
"""Exit codes of whatever a user starts."""


class WeftError(Exception):
    """A mistake of the user. The command line prints the message alone and exits with 1."""


class Mismatch(Exception):
    """The error that RTL and golden machine differ, or that the RTL does not end. The command line exits with 2."""


class ArchError(WeftError):
    """An error that says why an architecture cannot be built."""

    def __init__(self, what: str, found: object, allowed: str, way_out: str) -> None:
        super().__init__(explain(f"architecture key {what}", found, allowed, way_out))


class IsaError(WeftError):
    """An error for a value that does not fit its instruction field, or a program that cannot be read."""


RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and newline, marks that turn the direction of writing, halves of characters."""

LONGEST = 1000
"""Characters of each part of an error text: names and attributes may be megabytes."""


def explain(what: str, found: object, allowed: str, way_out: str) -> str:
    """Return an error text in the one form that all have: what, found, allowed and way out, in one line.

    Names of files, nodes and keys cannot break the line: each part is escaped and shortened to LONGEST characters."""
    what, found, allowed, way_out = (_shortened(one_line(text)) for text in (what, str(found), allowed, way_out))
    return f"{what}: found {found}; allowed: {allowed}; way out: {way_out}"


def nearest(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the way out for a wrong ``name``: the one of ``names`` that is spelled nearly so, or else ``otherwise``.

    Capitals count for nothing."""
    known = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"did you mean {known[near[0]]}?" if near else otherwise


def escaped(match: re.Match[str]) -> str:
    r"""Return the matched character as JSON writes it, ``\uXXXX``."""
    return f"\\u{ord(match[0]):04x}"


def one_line(text: str) -> str:
    """Return ``text`` with newlines, tabs and all characters of RAW as escapes, so that it stays one line."""
    return _BREAKS.sub(escaped, RAW.sub(escaped, text))


_BREAKS = re.compile("[\t\n]")


def _shortened(text: str) -> str:
    """Return ``text``, or its head and tail with its length between them if it is longer than LONGEST."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST // 2]} ... ({len(text)} characters) ... {text[-LONGEST // 4:]}"


def run_script(main: Callable[[], int | None]) -> NoReturn:
    """Run a script's ``main`` and exit with the code that it returns.

    A WeftError and an interrupt are printed as one line and become an exit code."""
    try:
        sys.exit(main())
    except WeftError as error:
        print(error, file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
