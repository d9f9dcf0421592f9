# SPDX-License-Identifier: Apache-2.0
"""DataMove between local memory and accumulators against the golden machine's arithmetic."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import pytest

from weft.hw.contract import numerics
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import EVERY_STEP
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register
from weft.hw.contract.timing import (
    ACCUMULATE_DATA_LATENCY,
    ACCUMULATOR_READ_LATENCY,
    INPUT_RESCALE_LATENCY,
    LOCAL_READ_LATENCY,
    output_latency,
)
from weft.hw.memory.move_in import MoveInUnit
from weft.hw.memory.move_out import MoveOutUnit
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.block_models import Model, Pulses, ReadServer, Sink, Source
from weft.tb.bench.block_ports import Ports, from_bits, to_bits
from weft.tb.bench.on_accumulators import OnAccumulators
from weft.tb.random.random_operations import random_tile

MACHINES = {
    "2": Arch.load("tiny"),
    "3": Arch.load("tiny").replace(array_size=3, data_type="FP8BP4", local_depth=29, accumulator_depth=21),
    "8": Arch.load("tiny").replace(array_size=8, data_type="FP18BP10"),
    "every_step": Arch.load("tiny").replace(array_size=3, mac_rounding=EVERY_STEP),
    "maximum": Arch.load("tiny").replace(array_size=3, output_maximum=1),
    "slope": Arch.load("tiny").replace(array_size=3, data_type="FP12BP6", output_slope=1),
    "functions": Arch.load("tiny").replace(array_size=2, data_type="FP18BP10", output_maximum=1, output_slope=1),
}
OUTWARD, INWARD = MoveOutUnit, MoveInUnit


def scalars(rng: Random, width: int, count: int) -> list[int]:
    low, high = numerics.minimum(width), numerics.maximum(width)
    return [rng.choice([low, high, rng.randint(low, high), rng.randint(low, high) >> rng.randrange(width)])
            for _ in range(count)]


def any_of(rng: Random, width: int, *, signed: bool) -> int:
    """A number of so many bits, often an end of their range."""
    low, high = (-1 << width - 1, (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return rng.choice([low, high, 0, 1, rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)])


def shift(rng: Random, arch: Arch) -> int:
    fixed = arch.scheme.fixed_shift
    return rng.randrange(arch.accumulator_bits) if fixed is None else fixed


@cache
def build(kind: type, arch: Arch) -> tuple[Any, Bench]:
    dut = OnAccumulators(arch, kind(arch))
    return dut, Bench(dut)


class LateRows(Model):
    """The rows that follow the accumulators' writes."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.due: list[int] = []

    def watch(self, ports: Ports) -> None:
        if self.due and self.due[0] == ports.cycle:
            self.due.pop(0)
            self.rows.append(ports.get("accumulator_write.data"))
        if ports["accumulator_write.request.valid"] and ports["accumulator_write.request.ready"]:
            self.due.append(ports.cycle + ACCUMULATE_DATA_LATENCY)

    @property
    def finished(self) -> bool:
        return not self.due


class Move:
    """One kind of unit, its memory, random operations, and what must be written."""

    def __init__(self, arch: Arch, kind: type, rng: Random) -> None:
        self.arch, self.kind, self.rng = arch, kind, rng
        self.registers = register_table(arch)
        self.dut, self.bench = build(kind, arch)
        outward = kind is OUTWARD
        self.read, self.write = ("accumulator_read", "local_write") if outward else ("local_read", "accumulator_write")
        self.near, self.far = ("accumulator", "local") if outward else ("local", "accumulator")
        depth = arch.accumulator_depth if outward else arch.local_depth
        width = arch.accumulator_bits if outward else arch.number.width
        self.rows = [scalars(rng, width, arch.array_size) for _ in range(depth)]
        self.latency = ACCUMULATOR_READ_LATENCY if outward else LOCAL_READ_LATENCY

    def operation(self, size: int = 9, rows: int = 3) -> dict[str, Any]:
        depths = {"local": self.arch.local_depth, "accumulator": self.arch.accumulator_depth}
        tile = random_tile(self.rng, size, rows, 5, **depths)
        if self.kind is OUTWARD:
            functions = {name: any_of(self.rng, spec.width, signed=spec.signed) for name, spec in (
                ("output_maximum", self.registers.get(Register.OUTPUT_MAXIMUM)),
                ("output_slope", self.registers.get(Register.OUTPUT_SLOPE))) if spec is not None}
            return {**tile, "relu": self.rng.randrange(2), "output_shift": shift(self.rng, self.arch), **functions}
        return {**tile, "accumulate": self.rng.randrange(2), "input_shift": shift(self.rng, self.arch)}

    def value(self, operation: dict[str, Any], scalar: int) -> int:
        if self.kind is INWARD:
            return self.arch.scheme.rescale_input(scalar, operation["input_shift"])
        left = self.arch.scheme.requantize(scalar, operation["output_shift"])
        if not operation["relu"]:
            return left
        if left < 0:
            left = self.arch.number.saturate(round(Fraction(left * operation.get("output_slope", 0), 1 << 14)))
        return min(left, operation.get("output_maximum", left))

    def expected(self, operation: dict[str, Any]) -> list[dict[str, Any]]:
        extra = {} if self.kind is OUTWARD else {"accumulate": operation["accumulate"]}
        return [{"address": far, **extra, "data": [self.value(operation, scalar) for scalar in self.rows[near]]}
                for near, far in zip(Walker.reference(operation, self.near), Walker.reference(operation, self.far),
                                     strict=True)]

    def run(self, operations: list[dict[str, Any]], ask: float, serve: float, take: float) -> tuple[Source, Sink]:
        """Writes must come in order and ``done`` with the last write of each operation."""
        right = [self.expected(operation) for operation in operations]
        layout, rng = self.dut.operation.payload.shape(), self.rng
        source = Source("operation", [to_bits(layout, operation) for operation in operations], rng, ask)
        raw = [to_bits(getattr(self.dut, self.read).response.payload.shape(), row) for row in self.rows]
        sink, done = Sink(f"{self.write}.request", rng, sum(map(len, right)), take), Pulses("done")
        late = [LateRows()] if self.kind is INWARD else []
        self.bench.run(source, ReadServer(self.read, raw, self.latency, rng, serve), *late, sink, done)
        written = getattr(self.dut, self.write).request.payload.shape()
        items = [from_bits(written, item) for item in sink.items]
        if late:
            items = [{**item, "data": row} for item, row in zip(items, late[0].rows, strict=True)]
        assert items == [each for part in right for each in part]
        ends = [sum(len(part) for part in right[:k + 1]) - 1 for k in range(len(right))]
        assert done.cycles == [sink.taken[end] for end in ends]
        return source, sink


@pytest.mark.parametrize(("ask", "serve", "take"), ((1, 1, 0.4), (0.6, 0.7, 0.8)))
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", (OUTWARD, INWARD))
def test_moves_what_the_golden_machine_moves(kind: type, name: str, ask: float, serve: float, take: float) -> None:
    move = Move(MACHINES[name], kind, Random(21))
    move.run([move.operation() for _ in range(10)], ask, serve, take)


@pytest.mark.parametrize("name", ("2", "functions"))
@pytest.mark.parametrize("kind", (OUTWARD, INWARD))
def test_one_vector_a_cycle_operation_after_operation(kind: Any, name: str) -> None:
    move = Move(MACHINES[name], kind, Random(22))
    source, sink = move.run([move.operation() for _ in range(20)], 1, 1, 1)
    more = INPUT_RESCALE_LATENCY if kind is INWARD else output_latency(move.arch)
    first = source.taken[0] + kind.LATENCY + more
    assert sink.taken == list(range(first, first + len(sink.items)))


@pytest.mark.parametrize("kind", (OUTWARD, INWARD))
def test_all_shifts(kind: type) -> None:
    move = Move(MACHINES["3"], kind, Random(23))
    field = "output_shift" if kind is OUTWARD else "input_shift"
    move.run([{**move.operation(4, 1), field: k} for k in range(move.arch.accumulator_bits)], 1, 1, 1)
