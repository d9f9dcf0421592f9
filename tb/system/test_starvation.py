# SPDX-License-Identifier: Apache-2.0
"""Nobody starves: MatMul goes first in both memories, and leaves the others a gap in time."""

from __future__ import annotations

import numpy as np
import pytest

from weft.cycles.replay import estimate
from weft.golden.dram import Dram
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.timing import STARVATION_LIMIT
from weft.hw.contract.units import UNIT_NAMES
from weft.simulate.rtl import run_on_rtl
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes8"]
ISA = Isa(ARCH)
VECTORS, PASSES, TILES, MOVED = 128, 15, 3, 40


def mat_muls(local_stride: int, accumulator_stride: int) -> list[Instruction]:
    """One long stay in bank 0 of a memory, where a stride goes past all others; tile by tile, without a hazard."""
    return [ISA.mat_mul(0, k % TILES * VECTORS * accumulator_stride, VECTORS, accumulate=True,
                        local_stride=local_stride, accumulator_stride=accumulator_stride) for k in range(PASSES)]


LOCAL, ACCUMULATORS = ARCH.local_banks, ARCH.accumulator_banks
CASES = {
    "read of local memory": ("dram_write", mat_muls(LOCAL, 1), ISA.data_move(
        DataFlow.LOCAL_TO_DRAM0, 2048, 0, MOVED, local_stride=LOCAL)),
    "write of accumulators": ("move_in", mat_muls(1, ACCUMULATORS), ISA.data_move(
        DataFlow.LOCAL_TO_ACCUMULATOR, 2048, 1536, MOVED, far_stride=ACCUMULATORS)),
    "read of accumulators": ("move_out", mat_muls(1, ACCUMULATORS), ISA.data_move(
        DataFlow.ACCUMULATOR_TO_LOCAL, 2048, 1536, MOVED, far_stride=ACCUMULATORS)),
}


@pytest.mark.wide
@pytest.mark.parametrize("case", CASES)
def test_nobody_waits_for_all_mat_muls(case: str) -> None:
    """A move of the bank that MatMul never leaves has a gap in every ``STARVATION_LIMIT + 1`` cycles; MatMul loses no
    more."""
    unit, products, move = CASES[case]
    until_sums_arrive = [ISA.configure(Register.TIMEOUT, 0)] * 64
    program = ISA.assemble([*products[:1], *until_sums_arrive, move, *products[1:]])
    done = run_on_rtl(ARCH, program, Dram(ARCH), Dram(ARCH), trace_operations=True)
    operations = done.operations
    assert operations is not None
    units = operations["unit"]
    move_row = operations[units == UNIT_NAMES.index(unit)][0]
    array_rows = operations[units == UNIT_NAMES.index("mat_mul")]
    took = move_row["finish_cycle"] - move_row["start_cycle"]
    assert MOVED * STARVATION_LIMIT < took < MOVED * (STARVATION_LIMIT + 3) + 100
    assert array_rows["finish_cycle"][-1] - array_rows["start_cycle"][0] < VECTORS * PASSES + MOVED + 60
    found = estimate(program, ARCH)
    assert found.cycles == done.cycles
    assert np.array_equal(found.operations, operations)
