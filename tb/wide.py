"""Which cases ``make test`` leaves to ``make test-wide``: more sizes, machines and seeds of what it shows too, and
whole tests that need a simulator or an installation of their own.

The list is ``wide.txt``. CI runs both. Every other test keeps a case in ``make test``, and so does each that the listed
breaks (``tb/mutations``) need.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

LIST = Path(__file__).parent / "wide.txt"


@cache
def patterns() -> dict[str, tuple[str, ...]]:
    """``file::test``, the file from ``tb/`` -> patterns of its cases' names. ValueError names a line that has none,
    and a test with two lines."""
    found: dict[str, tuple[str, ...]] = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            test, _, cases = line.partition("  ")
            if not cases:
                raise ValueError(f"{LIST.name}: found {line!r}; allowed: file::test, two spaces, patterns of its cases")
            if test in found:
                raise ValueError(f"{LIST.name}: found {test} twice; allowed: one line, with all its patterns")
            found[test] = tuple(cases.strip().split("  "))
    return found


def matches(case: str, pattern: str) -> bool:
    """``case``: what stands in a node's brackets. Brackets in patterns are themselves."""
    return fnmatchcase(case, pattern.replace("[", "[[]"))


def mark(items: list[pytest.Item]) -> None:
    """Marks the cases of the list as ``wide``; those that are ``long`` already stay so."""
    for item in items:
        if not item.get_closest_marker("long"):
            test, _, case = item.nodeid.removeprefix("tb/").partition("[")
            if any(matches(case.removesuffix("]"), pattern) for pattern in patterns().get(test, ())):
                item.add_marker(pytest.mark.wide)
