# SPDX-License-Identifier: Apache-2.0
"""The processing element and the bias adder against their references, cycle by cycle."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.array.processing_element import ProcessingElement
from weft.hw.contract import numerics
from weft.hw.contract.arch import Arch
from weft.hw.parts.schemes.once import BiasRescaler

TYPES = ("FP8BP4", "FP16BP8", "FP18BP10")
ROUNDINGS = ("once", "every_step")


def machine(data_type: str, mac_rounding: str) -> Arch:
    return Arch.load("tiny").replace(data_type=data_type, mac_rounding=mac_rounding)


def run(dut, bench) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def extremes(rng: np.random.Generator, width: int) -> int:
    """A random value, often one of the ends."""
    ends = (numerics.minimum(width), numerics.maximum(width), -1, 0, 1)
    return int(rng.choice(ends)) if rng.random() < 0.4 else int(rng.integers(ends[0], ends[1] + 1))


@pytest.mark.parametrize("row", (0, 1, 3))
@pytest.mark.parametrize("mac_rounding", ROUNDINGS)
@pytest.mark.parametrize("data_type", TYPES)
def test_element_matches_reference(data_type: str, mac_rounding: str, row: int) -> None:
    """Random operands every cycle, with shifts and swaps at random: sums, timing, and what a swap takes."""
    arch = machine(data_type, mac_rounding)
    dut, rng = ProcessingElement(arch, row), np.random.default_rng(seed=1)
    width = arch.number.width
    if mac_rounding == "once":  # what can stand above this row: a product for each
        sums = [extremes(rng, arch.scheme.row_sum_width(row - 1)) if row else 0 for _ in range(300)]
        sums = [max(-row * 4 ** (width - 1), min(row * 4 ** (width - 1), each)) for each in sums]
    else:
        sums = [extremes(rng, width) for _ in range(300)]
    activations, links = ([extremes(rng, width) for _ in sums] for _ in range(2))
    shifts, swaps = rng.random((2, len(sums))) < 0.4
    shadow = weight = link = 0
    products: list[int] = []  # the weight that cycle's activation meets

    async def bench(ctx) -> None:
        nonlocal shadow, weight, link
        for cycle in range(len(sums)):
            ctx.set(dut.activation_i, activations[cycle])
            ctx.set(dut.partial_sum_i, sums[cycle])
            ctx.set(dut.shift, int(shifts[cycle]))
            ctx.set(dut.swap, int(swaps[cycle]))
            ctx.set(dut.link_i, links[cycle])
            if swaps[cycle]:
                weight = shadow
            if shifts[cycle]:
                shadow, link = links[cycle], shadow
            products.append(weight)
            await ctx.tick()
            assert ctx.get(dut.link_o) == link
            done = cycle + 1
            if done >= dut.ACTIVATION_LATENCY:
                assert ctx.get(dut.activation_o) == activations[done - dut.ACTIVATION_LATENCY]
            if done >= dut.LATENCY:
                start = done - dut.LATENCY
                expected = dut.reference(arch, products[start], activations[start],
                                         sums[start + dut.PARTIAL_SUM_OFFSET])
                assert ctx.get(dut.partial_sum_o) == expected, f"{cycle=}"

    run(dut, bench)


@pytest.mark.parametrize("width", (16, 12, 40))
@pytest.mark.parametrize("size", (2, 5))
def test_biases_enter_one_after_another(size: int, width: int) -> None:
    """Waves of other biases and shifts as close as they may come, at the ends of their ranges too."""
    arch = machine("FP8BP4", "once").replace(accumulator_width=width, array_size=size)
    dut, rng = BiasRescaler(arch), np.random.default_rng(seed=2)
    starts = np.cumsum([0, *(size + (k % 3 == 0) * k for k in range(40))]).tolist()
    given = [([extremes(rng, 8) for _ in range(size)], int(rng.integers(width))) for _ in starts]

    async def bench(ctx) -> None:
        for cycle in range(starts[-1]):
            ctx.set(dut.enter, int(cycle in starts))
            ctx.set(dut.input_shift, given[starts.index(cycle)][1] if cycle in starts else 0)
            for k in range(size):
                wave = sum(start + k + 1 <= cycle for start in starts) - 1  # the newest that passed column k
                if wave >= 0:
                    ctx.set(dut.biases[k], given[wave][0][k])
                wave = sum(start + size + k + 2 <= cycle for start in starts) - 1
                if wave >= 0:
                    expected = numerics.rescale_input(given[wave][0][k], given[wave][1], width)
                    assert ctx.get(dut.entered[k]) == expected, f"{cycle=} {k=}"
            await ctx.tick()

    run(dut, bench)
