# SPDX-License-Identifier: Apache-2.0
"""The requantizer's readers take turns, and whoever was let to ask goes on asking until the memory answers."""

from __future__ import annotations

import pytest
from amaranth.sim import Simulator

from weft.hw.memory.requantizer import Requantizer
from weft.tb.random.lockstep_archs import lockstep_archs


@pytest.mark.parametrize("readies", [[1] * 6, [0, 0, 0, 1, 1, 0, 0, 1], [0, 1] * 5])
def test_a_reader_that_is_refused_keeps_its_turn(readies: list[int]) -> None:
    dut = Requantizer(lockstep_archs()["lanes2"], ("simd", "move_out"))
    readers = [dut.simd, dut.move_out]

    async def bench(ctx) -> None:
        turn = 0
        for number, reader in enumerate(readers):
            ctx.set(reader.request.valid, 1)
            ctx.set(reader.request.payload.address, 3 + number)
        for ready in readies:
            ctx.set(dut.accumulator_read.request.ready, ready)
            assert ctx.get(dut.accumulator_read.request.payload) == 3 + turn
            assert [ctx.get(reader.request.ready) for reader in readers] == [ready and turn == 0, ready and turn == 1]
            turn ^= ready
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
