"""What was measured, in a file that only grows: a search that was killed goes on where it was.

Such a file is ours alone. A file with a line that no search writes is refused and stays as it is.
"""

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
"""What was measured, the digest of the network, and that of the machine."""
LEAST, CYCLES = "least", "cycles"
MOST_BYTES = 64 << 20
"""Of a file: some hundred times what a search of ten thousand machines writes."""
WAY_OUT = "name another file with --results"


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A line: ``value`` is a number of cycles, or the text of a refusal."""

    what: Literal["least", "cycles"]
    network: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
    machine: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}(-[0-9a-f]{1,64})?$")]
    value: Annotated[int, msgspec.Meta(ge=0)] | str


_decode = msgspec.json.Decoder(_Entry).decode
_STARTS = tuple(f'{{"what": "{what}", "network": "'.encode() for what in (LEAST, CYCLES))
"""How a line begins."""
_HALF = re.compile(rb'\{"what": "(least|cycles)", "network": "([0-9a-f]{0,20}|[0-9a-f]{20}", "m.{0,10000})')
"""A line that ends behind that, a refusal's text as long as it may be."""
RESULTS = Kind.of_head("what an earlier search wrote", r'\{"what": "(least|cycles)", "network": "')
WHAT = "results file"


class Results:
    """One JSON object a line: ``what``, ``network``, ``machine``, and ``value``, a number or the text of a refusal.
    None of a file, and /dev/null: kept in memory alone."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises WeftError for a file that cannot be read or written, or is none of these."""
        self._path = None if path is None else check_output(path, RESULTS, WHAT)
        self._known: dict[Key, int | str] = {}
        if self._path is not None and self._path.exists():
            self._read(self._path)
        self.found_before = len(self._known)

    def _read(self, path: Path) -> None:
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
        """Cut off half a line, which a search that was killed leaves. Raises WeftError where it is none of ours."""
        if not _HALF.fullmatch(tail) and not (whole and any(start.startswith(tail) for start in _STARTS)):
            raise self._unusable(f"the last line {tail[:60]!r}")
        try:
            os.truncate(path, whole)
        except OSError as error:
            raise self._unusable(reason(error)) from None

    def _unusable(self, found: str) -> WeftError:
        return WeftError(explain(f"{WHAT} {self._path}", found, "what an earlier search wrote, or no file",
                                 WAY_OUT))

    def get(self, key: Key) -> int | str | None:
        return self._known.get(key)

    def add(self, key: Key, value: int | str) -> None:
        """Raises WeftError where it cannot be written."""
        self._known[key] = value
        if self._path is not None:
            entry = dict(zip(("what", "network", "machine"), key, strict=True), value=value)
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as file:
                    file.write(json.dumps(entry).encode() + b"\n")
            except OSError as error:
                raise self._unusable(reason(error)) from None
