"""What the units touch is what the table written by hand says."""

from __future__ import annotations

from itertools import product

import pytest

from weft.hw.contract.units import UNITS, Memory, conflict
from weft.tb.bench.hazards import CELLS, TOUCHES, conflicts, touches_of, waits_for

LETTERS = {Memory.LOCAL: "L", Memory.ACCUMULATORS: "A", Memory.DRAM0: "0", Memory.DRAM1: "1"}


@pytest.mark.parametrize("unit", UNITS)
def test_each_unit_touches_what_the_table_says(unit: str) -> None:
    assert {(each.operand, LETTERS[each.memory]) for each in UNITS[unit].accesses} == {
        (touch.operand, touch.memory) for touch in touches_of(unit)}
    assert len(UNITS[unit].accesses) == len(touches_of(unit))


@pytest.mark.parametrize(("left", "right"), list(product(UNITS, UNITS)))
def test_each_pair_of_units_conflicts_exactly_where_the_table_says_so(left: str, right: str) -> None:
    found = {(ours.operand, theirs.operand, LETTERS[ours.memory])
             for ours in UNITS[left].accesses for theirs in UNITS[right].accesses if conflict(ours, theirs)}
    assert found == {(ours.operand, theirs.operand, ours.memory) for ours, theirs in conflicts(left, right)}


def test_the_table_is_whole() -> None:
    """A cell for each pair, the same both ways round, of memories that both touch."""
    assert set(CELLS) == set(product(TOUCHES, TOUCHES))
    assert {touch.unit for touches in TOUCHES.values() for touch in touches} == set(UNITS)
    for (row, column), cell in CELLS.items():
        assert cell == CELLS[column, row]
        assert all(set(cell) <= {touch.memory for touch in TOUCHES[name]} for name in (row, column))
    assert waits_for("load_weight") == ("move_out", "dram0_read", "dram1_read")
