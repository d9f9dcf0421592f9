# SPDX-License-Identifier: Apache-2.0
"""The ALU against its reference: every operation, every pair of arguments where the type is small."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.numerics import DataType
from weft.hw.simd.alu import Alu
from weft.hw.simd.reference import simd_reference

OPCODES = [opcode for opcode in SimdOpcode if opcode != SimdOpcode.LOOKUP]


def check(data_type: DataType, lanes: int, opcodes: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """One operation a cycle; opcodes [n], arguments [n, lane]."""
    dut = Alu(data_type, lanes)
    expected = np.zeros_like(left)
    for opcode in OPCODES:
        chosen = opcodes == opcode
        expected[chosen] = simd_reference(data_type, opcode, left[chosen], right[chosen])

    async def bench(ctx) -> None:
        for cycle in range(len(opcodes) + dut.LATENCY):
            if cycle < len(opcodes):
                ctx.set(dut.opcode, int(opcodes[cycle]))
                operands = dut.operands(data_type, opcodes[cycle], left[cycle], right[cycle])
                ctx.set(dut.left, operands[0].tolist())
                ctx.set(dut.right, operands[1].tolist())
            if cycle >= dut.LATENCY:
                k = cycle - dut.LATENCY
                result = [ctx.get(dut.result[lane]) for lane in range(lanes)]
                assert result == expected[k].tolist(), f"{SimdOpcode(opcodes[k]).name} {left[k]} {right[k]}"
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("opcode", OPCODES, ids=lambda opcode: opcode.name)
def test_every_pair_of_a_small_type(opcode: SimdOpcode) -> None:
    """All 256 pairs of FP4BP2, spread over 8 lanes."""
    values = np.arange(-8, 8)
    left, right = (grid.reshape(-1, 8) for grid in np.meshgrid(values, values))
    check(DataType.parse("FP4BP2"), 8, np.full(len(left), opcode), left, right)


@pytest.mark.parametrize("name", ("FP8BP4", "FP16BP8", "FP18BP10", "FP32BP16"))
def test_mixed_operations_at_full_rate(name: str) -> None:
    """Another operation every cycle, arguments at random and at the ends of the range."""
    data_type, rng, count = DataType.parse(name), np.random.default_rng(seed=5), 600
    ends = [data_type.minimum, data_type.minimum + 1, data_type.maximum, -data_type.one, data_type.one, -1, 0, 1]
    arguments = rng.integers(data_type.minimum, data_type.maximum + 1, (2, count, 2))
    arguments[:, ::2] = rng.choice(ends, arguments[:, ::2].shape)
    arguments[1, 1::4] = arguments[0, 1::4]  # equal ones
    check(data_type, 2, rng.choice(OPCODES, count), *arguments)
