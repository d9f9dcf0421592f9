# SPDX-License-Identifier: Apache-2.0
"""Measured results in a file that only grows, so that a search that was killed can continue.

Such a file is ours alone. A file with a line that no search writes is refused and stays as it is."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from weft.support.errors import WeftError, explain
from weft.support.files import read_bytes, reason
from weft.support.outputs import Kind, check_output

Key = tuple[str, str, str]
"""The key of a result: what was measured, the digest of the network, and that of the machine."""
LEAST, CYCLES = "least", "cycles"
MOST_BYTES = 64 << 20
"""The most bytes of a file: some hundred times what a search of ten thousand machines writes."""
WAY_OUT = "name another file with --results"


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file; ``value`` is a number of cycles, or the text of a refusal."""

    what: Literal["least", "cycles"]
    network: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
    machine: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}(-[0-9a-f]{1,64})?$")]
    value: Annotated[int, msgspec.Meta(ge=0)] | str


_decode = msgspec.json.Decoder(_Entry).decode
_STARTS = tuple(f'{{"what": "{what}", "network": "'.encode() for what in (LEAST, CYCLES))
"""The beginnings of a line."""
_HALF = re.compile(rb'\{"what": "(least|cycles)", "network": "([0-9a-f]{0,20}|[0-9a-f]{20}", "m.{0,10000})')
"""The pattern of a last line that was cut off, with a refusal's text of any length."""
RESULTS = Kind.of_head("what an earlier search wrote", r'\{"what": "(least|cycles)", "network": "')
WHAT = "results file"


class Results:
    """The results of searches, one JSON object a line: ``what``, ``network``, ``machine`` and ``value``.

    ``value`` is a number or the text of a refusal. Without a file, and for /dev/null, they are only kept in memory."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the results of earlier searches. Raise WeftError for a file that is unusable or of another kind."""
        self._path = None if path is None else check_output(path, RESULTS, WHAT)
        self._known: dict[Key, int | str] = {}
        if self._path is not None and self._path.exists():
            self._read(self._path)
        self.found_before = len(self._known)

    def _read(self, path: Path) -> None:
        """Read the lines of a file, and mend a last line that was cut off."""
        content = read_bytes(path, WHAT, WAY_OUT, MOST_BYTES)
        *lines, tail = content.split(b"\n")
        for line in lines:
            try:
                entry = _decode(line)
            except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
                raise self._unusable(f"the line {line[:60]!r}") from None
            if entry.what == CYCLES and isinstance(entry.value, str):
                raise self._unusable(f"the line {line[:60]!r}")
            self._known[entry.what, entry.network, entry.machine] = entry.value
        if tail:
            self._mend(path, tail, len(content) - len(tail))

    def _mend(self, path: Path, tail: bytes, whole: int) -> None:
        """Cut off half a line, which a killed search leaves. Raise WeftError for any other last line."""
        if not _HALF.fullmatch(tail) and not (whole and any(start.startswith(tail) for start in _STARTS)):
            raise self._unusable(f"the last line {tail[:60]!r}")
        try:
            os.truncate(path, whole)
        except OSError as error:
            raise self._unusable(reason(error)) from None

    def _unusable(self, found: str) -> WeftError:
        """Return the error for a file that no search has written."""
        return WeftError(explain(f"{WHAT} {self._path}", found, "what an earlier search wrote, or no file",
                                 WAY_OUT))

    def get(self, key: Key) -> int | str | None:
        """Return the result of a key, or None."""
        return self._known.get(key)

    def add(self, key: Key, value: int | str) -> None:
        """Add a result. Raise WeftError if it cannot be written."""
        self._known[key] = value
        if self._path is not None:
            entry = dict(zip(("what", "network", "machine"), key, strict=True), value=value)
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as file:
                    file.write(json.dumps(entry).encode() + b"\n")
            except OSError as error:
                raise self._unusable(reason(error)) from None
