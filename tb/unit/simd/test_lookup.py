# SPDX-License-Identifier: Apache-2.0
"""Lookup tables against their reference: loading, nearest key, both ends, every spacing."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import KEY_ENTRIES
from weft.hw.simd.lut import LookupTables, TableLoader
from weft.hw.simd.reference import LookupReference


def machine(data_type: str, depth: int, tables: int) -> Arch:
    return Arch.load("tiny").replace(data_type=data_type, lut_depth=depth, lut_count=tables, simd_registers_depth=4,
                                     array_size=3)


def keys(arch: Arch, rng: np.random.Generator, lane_spacings: list[int]) -> np.ndarray:
    """Evenly spaced ascending keys [entry, lane], cut to the type as a program would have to."""
    number, entries = arch.number, np.arange(arch.lut_depth)[:, None]
    spacing = 1 << np.array(lane_spacings)
    return number.saturate(rng.integers(number.minimum, 0, arch.lane_count) + entries * spacing)


@pytest.mark.parametrize(("data_type", "depth", "tables"), [("FP8BP4", 8, 1), ("FP8BP4", 5, 2), ("FP16BP8", 64, 2)])
def test_lookup_matches_reference(data_type: str, depth: int, tables: int) -> None:
    arch = machine(data_type, depth, tables)
    number, rng = arch.number, np.random.default_rng(seed=depth)
    dut, reference = LookupTables(arch), LookupReference(arch)
    ends = np.array([number.minimum, -1, 0, 1, number.maximum])

    async def load(ctx, table: int, vectors: np.ndarray) -> None:
        reference.load(table, vectors)
        ctx.set(dut.load_valid, 1)
        ctx.set(dut.load_table, table)
        for entry, vector in enumerate(vectors):
            ctx.set(dut.load_entry, entry)
            ctx.set(dut.load_vector, vector.tolist())
            await ctx.tick()
        ctx.set(dut.load_valid, 0)
        await ctx.tick().repeat(dut.LOAD_LATENCY)

    async def compare(ctx, arguments: np.ndarray) -> None:
        for cycle in range(len(arguments) + dut.LATENCY):
            if cycle < len(arguments):
                ctx.set(dut.argument, arguments[cycle].tolist())
            if cycle >= dut.LATENCY:
                argument = arguments[cycle - dut.LATENCY]
                difference, values = reference.lookup(argument)
                lanes = range(arch.lane_count)
                assert [ctx.get(dut.difference[lane]) for lane in lanes] == difference.tolist(), argument
                assert [[ctx.get(row[lane]) for lane in lanes] for row in dut.values] == values.tolist(), argument
            await ctx.tick()

    async def bench(ctx) -> None:
        await compare(ctx, np.tile(ends[:, None], arch.lane_count))  # as after power-up
        for spacings in ([0, 1, 2], [3, number.width - 2, 4], [number.width - 1, 2, 1]):
            await load(ctx, 0, keys(arch, rng, spacings))
            for table in range(tables):
                shape = (arch.lut_depth, arch.lane_count)
                await load(ctx, table + 1, rng.integers(number.minimum, number.maximum + 1, shape))
            arguments = rng.integers(number.minimum, number.maximum + 1, (120, arch.lane_count))
            arguments[::3] = rng.choice(ends, arguments[::3].shape)
            arguments[1::3] = number.saturate(reference.first_key + rng.integers(-20, 20, arguments[1::3].shape))
            await compare(ctx, arguments)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_load_reads_a_table_once_and_of_the_keys_the_first_two() -> None:
    """Loads behind each other, with strides, requests that wait, and answers as late as the memory's."""
    arch, rng = machine("FP8BP4", 5, 2).replace(local_depth=128), np.random.default_rng(seed=3)
    dut, latency = TableLoader(arch), 4
    loads = [(1, 3, 0), (0, 20, 1), (2, 40, 2), (0, 1, 0), (1, 60, 1)]
    asked: list[int] = []
    stored: list[tuple[int, int, int]] = []

    async def bench(ctx) -> None:
        pipe: list[int | None] = [None] * latency
        for table, base, stride in loads:
            ctx.set(dut.operation.valid, 1)
            ctx.set(dut.operation.payload, {"table": table, "base": base, "stride_log2": stride})
            taken = False
            while not taken:
                answer = pipe.pop(0)
                ctx.set(dut.local_read.response.valid, answer is not None)
                ctx.set(dut.local_read.response.payload, [answer or 0] * arch.lane_count)
                ctx.set(dut.local_read.request.ready, int(rng.random() < 0.7))
                request = dut.local_read.request
                asks = ctx.get(request.valid) and ctx.get(request.ready)
                pipe.append(ctx.get(request.payload) if asks else None)
                asked.extend([ctx.get(request.payload)] if asks else [])
                if ctx.get(dut.load_valid):
                    stored.append((ctx.get(dut.load_table), ctx.get(dut.load_entry), ctx.get(dut.load_vector[0])))
                taken = bool(ctx.get(dut.operation.ready))
                await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    expected = [(table, entry, base + (entry << stride)) for table, base, stride in loads
                for entry in range(arch.lut_depth if table else KEY_ENTRIES)]
    assert stored == expected
    assert asked == [address for _, _, address in expected]
