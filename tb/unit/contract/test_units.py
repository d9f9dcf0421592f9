# SPDX-License-Identifier: Apache-2.0
"""What the units touch is what the table written by hand says."""

from __future__ import annotations

from itertools import product

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.key_values import SEPARATE, SHARED
from weft.hw.contract.units import UNIT_NAMES, UNITS, Memory, conflict, number_width, unit_names, unit_of_flow
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
    assert waits_for("load_weight", shared=True) == ("move_out", "dram_read")
    assert waits_for("sync", shared=True, signals=True) == ("dram_read", "dram_write")
    assert waits_for("dram_write", shared=True, signals=True) == ("move_out", "dram_read", "sync")


def test_a_machine_has_the_units_of_its_dram_ports() -> None:
    separate = Arch.load("tiny").replace(dram_ports=SEPARATE)
    assert unit_names(separate) == ("load_weight", "mat_mul", "simd", "move_out", "move_in", "dram0_read",
                                    "dram0_write", "dram1_read", "dram1_write")
    shared = separate.replace(dram_ports=SHARED)
    assert unit_names(shared) == ("load_weight", "mat_mul", "simd", "move_out", "move_in", "dram_read", "dram_write")
    signals = shared.replace(cores=2, sync_counters=1)
    assert unit_names(signals) == (*unit_names(shared), "sync")
    assert number_width(shared) == UNIT_NAMES.index("dram_write") + 1 == number_width(signals) - 1
    for arch in (separate, shared, signals):
        assert set(unit_of_flow(arch).values()) <= set(unit_names(arch))
    assert unit_of_flow(shared)[DataFlow.LOCAL_TO_DRAM1] == "dram_write"
    assert unit_of_flow(separate)[DataFlow.LOCAL_TO_DRAM1] == "dram1_write"
