"""What was measured, in a file that only grows: a search that was killed goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.hw.contract.errors import WeftError, explain
from weft.runtime.files import reason

Key = tuple[str, str, str]
"""What was measured, the digest of the network, and that of the machine."""
LEAST, CYCLES = "least", "cycles"


class Results:
    """One JSON object a line: ``what``, ``network``, ``machine``, and ``value``, a number or the text of a refusal.
    None of a file: kept in memory alone."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises WeftError for a file that cannot be read or written, or is none of these."""
        self._path = path
        self._known: dict[Key, int | str] = {}
        if path is not None and path.exists():
            self._read(path)
        self.found_before = len(self._known)

    def _read(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise self._unusable(reason(error)) from None
        whole, _, _ = content.rpartition(b"\n")  # a search that was killed may have left half a line
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
                self._known[entry["what"], entry["network"], entry["machine"]] = _value(entry["value"])
            except (ValueError, KeyError, TypeError):
                raise self._unusable(f"the line {line[:60]!r}") from None
        if len(whole) + 1 < len(content):
            with path.open("r+b") as file:
                file.truncate(len(whole) + 1 if whole else 0)

    def _unusable(self, found: str) -> WeftError:
        return WeftError(explain(f"results file {self._path}", found, "what an earlier search wrote, or no file",
                                 "name another file with --results"))

    def get(self, key: Key) -> int | str | None:
        return self._known.get(key)

    def add(self, key: Key, value: int | str) -> None:
        """Raises WeftError where it cannot be written."""
        self._known[key] = value
        if self._path is not None:
            entry: dict[str, Any] = dict(zip(("what", "network", "machine"), key, strict=True), value=value)
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a") as file:
                    file.write(json.dumps(entry) + "\n")
            except OSError as error:
                raise self._unusable(reason(error)) from None


def _value(value: object) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return value
