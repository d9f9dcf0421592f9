"""The ONNX backend's own node tests: some here, all of them with ``make test-onnx``, which also checks the table."""

from __future__ import annotations

import pytest

from weft.tb.compile.onnx_nodes import HOST, PASSED, REFUSED, cases, operator, run_case
from weft.tb.compile.onnx_table import PLACE, table

EVERY = 4
"""Of the cases of each operator, the first and every so many after it run in ``make test``."""


def some() -> list[str]:
    seen: dict[str, int] = {}
    chosen = []
    for name in sorted(cases()):
        number = seen[operator(name)] = seen.get(operator(name), -1) + 1
        if number % EVERY == 0:
            chosen.append(name)
    return chosen


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in some() else pytest.mark.long)
                                  for name in sorted(cases())])
def test_never_silently_wrong(name: str) -> None:
    """Right within the tolerance, or refused with a message of four parts."""
    outcome = run_case(name)
    assert outcome.status in (PASSED, HOST, REFUSED), outcome.detail
    if outcome.status == REFUSED:
        assert all(part in outcome.detail for part in (": found ", "; allowed: ", "; way out: ")), outcome.detail


@pytest.mark.long
def test_table_is_that_of_the_documentation() -> None:
    assert PLACE.read_text() == table(), "write it anew with scripts/operators_table.py"
