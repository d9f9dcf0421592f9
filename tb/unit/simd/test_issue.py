# SPDX-License-Identifier: Apache-2.0
"""The SIMD unit's gate lets in what a list of the operations under way says, and in no other cycle."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.simd.issue import Issue

Door = tuple[bool, int, bool, int]
"""An operation at the door: whether it reads and where, whether it writes and where."""


@pytest.mark.parametrize(("leaving", "addresses"), [(0.1, 64), (0.5, 3), (0.9, 3)])
def test_an_operation_enters_when_there_is_room_and_its_address_is_written(simd: SimpleNamespace, leaving: float,
                                                                             addresses: int) -> None:
    """Without registers: at most IN_FLIGHT are under way, and none of them writes what the next one reads."""
    dut, rng = Issue(simd.machine(), 5), np.random.default_rng(seed=5)
    entered: list[Door] = []
    most = 0

    async def bench(ctx) -> None:
        nonlocal most
        door: Door | None = None
        offered: Door | None = None
        under_way: list[int | None] = []  # the address that each writes, None for none
        for _ in range(600):
            if offered is None and rng.random() < 0.9:
                offered = (bool(rng.random() < 0.2), int(rng.integers(addresses)), bool(rng.random() < 0.7),
                           int(rng.integers(addresses)))
            retires = bool(under_way) and rng.random() < leaving
            takes = rng.random() < 0.8
            ctx.set(dut.i.valid, offered is not None)
            if offered:
                for name, value in zip(("read", "read_address", "write", "write_address"), offered, strict=True):
                    ctx.set(dut.i.payload[name], int(value))
            ctx.set(dut.retired, retires)
            ctx.set(dut.request.ready, takes)
            reads, address, writes, target = door or (False, 0, False, 0)
            clear = door is not None and len(under_way) < Issue.IN_FLIGHT and not (reads and address in under_way)
            enters = clear and (takes or not reads)
            assert ctx.get(dut.request.valid) == (clear and reads)
            assert ctx.get(dut.issued) == enters
            assert ctx.get(dut.i.ready) == (door is None or enters)
            assert ctx.get(dut.drained) == (door is None and offered is None and not under_way)
            if retires:
                under_way.pop(0)
            if door and enters:
                under_way.append(target if writes else None)
                entered.append(door)
            most = max(most, len(under_way))
            if door is None or enters:
                door, offered = offered, None
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(entered) > 40
    assert (most == Issue.IN_FLIGHT) == (addresses == 64)
