# SPDX-License-Identifier: Apache-2.0
"""Cycles of a program's parts that are counted: those of the busiest unit, and near those of the estimator."""

from __future__ import annotations

import numpy as np

from weft.cycles.replay import estimate
from weft.cycles.shares import busiest_cycles
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register

ARCH = Arch.load("tiny").replace(array_size=6, axi_data_width=32, simd_loop_depth=4)
ISA = Isa(ARCH)
BEATS = 3
"""The beats of a vector: six scalars of two bytes, four bytes each."""


def test_a_part_takes_the_cycles_of_its_busiest_unit() -> None:
    add = ISA.simd(SimdSub(SimdOpcode.ADD), read=0, write=0)
    parts = [
        [ISA.configure(Register.MAT_MUL_ROWS, 2), ISA.mat_mul(0, 0, 5), ISA.load_weight(0, 4), ISA.mat_mul(0, 0, 2)],
        [ISA.mat_mul(0, 0, 1), ISA.data_move(DataFlow.DRAM1_TO_LOCAL, 0, 0, 4),
         ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 5)],
        [ISA.simd_loop(7, 2), add, add, ISA.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 13)],
        [ISA.no_op()],
    ]
    numbers = np.repeat(np.arange(4), [len(part) for part in parts])
    program = ISA.assemble([instruction for part in parts for instruction in part])
    assert busiest_cycles(program, numbers, ARCH).tolist() == [15 + 6, 5 * BEATS, 14, 0]


def test_counted_cycles_are_near_the_estimate_where_one_unit_works() -> None:
    program = ISA.assemble([ISA.load_weight(0, 7), *[ISA.mat_mul(0, 0, 40)] * 50])
    found, = busiest_cycles(program, np.zeros(51, np.int64), ARCH)
    assert found == 2000 and 0.95 < found / estimate(program, ARCH).cycles <= 1


def test_a_program_without_instructions_has_no_parts() -> None:
    assert busiest_cycles(b"", np.zeros(0, np.int64), ARCH).tolist() == []
