# SPDX-License-Identifier: Apache-2.0
"""Plain instructions of the SIMD unit: meaning under random stalls, timing where nothing stalls, reset."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY
from weft.hw.simd.reference import SimdOperation, TableLoad
from weft.hw.simd.simd_unit import SimdUnit
from weft.tb.bench.on_accumulators import OnAccumulators


@pytest.mark.wide_cases("*-0.0", "*-0.8")
@pytest.mark.parametrize("stall", (0.0, 0.3, 0.8))
@pytest.mark.parametrize("changes", (
    {"data_type": "FP8BP4"}, {"data_type": "FP16BP8", "mac_rounding": "every_step"},
    {"data_type": "FP18BP10", "array_size": 3}, {"accumulator_width": 11}, {"simd_registers_depth": 0},
    {"simd_loop_depth": 0, "simd_registers_depth": 1},
), ids=str)
def test_random_instructions(simd: SimpleNamespace, changes: dict, stall: float) -> None:
    """Every operation, few addresses and registers: reads after writes, accumulates, registers, back to back."""
    arch, rng = simd.machine(**changes), np.random.default_rng(seed=11)
    simd.check(arch, [simd.random_operation(arch, rng, 4) for _ in range(150)], stall=stall, seed=3)


def test_latency_of_one_instruction(simd: SimpleNamespace) -> None:
    arch = simd.machine()
    bench = simd.check(arch, [SimdOperation(read=5, write=6)])
    assert bench.writes[0] == bench.taken[0] + bench.unit.latency == bench.done[0]
    no_write = simd.check(arch, [SimdOperation(opcode=Op.MOVE, destination=1)])
    assert no_write.done[0] == no_write.taken[0] + no_write.unit.latency


@pytest.mark.parametrize("slices", [0, 1])
def test_what_is_not_written_waits_for_no_turn_at_the_accumulators(simd: SimpleNamespace, slices: int) -> None:
    """While another unit's write keeps the accumulators from taking any, each is done all the same, and once."""
    unit, done = SimdUnit(simd.machine(register_slices=slices)), []

    async def bench(ctx) -> None:
        ctx.set(unit.operation.payload, simd.fields(SimdOperation(opcode=Op.MOVE, destination=1)))
        for cycle in range(3 + 2 * unit.latency):
            ctx.set(unit.operation.valid, cycle < 3)
            assert cycle >= 3 or ctx.get(unit.operation.ready)
            if ctx.get(unit.done):
                done.append(cycle)
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert done == [unit.latency + number for number in range(3)]


def test_one_instruction_a_cycle(simd: SimpleNamespace) -> None:
    """Independent instructions follow each other without a gap, reading and writing every cycle."""
    bench = simd.check(simd.machine(), [SimdOperation(read=k, write=k + 32) for k in range(32)])
    assert np.array_equal(np.diff(bench.writes[:32]), np.ones(31))


@pytest.mark.parametrize("addresses", [(7, 7), (7, 9)])
def test_read_after_write_waits_as_long_as_it_must(simd: SimpleNamespace, addresses: tuple[int, int]) -> None:
    """Each reads what the one before wrote, where it read itself or elsewhere."""
    there, back = (SimdOperation(opcode=Op.INCREMENT, read=read, write=write, input_shift=4, output_shift=4)
                   for read, write in (addresses, addresses[::-1]))
    bench = simd.check(simd.machine(), [there, back] * 2)
    assert np.array_equal(np.diff(bench.reads), [bench.unit.memory_latency] * 3)


def test_register_after_register_waits_as_long_as_it_must(simd: SimpleNamespace) -> None:
    step = SimdOperation(opcode=Op.INCREMENT, left=1, destination=1, write=0)
    bench = simd.check(simd.machine(), [step, *[replace(step, write=k) for k in range(10, 14)]])
    assert np.array_equal(np.diff(bench.writes[:5]), [bench.unit.register_latency] * 4)


@pytest.mark.wide_cases("1-*", "4-*", "6-*")
@pytest.mark.parametrize("changes", ({}, {"lut_count": 2, "lut_depth": 6, "local_depth": 64}), ids=str)
@pytest.mark.parametrize("between", range(9))
def test_a_register_is_read_as_soon_as_it_is_written_at_every_distance(
        simd: SimpleNamespace, changes: dict, between: int) -> None:
    """Behind its writer and so many others: a cycle too early finds zero, a cycle too late is no bug but is slower."""
    program = [SimdOperation(opcode=Op.INCREMENT, destination=1),
               *[SimdOperation(opcode=Op.MOVE, left=2, destination=3)] * between,
               SimdOperation(opcode=Op.MOVE, left=1, write=40)]
    bench = simd.check(simd.machine(**changes), program)
    unit = bench.unit
    assert bench.writes[0] == bench.taken[0] + max(unit.register_latency, between + 1) + unit.latency


def test_a_table_of_keys_takes_two_reads(simd: SimpleNamespace) -> None:
    """A load of any other table takes one for each entry, and else as long."""
    arch = simd.machine(lut_count=2, lut_depth=6, local_depth=64)
    loads = [TableLoad(table, 10 * table) for table in (1, 0, 2, 0)]
    keys, entries, again = np.diff(simd.check(arch, loads).done[:4])
    assert keys == again == entries - arch.lut_depth + 2


@pytest.mark.parametrize("data_type", ("FP8BP4", "FP16BP8"))
def test_edges_of_entering_and_leaving(simd: SimpleNamespace, data_type: str) -> None:
    """Every pair of shifts would be long: every input shift and every output shift, with values at both ends."""
    arch = simd.machine(data_type=data_type)
    copies = [SimdOperation(read=40 + k % 8, write=k % 32, output_shift=k, input_shift=arch.accumulator_bits - 1 - k)
              for k in range(arch.accumulator_bits)]
    simd.check(arch, copies, seed=8)


def test_reset_clears_registers_and_what_is_under_way(simd: SimpleNamespace) -> None:
    arch = simd.machine()
    unit, reset = SimdUnit(arch), Signal()
    dut = OnAccumulators(arch, unit)
    operations = [simd.fields(SimdOperation(opcode=Op.INCREMENT, destination=1, write=5, input_shift=0)),
                  simd.fields(SimdOperation(opcode=Op.MOVE, left=1, write=6))]

    async def write_of(ctx, operation: dict, limit: int) -> tuple[int, int] | None:
        """Address and first lane of the write that the operation makes within the limit."""
        ctx.set(dut.operation.payload, operation)
        ctx.set(dut.operation.valid, 1)
        await ctx.tick()
        ctx.set(dut.operation.valid, 0)
        for _ in range(limit):
            request = dut.accumulator_write.request
            if ctx.get(request.valid):
                address = ctx.get(request.payload.address)
                await ctx.tick().repeat(ACCUMULATE_DATA_LATENCY)
                return address, ctx.get(dut.accumulator_write.data[0])
            await ctx.tick()
        return None

    async def bench(ctx) -> None:
        ctx.set(dut.accumulator_write.request.ready, 1)
        assert await write_of(ctx, operations[0], unit.latency) == (5, arch.number.one)
        await ctx.tick()
        assert await write_of(ctx, operations[1], unit.latency - 3) is None  # under way
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        for _ in range(unit.latency):
            assert not ctx.get(dut.accumulator_write.request.valid)
            assert not ctx.get(dut.done)
            await ctx.tick()
        assert await write_of(ctx, operations[1], unit.latency) == (6, 0)

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_write_goes_once_though_all_before_it_waits(simd: SimpleNamespace) -> None:
    """With register slices there is room for it in the way to the accumulators before there is behind the queue."""
    plain = SimdOperation(opcode=Op.MOVE, destination=1)
    adds = [SimdOperation(read=address, write=20 + address, accumulate=True, output_shift=4) for address in range(8)]
    simd.check(simd.machine(register_slices=1), [each for write in adds * 3 for each in (write, plain)], stall=0.3,
               seed=8)


@pytest.mark.parametrize("slices", [0, 1])
def test_no_result_is_lost_while_another_unit_keeps_the_way_to_the_accumulators(simd: SimpleNamespace,
                                                                                slices: int) -> None:
    """As many as may be under way wait in the queue, for none has gone on to the write's end."""
    unit, asked = SimdUnit(simd.machine(register_slices=slices)), []
    count, refused = 24, 80

    async def bench(ctx) -> None:
        number, written = 0, False
        write = unit.accumulator_write
        for cycle in range(refused + 4 * count):
            ctx.set(unit.operation.valid, number < count)
            ctx.set(unit.operation.payload, simd.fields(SimdOperation(opcode=Op.ZERO, write=number)))
            ctx.set(write.request.ready, cycle >= refused)
            ctx.set(write.written, written)
            number += ctx.get(unit.operation.ready)
            written = ctx.get(write.request.valid) and cycle >= refused
            if written:
                asked.append(ctx.get(write.request.payload.address))
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert asked == [*range(count)]
