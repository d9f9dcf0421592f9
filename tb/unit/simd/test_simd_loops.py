# SPDX-License-Identifier: Apache-2.0
"""Loops and lookups of the SIMD unit, in every mixture with plain instructions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.contract.timing import SIMD_SLOTS
from weft.hw.parts.operations import SimdKind
from weft.hw.simd.loop_order import LoopOrder
from weft.hw.simd.reference import SimdLoop, SimdOperation, TableLoad
from weft.hw.simd.sequencer import Sequencer


def random_body(simd: SimpleNamespace, arch: Arch, rng: np.random.Generator, iterations: int,
                length: int) -> list[SimdOperation]:
    """Instructions whose addresses stay inside the accumulators for all iterations."""
    body = []
    bases = rng.integers(0, arch.accumulator_depth, 2)
    for _ in range(length):
        operation = simd.random_operation(arch, rng, 1)
        strides = [int(rng.integers(0, 2)) for _ in range(2)]
        room = [arch.accumulator_depth - ((iterations - 1) << stride) for stride in strides]
        read, write = (None if address is None else int(rng.choice(bases) if rng.random() < 0.7 else rng.integers(64))
                       % limit for address, limit in zip((operation.read, operation.write), room, strict=True))
        body.append(replace(operation, read=read, write=write, read_stride_log2=strides[0],
                            write_stride_log2=strides[1], hold=bool(rng.random() < 0.2)))
    return body


@pytest.mark.wide_cases("*-0.0")
@pytest.mark.parametrize("stall", (0.0, 0.4))
@pytest.mark.parametrize("changes", ({}, {"mac_rounding": "every_step"}, {"accumulator_depth": 50}), ids=str)
def test_random_loops_mean_their_iterations(simd: SimpleNamespace, changes: dict, stall: float) -> None:
    """Bodies with overlapping, identical and disjoint addresses, between plain instructions."""
    arch, rng, program = simd.machine(**changes), np.random.default_rng(seed=21), []
    for _ in range(24):
        iterations, length = int(rng.choice([1, 2, 3, 10, 20])), int(rng.integers(1, 5))
        program.append(SimdLoop(iterations, random_body(simd, arch, rng, iterations, length)))
        program.append(simd.random_operation(arch, rng, 8))
    simd.check(arch, program, stall=stall, seed=4)


def test_loop_longer_than_the_slots(simd: SimpleNamespace) -> None:
    """Blocks of iterations follow each other, the last one shorter; private registers in each."""
    arch = simd.machine(accumulator_depth=256)
    body = [SimdOperation(opcode=Op.MULTIPLY, read=0, left=0, right=1, destination=2, output_shift=4),
            SimdOperation(opcode=Op.ADD, read=100, left=0, right=2, destination=1, hold=True, output_shift=4),
            SimdOperation(opcode=Op.MAX, left=1, right=2, write=128, input_shift=4)]
    setup = SimdOperation(opcode=Op.MOVE, read=3, destination=1, output_shift=6)
    lengths = (2 * SIMD_SLOTS + 5, SIMD_SLOTS - 1, SIMD_SLOTS)
    simd.check(arch, [setup, *(SimdLoop(iterations, body) for iterations in lengths)])


BLOCK = SIMD_SLOTS - 1
"""Iterations that run at once."""


@pytest.mark.wide_cases("3")
@pytest.mark.parametrize("blocks", (1, 2, 3))
def test_loops_of_about_a_number_of_whole_blocks(simd: SimpleNamespace, blocks: int) -> None:
    """One iteration less, none and one or two more than fill the slots: where the last blocks are halved and where
    they are not. A register of an iteration's own shows a slot used twice, or the program's slot written."""
    arch = simd.machine(accumulator_depth=256)
    body = [SimdOperation(opcode=Op.ADD, read=0, left=0, right=3, destination=2, output_shift=4),
            SimdOperation(opcode=Op.ADD, left=2, right=3, write=100, input_shift=4)]
    setup = [SimdOperation(opcode=Op.MOVE, read=1, destination=3, output_shift=6),
             SimdOperation(opcode=Op.MOVE, read=2, destination=2, output_shift=6)]
    for iterations in range(blocks * BLOCK - 1, blocks * BLOCK + 3):
        simd.check(arch, [*setup, SimdLoop(iterations, body)])


@pytest.mark.parametrize("iterations", (31, 49, 62))
def test_loop_runs_one_instruction_a_cycle(simd: SimpleNamespace, iterations: int) -> None:
    """A dependent chain over a tile: reads and writes of identical addresses, one micro-operation a cycle."""
    arch = simd.machine(accumulator_depth=64, simd_registers_depth=3)
    chain = [SimdOperation(opcode=Op.MULTIPLY, read=0, right=1, destination=2, output_shift=4),
             SimdOperation(opcode=Op.ADD, left=2, right=3, destination=2),
             SimdOperation(opcode=Op.MAX, left=2, right=1, destination=2),
             SimdOperation(opcode=Op.MIN, left=2, right=3, write=0, input_shift=4)]
    bench = simd.check(arch, [SimdLoop(iterations, chain)])
    total = bench.done[len(chain)] - bench.taken[len(chain)]
    assert total <= iterations * len(chain) + bench.unit.latency + 4


def test_dependent_iterations_run_in_order(simd: SimpleNamespace) -> None:
    """A running sum: iteration k reads what k - 1 wrote."""
    step = SimdOperation(opcode=Op.ADD, read=0, left=0, right=1, write=1, output_shift=4, input_shift=4)
    load = SimdOperation(opcode=Op.MOVE, read=32, destination=1, output_shift=4)
    back = replace(step, write=0)
    simd.check(simd.machine(), [SimdLoop(20, [load, step]), SimdLoop(10, [step]), SimdLoop(10, [back, step])])


def test_loop_equals_its_body_written_out(simd: SimpleNamespace) -> None:
    """Without registers kept over the loop a program may write the body out."""
    arch = simd.machine()
    shifts: dict[str, Any] = {"input_shift": 2, "output_shift": 3}
    body = [SimdOperation(opcode=Op.ABS, read=0, destination=1, read_stride_log2=1, **shifts),
            SimdOperation(opcode=Op.SUBTRACT, left=1, right=1, read=40, write=32, accumulate=True, **shifts)]
    written_out = [replace(operation, read=None if operation.read is None else
                           operation.read + (k << operation.read_stride_log2),
                           write=None if operation.write is None else operation.write + k)
                   for k in range(12) for operation in body]
    keep = SimdOperation(opcode=Op.ZERO, destination=1)
    loop, plain = simd.check(arch, [SimdLoop(12, body), keep]), simd.check(arch, [*written_out, keep])
    assert np.array_equal(loop.accumulators, plain.accumulators)


def test_done_of_a_loop_comes_when_all_is_written(simd: SimpleNamespace) -> None:
    body = [SimdOperation(read=0, write=32), SimdOperation(opcode=Op.INCREMENT, destination=1)]
    bench = simd.check(simd.machine(), [SimdOperation(read=1, write=2), SimdLoop(20, body)], stall=0.5, seed=2)
    assert bench.done[3] >= bench.writes[20]
    assert len(bench.done) == 4 + 3


def test_loop_order_matches_reference(simd: SimpleNamespace) -> None:
    """Random bodies: in order exactly where a write overlaps another instruction's access without being identical.

    So do all pairs of a read, which may hold, and a write. Each access takes a cycle for each one before it."""
    arch, rng = simd.machine(), np.random.default_rng(seed=31)
    bodies = [(iterations, random_body(simd, arch, rng, iterations, int(rng.integers(1, 6))))
              for iterations in rng.integers(2, 20, 150).tolist()]
    for hold, read_stride, write_stride, first in product((False, True), (0, 1), (0, 1), (8, 9)):
        pair = [SimdOperation(read=8, hold=hold, read_stride_log2=read_stride),
                SimdOperation(write=first, write_stride_log2=write_stride)]
        bodies += [(3, pair), (3, pair[::-1])]
    dut, verdicts = LoopOrder(arch), []

    async def bench(ctx) -> None:
        for iterations, body in bodies:
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            ctx.set(dut.iterations_m1, iterations - 1)
            earlier = 0
            for operation in body:
                ctx.set(dut.access, simd.fields(operation))
                ctx.set(dut.access_valid, int(operation.read is not None or operation.write is not None))
                await ctx.tick()
                ctx.set(dut.access_valid, 0)
                if operation.read is not None or operation.write is not None:
                    cycles = 1
                    while not ctx.get(dut.ready):
                        await ctx.tick()
                        cycles += 1
                    assert cycles == max(earlier, 1)
                    earlier += 1
            got = ctx.get(dut.in_order)
            verdicts.append(got)
            ks = range(iterations)
            addresses = [([] if o.read is None else [o.read + (0 if o.hold else k << o.read_stride_log2) for k in ks],
                          [] if o.write is None else [o.write + (k << o.write_stride_log2) for k in ks]) for o in body]
            assert got == LoopOrder.reference(addresses), body

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert 0 < sum(verdicts) < len(verdicts)


@pytest.mark.parametrize("stall", (0.0, 0.5))
def test_lookups_and_table_loads(simd: SimpleNamespace, stall: float) -> None:
    """Tables loaded between lookups, plain and in loops; results in several registers, some without a difference."""
    arch = simd.machine(lut_count=2, lut_depth=6, local_depth=64, simd_registers_depth=4)
    rng = np.random.default_rng(seed=41)
    program: list[SimdOperation | SimdLoop | TableLoad] = []
    for _ in range(4):
        program += [TableLoad(int(rng.integers(3)), int(rng.integers(40)), int(rng.integers(3))) for _ in range(2)]
        program += [simd.random_operation(arch, rng, 6) for _ in range(12)]
        lookup = SimdOperation(opcode=Op.LOOKUP, read=int(rng.integers(20)), destination=int(rng.integers(3)),
                               output_shift=6)
        line = [lookup, SimdOperation(opcode=Op.MULTIPLY, left=1, right=2, destination=1),
                SimdOperation(opcode=Op.ADD, left=1, right=3, write=30, input_shift=4)]
        program += [*line, SimdLoop(int(rng.integers(2, 30)), line), lookup]
    simd.check(arch, program, stall=stall, seed=6)


def test_a_table_is_filled_when_nothing_is_left_behind_the_sequencer(simd: SimpleNamespace) -> None:
    """With a register slice what has just left it is nowhere else yet, so that all else seems to rest."""
    dut = Sequencer(simd.machine(lut_count=1, lut_depth=6))
    found: list[tuple[int, int, int]] = []

    async def bench(ctx) -> None:
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.payload, simd.fields(SimdOperation(read=1, write=2)))
        await ctx.tick()
        ctx.set(dut.i.payload, {"kind": SimdKind.LOAD_LUT, "table": 1})
        for ready, drained in ((0, 1), (1, 1), (0, 0), (0, 1), (0, 1)):
            ctx.set(dut.o.ready, ready)
            ctx.set(dut.drained, drained)
            ctx.set(dut.load.ready, len(found) == 4)
            found.append((ctx.get(dut.o.valid), ctx.get(dut.load.valid), ctx.get(dut.i.ready)))
            await ctx.tick()
        assert ctx.get(dut.o.valid) and ctx.get(dut.o.payload.done)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [(1, 0, 0), (1, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 1)]
