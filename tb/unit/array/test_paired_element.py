# SPDX-License-Identifier: Apache-2.0
"""Two sums in one cascade come apart: how many bits are needed beside it, and what is made of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from weft.hw.array.paired_element import with_low_product
from weft.hw.contract.arch import Arch
from weft.hw.parts.ports import partial_sum_width
from weft.tb.bench.apart import Apart

LARGEST_PRODUCT = 127 * 255
BITS = {"DSP48E1": {2: 0, 4: 1, 8: 2, 12: 3, 16: 3, 18: 4, 48: 5}, "DSP48E2": {8: 0, 10: 1, 16: 1, 24: 2, 48: 3}}
"""Block -> rows -> bits of the high sum that have to be known."""
CASES = [(block, rows) for block, sizes in BITS.items() for rows in sizes]


def machine(block: str, rows: int) -> Arch:
    return Arch.load("tiny").replace(data_type="INT8", dsp_packing=block, array_size=rows)


@pytest.mark.parametrize(("block", "rows"), CASES)
def test_bits_beside_the_cascade(block: str, rows: int) -> None:
    arch = machine(block, rows)
    assert arch.packing is not None
    assert arch.residue_bits == BITS[block][rows]
    room = 1 << arch.packing.distance + arch.residue_bits - 1
    assert rows * LARGEST_PRODUCT < room, "the largest low sum fits"
    assert arch.residue_bits == 0 or rows * LARGEST_PRODUCT >= room // 2, "and would not with a bit less"


@pytest.mark.parametrize(("block", "rows"), CASES)
def test_sums_come_apart(block: str, rows: int) -> None:
    arch, rng = machine(block, rows), np.random.default_rng(seed=rows)
    assert arch.packing is not None
    most = rows * LARGEST_PRODUCT
    assert arch.packing is not None
    distance = arch.packing.distance
    edges = [sign * (most - less) for sign in (-1, 1) for less in (0, 1)] + [-1, 0, 1]
    edges += [sign * (1 << distance - 1) - less for sign in (-1, 1) for less in (0, 1)
              if most > 1 << distance]
    pairs = [*product(edges, edges), *rng.integers(-most, most + 1, (50, 2)).tolist()]
    dut, width = Apart(arch), partial_sum_width(arch)

    async def bench(ctx) -> None:
        for cycle in range(len(pairs) + 1):
            residue = pairs[cycle][1] if cycle < len(pairs) else 0
            low, high = pairs[cycle - 1] if cycle else (0, 0)
            ctx.set(dut.sums, {"cascade": ((high << distance) + low) % (1 << 48),
                               "residue": residue % (1 << arch.residue_bits)})
            await ctx.tick()
            assert (ctx.get(dut.low), ctx.get(dut.high)) == (low % (1 << width), high % (1 << width)), cycle

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_lowest_bits_of_a_sum_with_a_product(bits: int) -> None:
    """All of them, whatever the three numbers are."""
    m = Module()
    total, left, right, found = (Signal(bits, name=name) for name in ("total", "left", "right", "found"))
    m.d.comb += found.eq(with_low_product(total, left, right))

    async def bench(ctx) -> None:
        for numbers in product(range(1 << bits), repeat=3):
            for signal, number in zip((total, left, right), numbers, strict=True):
                ctx.set(signal, number)
            assert ctx.get(found) == (numbers[0] + numbers[1] * numbers[2]) % (1 << bits), numbers

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
