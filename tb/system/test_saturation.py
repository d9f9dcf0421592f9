# SPDX-License-Identifier: Apache-2.0
"""Numbers at both ends: accumulators that are full, results and inputs that saturate, in every lane and bank.

Random programs hardly ever fill an accumulator, least of all one of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.simulate.rtl import build_rtl
from weft.tb.random.lockstep import DRAM_VECTORS, Case, run_cases
from weft.tb.random.lockstep_archs import lockstep_archs

ARCHS = lockstep_archs()
SIZE = 20
"""Vectors, more than there are banks."""
FACTORS = 2 * SIZE
"""The first of two vectors of factors."""
FILLING = 3
"""Moves that fill an accumulator; one more stays at its end."""


@dataclass(frozen=True)
class Extremes(Case):
    """A case whose DRAMs hold the least and the largest numbers, alternating by vector and lane.

    The vectors FACTORS and behind have two factors in all lanes. Their product, rounded, is just beyond the largest
    number: it ends in a half, and the number below the half is odd."""

    def content(self, dram: str) -> bytes:
        number, lanes = self.arch.number, self.arch.array_size
        least = np.add.outer(np.arange(DRAM_VECTORS), np.arange(lanes)) % 2 == (self.seed + (dram == "dram1")) % 2
        values = np.where(least, number.minimum, number.maximum)
        values[FACTORS:FACTORS + 2] = np.array([[(1 << number.width) // 3], [3 << max(number.point - 1, 0)]])
        return values.astype(number.storage_dtype).tobytes()


def scales(isa: Isa, shift: int) -> list[Instruction]:
    """Return what makes inputs as large as can be, and outputs by ``shift``."""
    if isa.arch.scheme.per_lane:
        most = isa.registers[Register.INPUT_MULTIPLIER].maximum // 2
        return [isa.configure(Register.INPUT_MULTIPLIER, most), isa.configure(Register.OUTPUT_SHIFT, shift)]
    most = isa.registers[Register.INPUT_SHIFT].maximum
    shifts = (most, min(shift, most)) if isa.arch.scheme.chooses_points else 2 * (isa.arch.number.point,)
    return [isa.configure(register, each)
            for register, each in zip((Register.INPUT_SHIFT, Register.OUTPUT_SHIFT), shifts, strict=True)]


def program(arch: Arch, shift: int, opcode: SimdOpcode) -> tuple[Instruction, ...]:
    """Return a program that fills accumulators by moves, MatMuls and SIMD, and moves them out where they came from."""
    isa = Isa(arch)
    fill = isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, 0, SIZE)
    sub = SimdSub(opcode, left=0, right=1, destination=0)
    simd = [isa.simd(SimdSub(SimdOpcode.MOVE, destination=1), read=1),
            *(isa.simd(sub, read=k, write=k, accumulate=True) for k in range(SIZE))]
    return (isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 2 * SIZE), isa.load_weight(0, arch.array_size + 1),
            *scales(isa, shift), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, SIZE), *[fill] * FILLING,
            *(isa.mat_mul(k, 0, SIZE, accumulate=True) for k in (0, 1)),
            *(simd if arch.simd_registers_depth else []),
            isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, SIZE, 0, SIZE))


def rising(arch: Arch) -> tuple[Instruction, ...]:
    """Return a program whose products are rounded up from the largest number, positive and negative."""
    isa = Isa(arch)
    products = [each for at in (0, 1) for each in (
        isa.simd(SimdSub(SimdOpcode.MOVE, destination=1), read=at),
        isa.simd(SimdSub(SimdOpcode.MULTIPLY, left=0, right=1), read=1 - at, write=2 + at))]
    return (isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, FACTORS, 2), isa.configure(Register.INPUT_SHIFT, 0),
            isa.configure(Register.OUTPUT_SHIFT, 0), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 2), *products)


@pytest.mark.wide_cases("lanes4_slices", "lanes3_every_step")
@pytest.mark.parametrize("name", ["lanes2", "lanes4_int8", "lanes3_every_step", "lanes4_lut", "lanes4_slices"])
def test_numbers_at_both_ends_are_as_golden_has_them(name: str) -> None:
    arch = ARCHS[name]
    opcodes = (SimdOpcode.ADD, SimdOpcode.SUBTRACT, SimdOpcode.MULTIPLY)
    shifts = (0, 8, arch.accumulator_bits - arch.number.width)
    cases = [Extremes(arch, seed, program(arch, shift, opcode))
             for seed, (shift, opcode) in enumerate(product(shifts, opcodes))]
    if arch.scheme.chooses_points and arch.simd_registers_depth:
        cases.append(Extremes(arch, len(cases), rising(arch)))
    assert [str(each) for each in run_cases(build_rtl(arch), cases)] == []
