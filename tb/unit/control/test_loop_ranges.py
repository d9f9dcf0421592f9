# SPDX-License-Identifier: Apache-2.0
"""The ranges of a SIMD loop's body, instruction by instruction, against the union of those that have one."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from weft.hw.contract.arch import Arch
from weft.hw.control.interlock import Interlock
from weft.hw.control.issue import issue_layout
from weft.hw.control.tracker import range_layout

ARCH = Arch.load("tiny").replace(array_size=2, local_depth=64, accumulator_depth=32, simd_registers_depth=2)


@pytest.mark.parametrize("depth", [0, 4])
def test_the_last_instruction_of_a_body_has_the_ranges_of_all(depth: int) -> None:
    """Those before it have none. What an instruction names without reading or writing there counts for nothing.

    An instruction outside any loop has its own ranges, and those of other units never depend on a loop."""
    arch, rng = ARCH.replace(simd_loop_depth=depth), Random(3)
    issue, m = Signal(issue_layout(arch), name="issue"), Module()
    m.d.sync += Signal(name="clocked").eq(0)  # without loops nothing else has a clock
    trackers = {name: SimpleNamespace(ranges=Signal(range_layout(issue.shape()), name=f"{name}_ranges"),
                                      push=Signal(name=f"{name}_push")) for name in ("simd", "mat_mul")}
    Interlock._track_ranges(SimpleNamespace(i=SimpleNamespace(payload=issue), _arch=arch), m,  # type: ignore[arg-type]
                            trackers)

    async def bench(ctx: Any) -> None:
        body: dict[int, tuple[int, int] | None] = {0: None, 1: None}
        left = 0
        for _ in range(900):
            if not left and depth and rng.random() < 0.5:
                left = rng.randint(1, 4)
            inner, last = left > 1, left == 1
            taken, local = rng.random() < 0.8, left == 0 and rng.random() < 0.2
            own: dict[int, tuple[int, int] | None] = {}
            for index, valid in ((0, "accumulators0"), (1, "range1")):
                first = rng.randrange(32)
                low, high = sorted((first, rng.randrange(32)))
                operand = getattr(issue, f"operand{index}")
                ctx.set(operand.base, low)
                ctx.set(operand.last, high)
                there = rng.random() < 0.6 and not (local and index == 0)
                ctx.set(getattr(issue, valid), there)
                own[index] = (low, high) if there else None
            ctx.set(issue.local0, local)
            ctx.set(issue.in_loop, inner or last)
            ctx.set(issue.loop_last, last)
            ctx.set(trackers["simd"].push, taken)
            found = trackers["simd"].ranges
            joined = {index: [each for each in (body[index], own[index]) if each] for index in body}
            for index, valid in ((0, found.accumulators0), (1, found.range1)):
                assert bool(ctx.get(valid)) == (bool(joined[index]) and not inner)
                if joined[index] and not inner:
                    ends = ctx.get(getattr(found, f"first{index}")), ctx.get(getattr(found, f"last{index}"))
                    assert ends == (min(low for low, _ in joined[index]), max(high for _, high in joined[index]))
            assert bool(ctx.get(found.local0)) == local
            other = trackers["mat_mul"].ranges
            assert bool(ctx.get(other.accumulators0)) == (own[0] is not None)
            if own[1]:
                assert (ctx.get(other.first1), ctx.get(other.last1)) == own[1]
            await ctx.tick()
            if taken:
                spans = {index: (min(low for low, _ in each), max(high for _, high in each)) if each else None
                         for index, each in joined.items()}
                body = spans if inner else {0: None, 1: None}
                left = max(left - 1, 0)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
