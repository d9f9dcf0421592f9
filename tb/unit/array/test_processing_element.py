"""The processing element and the bias element against their references, cycle by cycle."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw import numerics
from weft.hw.arch import Arch
from weft.hw.array.processing_element import BiasElement, ProcessingElement, row_sum_widths

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


@pytest.mark.parametrize("row", (0, 1))
@pytest.mark.parametrize("mac_rounding", ROUNDINGS)
@pytest.mark.parametrize("data_type", TYPES)
def test_element_matches_reference(data_type: str, mac_rounding: str, row: int) -> None:
    """Random operands every cycle, with shifts and swaps at random: sums, timing, and what a swap takes."""
    arch = machine(data_type, mac_rounding)
    dut, rng = ProcessingElement(arch, row), np.random.default_rng(seed=1)
    width = arch.number.width
    # What can stand above this row: the bias, and a product for each row.
    room = (arch.accumulator_bits if mac_rounding == "once" else width) if row == 0 else row_sum_widths(arch, row)[0]
    limit = numerics.maximum(arch.accumulator_bits) + row * 4 ** (width - 1) if mac_rounding == "once" else 1 << 40
    sums = [max(-limit, min(limit, extremes(rng, room))) for _ in range(300)]
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


@pytest.mark.parametrize("mac_rounding", ROUNDINGS)
def test_bias_is_entered_by_the_shift_of_its_vector(mac_rounding: str) -> None:
    arch = machine("FP8BP4", mac_rounding)
    dut, rng = BiasElement(arch), np.random.default_rng(seed=2)
    expected: list[int] = []

    async def bench(ctx) -> None:
        for cycle in range(200):
            bias, shift = extremes(rng, 8), int(rng.integers(arch.accumulator_bits))
            for signal, value in ((dut.shift, 1), (dut.swap, 0), (dut.link_i, bias)):
                ctx.set(signal, value)
            await ctx.tick()
            ctx.set(dut.shift, 0)
            ctx.set(dut.swap, 1)  # cycle t
            await ctx.tick()
            ctx.set(dut.swap, 0)
            ctx.set(dut.enter_shift, shift)  # cycle t + 1
            await ctx.tick()
            ctx.set(dut.enter_shift, 0)
            await ctx.tick()
            once = mac_rounding == "once"
            expected.append(numerics.enter(bias, shift, arch.accumulator_bits) if once else bias)
            assert ctx.get(dut.partial_sum_o) == expected[-1], f"{cycle=} {bias=} {shift=}"

    run(dut, bench)
