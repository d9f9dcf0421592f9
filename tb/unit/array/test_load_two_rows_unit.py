# SPDX-License-Identifier: Apache-2.0
"""LoadWeight with two rows a cycle: the column holds what the definition says after each operation, whatever waits."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

import pytest

from weft.hw.array.load_two_rows_unit import LoadTwoRowsUnit
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY, ROWS_AHEAD, load_weight_cycles, upper_places
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Cycles, Model, Pulses, ReadServer, Source, Turns
from weft.tb.bench.block_ports import Ports, to_bits
from weft.tb.random.random_operations import random_tile

FIRST_LATENCY = 2
"""From an operation taken to its first request: the walker, and a part's FIFO."""

TURN_LATENCY = FIRST_LATENCY + 1
"""To its first rows' turn."""


class Column(Model):
    """The array's column of shadow weights, without waves: ``seen`` is what it holds as each operation's last row is
    in, ``through`` and ``apart`` the cycles in which a row went through both parts, and in which each took its own."""

    def __init__(self, arch: Arch, count: int) -> None:
        self.places, self.count = upper_places(arch), count
        self.column = [[0] * arch.array_size for _ in range(arch.array_size + 1)]
        self.seen: list[list[list[int]]] = []
        self.through: list[int] = []
        self.apart: list[int] = []
        self.busy: list[int] = []
        self._done: list[int] = []
        self._now_busy = False

    def watch(self, ports: Ports) -> None:
        if ports["shift"]:
            upper, lower = self.column[:self.places], self.column[self.places:]
            (self.through if ports["through"] else self.apart).append(ports.cycle)
            enters = upper[-1] if ports["through"] else ports.get("lower_weight")
            self.column = [ports.get("weight"), *upper[:-1], enters, *lower[:-1]]
        self._now_busy = bool(ports["busy"])
        self.busy += [ports.cycle] * self._now_busy
        if ports["done"]:
            self._done.append(ports.cycle)
        if self._done and self._done[0] + LOCAL_READ_LATENCY == ports.cycle:
            self._done.pop(0)
            self.seen.append(self.column)

    @property
    def finished(self) -> bool:
        return len(self.seen) >= self.count and not self._now_busy


def machine(size: int) -> Arch:
    return Arch.load("tiny").replace(array_size=size, local_depth=90, weight_load_rows=2)


def random_operation(rng: Random, arch: Arch) -> dict[str, Any]:
    """Every other one replaces the whole column; ``local.base`` is the last address."""
    operation = random_tile(rng, 2 * arch.array_size, 1, 4, local=arch.local_depth)
    zero_bias, zeroes = rng.randrange(2), rng.random() < 0.2
    walk = operation["local"]
    if rng.random() < 0.5:
        size_m1 = arch.array_size - zero_bias
        most = (arch.local_depth - 1) // max(size_m1, 1)
        stride_log2 = rng.choice([log2 for log2 in range(4) if 1 << log2 <= most])
        base = rng.randrange(arch.local_depth - (size_m1 << stride_log2))
        operation, walk = {**operation, "size_m1": size_m1}, {**walk, "base": base, "stride_log2": stride_log2}
    base = walk["base"] + (operation["size_m1"] << walk["stride_log2"])
    return {**operation, "local": {**walk, "base": base}, "zeroes": zeroes, "zero_bias": zero_bias, "swaps": 0}


def is_whole(arch: Arch, operation: dict[str, Any]) -> bool:
    return operation["size_m1"] + operation["zero_bias"] == arch.array_size


def run(arch: Arch, operations: list[dict[str, Any]], rng: Random, ask: float, serve: tuple[float, float],
        delay: int = 1) -> tuple[Source, Column, list[int]]:
    """``serve``: how often the memory serves the upper part, and the lower one; the cycles of ``done`` last."""
    before = list(accumulate(rng.randrange(2) for _ in operations)) if delay > 1 else [0] * len(operations)
    for operation, swaps in zip(operations, before, strict=True):
        operation["swaps"] = swaps % 2
    number, dut = arch.number, LoadTwoRowsUnit(arch)
    rows = [[rng.randint(number.minimum, number.maximum) for _ in range(arch.array_size)]
            for _ in range(arch.local_depth)]
    raw = [to_bits(dut.weight.shape(), row) for row in rows]
    source = Source("operation", [to_bits(dut.operation.payload.shape(), each) for each in operations], rng, ask)
    upper, lower = (ReadServer(name, raw, LOCAL_READ_LATENCY, rng, rate)
                    for name, rate in zip(("local_read", "lower_read"), serve, strict=True))
    column, done, turns = Column(arch, len(operations)), Pulses("done"), Turns(before, rng, delay)
    simulate(dut, source, upper, lower, column, done, turns)
    assert column.seen == contents(arch, operations, rows)
    asked = sorted(address for server in (upper, lower) for _, address in server.requests)
    assert asked == sorted(address for operation in operations if not operation["zeroes"]
                           for address in Walker.reference(operation, "local", descending=True)), "each once, no other"
    shifts = [*column.through, *column.apart]
    wave = 2 * arch.array_size - 2  # from a shift to the last place's
    assert column.busy == sorted({cycle + k for cycle in shifts for k in range(1 - LOCAL_READ_LATENCY, wave + 1)})
    ends = [0, *done.cycles]
    for index, swaps in enumerate(before):
        first = min(cycle for cycle in shifts if cycle - LOCAL_READ_LATENCY > ends[index] or not index)
        assert not swaps or first - LOCAL_READ_LATENCY > turns.swaps[swaps - 1], "after the weights were taken over"
    return source, column, done.cycles


def contents(arch: Arch, operations: list[dict[str, Any]], rows: list[list[int]]) -> list[list[list[int]]]:
    """What the column holds after each operation, by the definition: row by row from the top, last address first."""
    column, found = [[0] * arch.array_size for _ in range(arch.array_size + 1)], []
    for operation in operations:
        zero = [0] * arch.array_size
        entering = [zero if operation["zeroes"] else rows[address]
                    for address in Walker.reference(operation, "local", descending=True)]
        for row in [*entering, *[zero] * operation["zero_bias"]]:
            column = [row, *column[:-1]]
        found.append(column)
    return found


@pytest.mark.parametrize(("ask", "serve"), ((1, (1, 1)), (0.4, (1, 1)), (1, (0.3, 0.9)), (1, (0.9, 0.3)),
                                            (0.6, (0.6, 0.7))))
@pytest.mark.parametrize("size", (2, 3, 4, 8))
def test_the_column_holds_what_the_definition_says(size: int, ask: float, serve: tuple[float, float]) -> None:
    rng, arch = Random(41 + size), machine(size)
    operations = [random_operation(rng, arch) for _ in range(40)]
    assert {is_whole(arch, operation) for operation in operations} == {False, True}
    _, column, _ = run(arch, operations, rng, ask, serve)
    assert column.through and column.apart


@pytest.mark.parametrize(("ask", "serve", "delay"), ((1, (1, 1), 2), (1, (1, 0.5), 30), (0.5, (0.4, 0.8), 12)))
def test_a_load_waits_until_the_weights_before_it_are_taken_over(ask: float, serve: tuple[float, float],
                                                                 delay: int) -> None:
    rng, arch = Random(43 + delay), machine(3)
    run(arch, [random_operation(rng, arch) for _ in range(40)], rng, ask, serve, delay)


@pytest.mark.parametrize("zero_bias", (0, 1))
@pytest.mark.parametrize("size", (2, 3, 8))
def test_whole_loads_take_two_rows_a_cycle_load_after_load(size: int, zero_bias: int) -> None:
    arch, count = machine(size), 6
    loads = [{"size_m1": size - zero_bias, "rows_m1": 0, "zeroes": 0, "zero_bias": zero_bias, "swaps": 0,
              "local": {"base": size + number, "stride_log2": 0, "pitch": 0}} for number in range(count)]
    source, _, done = run(arch, loads, Random(5), 1, (1, 1))
    assert done == [source.taken[0] + TURN_LATENCY - 1 + (number + 1) * upper_places(arch) for number in range(count)]
    assert upper_places(arch) == -(-(size + 1) // 2)


def test_other_loads_take_a_row_a_cycle() -> None:
    arch = machine(4)
    loads = [{"size_m1": 2, "rows_m1": 0, "zeroes": 0, "zero_bias": 1, "swaps": 0,
              "local": {"base": 5, "stride_log2": 0, "pitch": 0}} for _ in range(4)]
    source, column, _ = run(arch, loads, Random(6), 1, (1, 1))
    first = source.taken[0] + TURN_LATENCY + LOCAL_READ_LATENCY
    assert column.through == list(range(first, first + 16)) and not column.apart


@pytest.mark.parametrize("rows", (1, 4, 5, 6, 10))
def test_a_load_takes_as_many_cycles_as_is_said(rows: int) -> None:
    """Five rows are the whole column; more of them go through both parts, one a cycle."""
    arch, count = machine(4), 3
    loads = [{"size_m1": rows - 1, "rows_m1": 0, "zeroes": 0, "zero_bias": 0, "swaps": 0,
              "local": {"base": 40, "stride_log2": 0, "pitch": 0}} for _ in range(count)]
    source, _, done = run(arch, loads, Random(7), 1, (1, 1))
    assert done == [source.taken[0] + TURN_LATENCY - 1 + (number + 1) * load_weight_cycles(arch, rows)
                    for number in range(count)]


def test_parts_go_at_their_own_pace() -> None:
    """The upper part, that never waits, is no slower for a lower one that is refused for three cycles."""
    arch, dut = machine(8), LoadTwoRowsUnit(machine(8))
    taken: tuple[list[int], list[int]] = [], []

    class Memory(Cycles):
        def drive(self, ports: Ports) -> None:
            ports["local_read.request.ready"] = 1
            ports["lower_read.request.ready"] = ports.cycle not in (4, 5, 6)

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            for name, cycles in zip(("local_read", "lower_read"), taken, strict=True):
                if ports[f"{name}.request.valid"] and ports[f"{name}.request.ready"]:
                    cycles.append(ports.cycle)

    load = {"size_m1": 8, "rows_m1": 0, "zeroes": 0, "zero_bias": 0, "swaps": 0,
            "local": {"base": 20, "stride_log2": 0, "pitch": 0}}
    source = Source("operation", [to_bits(dut.operation.payload.shape(), load)], Random(0))
    simulate(dut, source, Memory(30))
    start = source.taken[0] + FIRST_LATENCY
    assert taken[0] == [start + row for row in range(upper_places(arch))]
    assert taken[1] == [start + 1 + row + 3 * (start + 1 + row >= 4) for row in range(4)]


def test_rows_are_read_ahead_of_their_turn_as_far_as_there_is_room() -> None:
    """While a load waits for weights to be taken over: rows of it and of those behind it, ROWS_AHEAD in all."""
    arch, dut, asked = machine(8), LoadTwoRowsUnit(machine(8)), []

    class Memory(Cycles):
        def drive(self, ports: Ports) -> None:
            ports["local_read.request.ready"] = ports["lower_read.request.ready"] = 1

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            asked.append(int(ports["local_read.request.valid"]))
            assert not ports["shift"]

    load = {"size_m1": 8, "rows_m1": 0, "zeroes": 0, "zero_bias": 0, "swaps": 1,
            "local": {"base": 20, "stride_log2": 0, "pitch": 0}}
    shape = dut.operation.payload.shape()
    simulate(dut, Source("operation", [to_bits(shape, load)] * 9, Random(0)), Memory(80))
    assert sum(asked) == ROWS_AHEAD and upper_places(arch) < ROWS_AHEAD
