"""The ONNX backend's own node tests: some here, all of them with ``make test-onnx``, which also checks the table."""

from __future__ import annotations

import pytest

from weft.tb.compile.onnx_nodes import (
    HOST,
    LEAST_PASSED,
    LIST,
    OUTSIDE,
    PASSED,
    REFUSED,
    listed,
    listing,
    outcomes,
    run_case,
)
from weft.tb.compile.onnx_table import PLACE, page, share

EVERY = 4
"""Of the cases of each operator, the first and every so many after it run in ``make test``."""


def some() -> set[str]:
    names: dict[str, list[str]] = {}
    for name, operator in listed().items():
        names.setdefault(operator, []).append(name)
    return {name for each in names.values() for name in each[::EVERY]}


SOME = some()


def test_the_list_holds_every_case() -> None:
    assert LIST.read_text() == listing(), "write it anew with scripts/operators_table.py"


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SOME else pytest.mark.long)
                                  for name in listed()])
def test_never_silently_wrong(name: str) -> None:
    """Right within the tolerance, or refused with a message of four parts."""
    outcome = run_case(name)
    assert outcome.status in (PASSED, HOST, REFUSED, OUTSIDE), outcome.detail
    if outcome.status in (REFUSED, OUTSIDE):
        assert all(part in outcome.detail for part in (": found ", "; allowed: ", "; way out: ")), outcome.detail


@pytest.mark.long
def test_table_is_that_of_the_documentation() -> None:
    found = list(outcomes())
    assert share(found) >= LEAST_PASSED
    assert PLACE.read_text() == page(found), "write it anew with scripts/operators_table.py"
