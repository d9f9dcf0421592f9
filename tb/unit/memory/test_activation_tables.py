# SPDX-License-Identifier: Apache-2.0
"""Activation tables against numpy: every byte, tables that change from vector to vector, loads in between."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import TABLE_ENTRIES
from weft.hw.contract.timing import ACTIVATION_TABLE_LATENCY
from weft.hw.memory.activation_tables import ActivationTables

LANES = 3


@pytest.mark.parametrize("count", (1, 3, 8))
def test_bytes_are_looked_up_lane_by_lane(count: int) -> None:
    """Each table is loaded while others are looked up, and looked up from the next cycle on."""
    arch = Arch.load("tiny").replace(data_type="INT8", array_size=LANES, local_depth=512, activation_tables=count)
    rng, dut = np.random.default_rng(count), ActivationTables(arch)
    tables = np.zeros((count, TABLE_ENTRIES, LANES), np.int64)
    expected: list[list[int]] = []
    found: list[list[int]] = []

    async def look(ctx, table: int) -> None:
        scalars = rng.integers(-128, 128, LANES)
        looked = tables[table - 1][scalars + 128, np.arange(LANES)] if table else scalars
        expected.append(looked.tolist())
        ctx.set(dut.table, table)
        for lane in range(LANES):
            ctx.set(dut.scalars[lane], int(scalars[lane]))
        await ctx.tick()
        found.append([ctx.get(dut.looked_up[lane]) for lane in range(LANES)])

    async def bench(ctx) -> None:
        for table in rng.permutation(np.repeat(np.arange(1, count + 1), 2)).tolist():
            others = [other for other in range(count + 1) if other != table]
            loaded = rng.integers(-128, 128, (TABLE_ENTRIES, LANES))
            ctx.set(dut.load_table, table)
            for vector in loaded:
                ctx.set(dut.load, 1)
                for lane in range(LANES):
                    ctx.set(dut.vector[lane], int(vector[lane]))
                await look(ctx, int(rng.choice(others)))
                ctx.set(dut.load, 0)
                for _ in range(int(rng.integers(0, 2))):
                    await look(ctx, int(rng.choice(others)))
            tables[table - 1] = loaded
            for _ in range(40):
                await look(ctx, int(rng.integers(0, count + 1)))
        for _ in range(ACTIVATION_TABLE_LATENCY):
            await look(ctx, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    late = ACTIVATION_TABLE_LATENCY - 1
    assert found[late:] == expected[:len(expected) - late]
