# SPDX-License-Identifier: Apache-2.0
"""The SIMD unit's test bench: memories with random stalls, and the comparison with the sequential reference."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.sim import Simulator

from weft.hw.contract import numerics
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY, ACCUMULATOR_READ_LATENCY, LOCAL_READ_LATENCY
from weft.hw.parts.operations import SimdKind
from weft.hw.simd.reference import SimdLoop, SimdOperation, SimdProgram, SimdReference, TableLoad
from weft.hw.simd.simd_unit import SimdUnit
from weft.tb.bench.on_accumulators import OnAccumulators


def machine(**changes) -> Arch:
    return Arch.load("tiny").replace(**{"accumulator_depth": 64, "simd_registers_depth": 3, "data_type": "FP8BP4",
                                        **changes})


def fields(operation: SimdOperation) -> dict:
    """An operation as a queue entry."""
    names = ("opcode", "left", "right", "destination", "accumulate", "hold", "read_stride_log2", "write_stride_log2",
             "input_shift", "output_shift")
    return {"kind": SimdKind.INSTRUCTION, **{name: getattr(operation, name) for name in names},
            "read": operation.read is not None, "read_address": operation.read or 0,
            "write": operation.write is not None, "write_address": operation.write or 0}


def queue_entries(program: SimdProgram) -> list[dict]:
    entries = []
    for item in program:
        if isinstance(item, SimdLoop):
            entries.append({"kind": SimdKind.LOOP, "iterations_m1": item.iterations - 1, "body_m1": len(item.body) - 1})
            entries += [fields(operation) for operation in item.body]
        elif isinstance(item, TableLoad):
            entries.append({"kind": SimdKind.LOAD_LUT, "table": item.table, "local_base": item.base,
                            "local_stride_log2": item.stride_log2})
        else:
            entries.append(fields(item))
    return entries


@dataclass
class Bench:
    """Memories behind the unit's ports; ``stall`` is the chance that a port refuses in a cycle."""

    arch: Arch
    accumulators: np.ndarray
    local: np.ndarray
    stall: float = 0.0
    seed: int = 0
    offered: bool = False
    taken: list[int] = field(default_factory=list)   # cycles in which operations were taken,
    done: list[int] = field(default_factory=list)    # done pulsed,
    reads: list[int] = field(default_factory=list)   # reads were taken, and
    writes: list[int] = field(default_factory=list)  # writes
    late: deque = field(default_factory=deque)       # (due, what to do) when the row of a write is there

    def run(self, program: SimdProgram) -> None:
        """Until everything is done, and some cycles more."""
        self.unit = SimdUnit(self.arch)
        self.dut, entries = OnAccumulators(self.arch, self.unit), deque(queue_entries(program))
        rng, count = np.random.default_rng(self.seed), len(entries)
        ports = [(self.dut.accumulator_read, self.accumulators, ACCUMULATOR_READ_LATENCY, self.reads)]
        if self.arch.lut_count:
            ports.append((self.dut.local_read, self.local, LOCAL_READ_LATENCY, []))
        pipes = [deque([None] * latency) for _, _, latency, _ in ports]

        async def bench(ctx) -> None:
            cycle, limit = 0, 3000 + 200 * count
            after = 20
            while after:
                after -= len(self.done) >= count
                assert cycle < limit, f"hangs after {len(self.done)} of {count} operations"
                self._drive(ctx, entries, rng, ports, pipes)
                self._operation(ctx, entries, cycle)
                for (port, memory, _, log), pipe in zip(ports, pipes, strict=True):
                    self._read_port(ctx, port, memory, pipe, log, cycle)
                self._write_port(ctx, cycle)
                if ctx.get(self.dut.done):
                    self.done.append(cycle)
                await ctx.tick()
                cycle += 1
            assert len(self.done) == count, "done too often"

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()

    def _drive(self, ctx, entries: deque, rng: np.random.Generator, ports: list, pipes: list) -> None:
        """All inputs of a cycle, before any output is looked at. Between responses the ports show rubbish."""
        # Once offered, an operation stays until it is taken.
        self.offered = bool(entries) and (self.offered or rng.random() >= self.stall)
        ctx.set(self.dut.operation.valid, int(self.offered))
        if self.offered:
            ctx.set(self.dut.operation.payload, entries[0])
        for (port, memory, _, _), pipe in zip(ports, pipes, strict=True):
            response = pipe.popleft()
            ctx.set(port.response.valid, int(response is not None))
            rubbish = rng.integers(-8, 8, memory.shape[1])
            ctx.set(port.response.payload, (rubbish if response is None else response).tolist())
            ctx.set(port.request.ready, int(rng.random() >= self.stall))
        ctx.set(self.dut.accumulator_write.request.ready, int(rng.random() >= self.stall))

    def _operation(self, ctx, entries: deque, cycle: int) -> None:
        if ctx.get(self.dut.operation.valid) and ctx.get(self.dut.operation.ready):
            entries.popleft()
            self.offered = False
            self.taken.append(cycle)

    def _read_port(self, ctx, port, memory, pipe: deque, log: list, cycle: int) -> None:
        """Reads see the writes of earlier cycles, so they look when the rows of these are there."""
        if ctx.get(port.request.valid) and ctx.get(port.request.ready):
            row, address = np.zeros_like(memory[0]), ctx.get(port.request.payload)
            self.late.append((cycle + ACCUMULATE_DATA_LATENCY, lambda: np.copyto(row, memory[address])))
            pipe.append(row)
            log.append(cycle)
        else:
            pipe.append(None)

    def _write_port(self, ctx, cycle: int) -> None:
        """What is due happens in the order in which it was asked for: of one cycle first the reads."""
        write = self.dut.accumulator_write
        while self.late and self.late[0][0] == cycle:
            self.late.popleft()[1]()
        if ctx.get(write.request.valid) and ctx.get(write.request.ready):
            address, adds = ctx.get(write.request.payload.address), ctx.get(write.request.payload.accumulate)

            def put() -> None:
                row = np.array([ctx.get(write.data[lane]) for lane in range(self.arch.lane_count)])
                old = self.accumulators[address] if adds else np.zeros_like(row)
                self.accumulators[address] = numerics.saturate(old + row, self.arch.accumulator_bits)

            self.late.append((cycle + ACCUMULATE_DATA_LATENCY, put))
            self.writes.append(cycle)


def one_configuration(item: SimdOperation | SimdLoop | TableLoad) -> SimdOperation | SimdLoop | TableLoad:
    """A loop's instructions with one pair of shifts: nothing can be configured within a loop."""
    if not isinstance(item, SimdLoop):
        return item
    last = item.body[-1]
    return replace(item, body=[replace(operation, input_shift=last.input_shift, output_shift=last.output_shift)
                               for operation in item.body])


def check(arch: Arch, program: SimdProgram, *, stall: float = 0.0, seed: int = 0) -> Bench:
    """Run, and compare all accumulators; registers are made visible by writing each to an accumulator at the end."""
    rng = np.random.default_rng(seed)
    ends = numerics.minimum(arch.accumulator_bits), numerics.maximum(arch.accumulator_bits)
    shape = (arch.accumulator_depth, arch.lane_count)
    accumulators = rng.integers(ends[0], ends[1] + 1, shape) >> rng.integers(0, arch.accumulator_bits, shape)
    local = rng.integers(arch.number.minimum, arch.number.maximum + 1, (arch.local_depth, arch.lane_count))
    program = [*map(one_configuration, program), *(SimdOperation(opcode=Op.MOVE, left=register, write=register)
                           for register in range(1, arch.simd_registers_depth + 1))]
    reference = SimdReference(arch, accumulators, local)
    reference.execute(program)
    bench = Bench(arch, accumulators, local, stall, seed)
    bench.run(program)
    wrong = np.argwhere(bench.accumulators != reference.accumulators)
    assert not len(wrong), f"address, lane {wrong[0]}: {bench.accumulators[wrong[0][0]]}, " \
                           f"reference {reference.accumulators[wrong[0][0]]}"
    return bench


def random_operation(arch: Arch, rng: np.random.Generator, addresses: int) -> SimdOperation:
    """Few addresses, so that operations depend on each other often."""
    opcodes = [opcode for opcode in Op if opcode != Op.LOOKUP or arch.lut_count]
    opcode = Op(rng.choice(opcodes))
    depth = arch.simd_registers_depth
    left, right = (int(rng.integers(depth + 1)) for _ in range(2))
    destination = int(rng.integers(depth + 1 - (arch.lut_count if opcode == Op.LOOKUP else 0)))
    read, write = (int(rng.integers(addresses)) if rng.random() < 0.6 else None for _ in range(2))
    point = arch.number.point
    enter, leave = (point, point) if arch.scheme.fixed_shift is not None else (
        int(rng.choice([point, 0, int(rng.integers(arch.accumulator_bits))])) for _ in range(2))
    return SimdOperation(opcode=opcode, left=left, right=right, destination=destination, read=read, write=write,
                         accumulate=bool(rng.random() < 0.4), input_shift=enter, output_shift=leave)


@pytest.fixture(scope="session")
def simd() -> SimpleNamespace:
    """What the tests of this folder share."""
    return SimpleNamespace(machine=machine, check=check, fields=fields, random_operation=random_operation)
