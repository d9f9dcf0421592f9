# SPDX-License-Identifier: Apache-2.0
"""Mark cases that ``make test`` leaves to ``make test-wide``: more sizes, machines and seeds of what it shows too.

A whole test has the mark ``wide``. A test with some such cases has ``wide_cases("lanes8", "*-3")``: patterns of what
stands in the brackets of a case's name. CI runs both commands. Every other test keeps a case in ``make test``, and so
does each test that the listed breaks (``tb/mutations``) need. A machine that no case of ``make test`` uses is not built
there: ``arty``, ``pynq``, ``lanes4_slices``, ``lanes3_every_step``,
``lanes2_int8``, ``lanes12_int8``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

CASES = "wide_cases"
"""The name of the mark that has patterns."""


def patterns(item: pytest.Item) -> tuple[str, ...]:
    """Return the patterns of the test of an item."""
    return tuple(pattern for marker in item.iter_markers(CASES) for pattern in marker.args)


def matches(name: str, pattern: str) -> bool:
    """Return whether an item's name, brackets included, is a case of a pattern. Brackets in patterns are themselves."""
    return fnmatchcase(name.partition("[")[2].removesuffix("]"), pattern.replace("[", "[[]"))


def mark(items: list[pytest.Item]) -> None:
    """Mark the cases of ``wide_cases`` as ``wide``."""
    for item in items:
        if any(matches(item.name, pattern) for pattern in patterns(item)):
            item.add_marker(pytest.mark.wide)
