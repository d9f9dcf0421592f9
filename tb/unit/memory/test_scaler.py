# SPDX-License-Identifier: Apache-2.0
"""The scaler against ``Int8.move_out``: corners and random values, scales that change between rows."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SCALE_VECTORS, Int8, OutputRescale
from weft.hw.contract.schemes.int8 import SCALE_LATENCY, most_output_shift
from weft.hw.memory.scaler import Scaler

BLOCKS, ROWS = 12, 40


def values(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """Of all magnitudes, the ends among them."""
    found = rng.integers(low, high, shape, endpoint=True) >> rng.integers(0, 32, shape)
    return np.where(rng.random(shape) < 0.15, rng.choice([low, high, 0, 1], shape), found)


def ties(rng: np.random.Generator, shift: int) -> int:
    """A product that lies half way between two scalars."""
    return int(rng.integers(-300, 300)) * (1 << shift) + ((1 << shift) >> 1)


@pytest.mark.parametrize(("width", "bits"), ((24, 17), (32, 17), (32, 18), (32, 24)))
def test_rows_leave_as_the_law_says(width: int, bits: int) -> None:
    """Each block of rows comes behind its own scales, without a gap, and is scaled while the next ones come in."""
    arch = Arch.load("tiny").replace(data_type="INT8", array_size=3, accumulator_width=width,
                                     multiplier_width=bits)
    numbers, rng = arch.scheme, np.random.default_rng(width)
    assert isinstance(numbers, Int8)
    dut, expected, found = Scaler(arch), [], []
    blocks = []
    for block in range(BLOCKS):
        multipliers = values(rng, 0, (1 << bits) - 1, (3,))
        biases = values(rng, -1 << 31, (1 << 31) - 1, (3,)) if block % 3 else np.zeros(3, np.int64)
        if block % 4 == 0:
            multipliers[:] = 1
        rows = []
        for _ in range(ROWS):
            shift, zero, relu = (int(rng.integers(0, most_output_shift(bits) + 1)), int(rng.integers(-128, 128)),
                                 bool(rng.integers(0, 2)))
            row = values(rng, -1 << width - 1, (1 << width - 1) - 1, (3,))
            if rng.random() < 0.3:
                row[0] = ties(rng, min(shift, 14))
            rows.append((row, shift, zero, relu))
            scales = numbers.scale_vectors(multipliers, biases)
            expected.append(numbers.move_out(row, OutputRescale(shift, zero, scales), relu).tolist())
        blocks.append((numbers.scale_vectors(multipliers, biases), rows))

    async def bench(ctx) -> None:
        due: list[bool] = []

        async def tick(row: bool) -> None:
            due.append(row)
            await ctx.tick()
            if len(due) >= SCALE_LATENCY and due[-SCALE_LATENCY]:
                found.append([ctx.get(dut.scalars[lane]) for lane in range(3)])

        for vectors, rows in blocks:
            ctx.set(dut.take, 1)
            for vector in vectors:
                ctx.set(dut.scale, vector.tolist())
                await tick(False)
            ctx.set(dut.take, 0)
            for row, shift, zero, relu in rows:
                for port, value in ((dut.row, row.tolist()), (dut.shift, shift), (dut.zero, zero), (dut.relu, relu)):
                    ctx.set(port, value)
                await tick(True)
        for _ in range(SCALE_LATENCY):
            await tick(False)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(found) == BLOCKS * ROWS and len(blocks[0][0]) == SCALE_VECTORS
    assert found == expected
