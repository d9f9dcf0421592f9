# SPDX-License-Identifier: Apache-2.0
"""MatMul's control against its definition: what enters the array, what leaves it for the accumulators, and when."""

from __future__ import annotations

from collections import deque
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest

from weft.hw.array.mat_mul_unit import MatMulUnit
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import (
    ACCUMULATE_DATA_LATENCY,
    LOCAL_READ_LATENCY,
    STARVATION_LIMIT,
    array_latency,
    bias_interval,
)
from weft.hw.contract.units import depths
from weft.hw.parts.operations import turns_layout
from weft.hw.parts.ports import partial_sum_width
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Model, Pulses, ReadServer, Source
from weft.tb.bench.block_ports import Ports, to_bits
from weft.tb.random.random_operations import random_tile


class Array(Model):
    """Stands for the systolic array and the accumulators: what comes out tells which vector went in, in time."""

    def __init__(self, arch: Arch) -> None:
        self.latency = array_latency(arch) - ACCUMULATE_DATA_LATENCY
        self.width = partial_sum_width(arch)
        self.lanes = arch.array_size
        self.given: list[tuple[int, list[int], int, int, int]] = []
        """(cycle, vector, swap, enter, input shift)"""
        self.written: list[tuple[int, dict[str, Any]]] = []
        self.rows: list[list[int]] = []
        self._under_way: deque[int | None] = deque([None] * self.latency)
        self._late: deque[int] = deque([-3] * ACCUMULATE_DATA_LATENCY)

    def result(self, number: int) -> list[int]:
        """Of the vector given as ``number``; any row that tells vectors apart."""
        return [(number * 7 + lane) * (-1) ** (number + lane) for lane in range(self.lanes)]

    def drive(self, ports: Ports) -> None:
        number = self._under_way.popleft()
        self._under_way.append(None)
        ports["result_coming"] = number is not None
        self._late.append(-3 if number is None else number)
        ports.put("result", self.result(self._late.popleft()))
        ports["accumulator_write.request.ready"] = 1

    def watch(self, ports: Ports) -> None:
        if ports["activation_valid"]:
            self._under_way[-1] = len(self.given)
            self.given.append((ports.cycle, ports.get("activation"),
                               *(ports[name] for name in ("swap", "rescale_bias", "input_shift"))))
        else:
            assert not ports["swap"] and not ports["rescale_bias"]
        if ports["accumulator_write.request.valid"]:
            self.written.append((ports.cycle, ports.get("accumulator_write.request.payload")))
        if any(ports.cycle == cycle + ACCUMULATE_DATA_LATENCY for cycle, _ in self.written[-4:]):
            self.rows.append(ports.get("accumulator_write.data"))


class Loads(Model):
    """A LoadWeight unit: the loads of each swap are done when the swap before it was, ``delay`` cycles apart at most.

    ``groups``: how many loads each swap waits for beyond those of the swaps before it."""

    def __init__(self, groups: list[int], rng: Random, delay: int) -> None:
        self.groups, self.rng, self.delay = groups, rng, delay
        self.done: list[int] = []
        """Cycles of those so far."""
        self.swaps = 0
        self._next = 0

    def drive(self, ports: Ports) -> None:
        due = len(self.done) < sum(self.groups[:self.swaps + 1])
        ports["loaded"] = due and ports.cycle >= self._next
        if ports["loaded"]:
            self.done.append(ports.cycle)
            self._next = ports.cycle + 1 + self.rng.randrange(self.delay)

    def watch(self, ports: Ports) -> None:
        self.swaps += bool(ports["swapped"])


class Ended(Pulses):
    """``done`` pulses, until there are ``count``."""

    def __init__(self, count: int) -> None:
        super().__init__("done")
        self.count = count

    @property
    def finished(self) -> bool:
        return len(self.cycles) >= self.count


def machine(size: int, **keys: object) -> Arch:
    return Arch.load("tiny").replace(array_size=size, local_depth=41, accumulator_depth=23, **keys)


def random_operation(rng: Random, arch: Arch) -> dict[str, Any]:
    tile = random_tile(rng, 7, 3, 4, local=arch.local_depth, accumulator=arch.accumulator_depth)
    return {**tile, "accumulate": rng.randrange(2), "zeroes": rng.random() < 0.2, "swap": rng.randrange(2), "loads": 0,
            "input_shift": rng.randrange(arch.accumulator_bits)}


def in_turns(rng: Random, arch: Arch, operations: list[dict[str, Any]]) -> list[int]:
    """Makes operations that swap wait for loads, and says how many more each. Of those that are missing when an
    operation is issued no more are outstanding than a machine allows."""
    groups, width = [], turns_layout(arch)["loads"].width
    for operation in operations:
        if operation["swap"]:
            groups.append(rng.randint(1, depths(arch, "load_weight").outstanding))
        operation["loads"] = sum(groups) % (1 << width)
    return groups


def run(arch: Arch, operations: list[dict[str, Any]], rng: Random, ask: float, serve: float,
        delay: int = 0) -> tuple[Source, Array]:
    groups = in_turns(rng, arch, operations) if delay else []
    number, dut = arch.number, MatMulUnit(arch)
    rows = [[rng.randint(number.minimum, number.maximum) for _ in range(arch.array_size)]
            for _ in range(arch.local_depth)]
    source = Source("operation", [to_bits(dut.operation.payload.shape(), each) for each in operations], rng, ask)
    raw = [to_bits(dut.activation.shape(), row) for row in rows]
    memory = ReadServer("local_read", raw, LOCAL_READ_LATENCY, rng, serve)
    array, swapped, done = Array(arch), Pulses("swapped"), Ended(len(operations))
    loads = Loads(groups, rng, max(delay, 1))
    simulate(dut, source, memory, array, swapped, done, loads)

    def walks(operation: dict[str, Any]) -> list[tuple[int, int]]:
        return list(zip(Walker.reference(operation, "local"), Walker.reference(operation, "accumulator"), strict=True))

    steps = [(operation, local, far, k) for operation in operations for k, (local, far) in enumerate(walks(operation))]
    zero = [0] * arch.array_size
    before = [None, *(operation["input_shift"] for operation, *_ in steps)]
    enters = [k == 0 and bool(operation["swap"] or operation["input_shift"] != (shift or 0))
              for (operation, _, _, k), shift in zip(steps, before, strict=False)]
    assert [given[1:] for given in array.given] == [
        (zero if operation["zeroes"] else rows[local], operation["swap"] and k == 0, enter, operation["input_shift"])
        for (operation, local, _, k), enter in zip(steps, enters, strict=True)]
    entered = [given[0] for given, enter in zip(array.given, enters, strict=True) if enter]
    assert all(later - earlier >= bias_interval(arch) for earlier, later in pairwise(entered))
    addresses = [local for operation, local, _, _ in steps if not operation["zeroes"]]
    assert [address for _, address in memory.requests] == addresses
    cycles = [given[0] for given in array.given]
    read = [cycle for cycle, (operation, *_) in zip(cycles, steps, strict=True) if not operation["zeroes"]]
    assert read == [cycle + LOCAL_READ_LATENCY for cycle, _ in memory.requests]
    assert array.written == [
        (cycle + array.latency, {"address": far, "accumulate": operation["accumulate"]})
        for index, (cycle, (operation, _, far, _)) in enumerate(zip(cycles, steps, strict=True))]
    assert array.rows == [array.result(index) for index in range(len(array.rows))]
    assert len(array.rows) >= len(steps) - ACCUMULATE_DATA_LATENCY
    swaps = [cycle - LOCAL_READ_LATENCY for cycle, (operation, _, _, k) in zip(cycles, steps, strict=True)
             if k == 0 and operation["swap"]]
    assert swapped.cycles == swaps, "swapped comes with the request of the first vector"
    assert all(cycle > loads.done[needed - 1] for cycle, needed in zip(swaps, accumulate(groups), strict=False))
    counts = [(operation["size_m1"] + 1) * (operation["rows_m1"] + 1) for operation in operations]
    assert done.cycles == [array.written[sum(counts[:k + 1]) - 1][0] for k in range(len(counts))]
    return source, array


@pytest.mark.parametrize(("ask", "serve"), ((1, 1), (0.4, 1), (1, 0.4), (0.6, 0.7)))
@pytest.mark.parametrize("size", (2, 3, 8))
def test_every_vector_meets_the_array_and_its_address(size: int, ask: float, serve: float) -> None:
    rng, arch = Random(41 + size), machine(size)
    run(arch, [random_operation(rng, arch) for _ in range(18)], rng, ask, serve)


@pytest.mark.parametrize(("ask", "serve", "delay"), ((1, 1, 1), (1, 1, 25), (0.5, 0.6, 9)))
def test_new_weights_are_waited_for(ask: float, serve: float, delay: int) -> None:
    for keys in ({}, {"deep_queues": 1}):
        rng, arch = Random(45 + delay), machine(3, **keys)
        run(arch, [random_operation(rng, arch) for _ in range(30)], rng, ask, serve, delay)


def test_a_swap_follows_in_the_cycle_behind_the_last_load() -> None:
    rng, arch = Random(46), machine(2)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    single = {"size_m1": 0, "rows_m1": 0, "swap": 1, "zeroes": 0, "accumulate": 1, "input_shift": 1,
              "local": walk, "accumulator": walk}
    dut, loads = MatMulUnit(arch), Loads([1] * 9, rng, 12)
    operations = [{**single, "loads": k % 4} for k in range(1, 10)]
    source = Source("operation", [to_bits(dut.operation.payload.shape(), each) for each in operations], rng, 1)
    memory, swapped = ReadServer("local_read", [0] * 41, LOCAL_READ_LATENCY, rng), Pulses("swapped")
    simulate(dut, source, memory, Array(arch), swapped, Ended(9), loads)
    apart = [swap - load for swap, load in zip(swapped.cycles[1:], loads.done[1:], strict=True)]
    assert apart.count(1) > 3, "the others wait for their bias to enter"
    assert set(apart) <= set(range(1, bias_interval(arch) + 1))


class Contention(Model):
    """Says in which cycles a memory keeps another client waiting, and notes those in which nothing is asked for."""

    def __init__(self, contended: list[int]) -> None:
        self.contended, self.gaps = contended, list[int]()

    def drive(self, ports: Ports) -> None:
        ports["contended"] = ports.cycle < len(self.contended) and self.contended[ports.cycle]

    def watch(self, ports: Ports) -> None:
        if not ports["local_read.request.valid"]:
            self.gaps.append(ports.cycle)


@pytest.mark.parametrize(("pattern", "gaps"), [
    ([0] * 10 + [*[1] * (STARVATION_LIMIT - 1), 0] * 2 + [1] * STARVATION_LIMIT + [0], [0]),
    ([0] * 10 + [1] * (3 * (STARVATION_LIMIT + 1) + 3), [-2 * STARVATION_LIMIT - 5, -STARVATION_LIMIT - 4, -3])],
    ids=["in a row", "without an end"])
def test_a_gap_comes_after_so_many_contended_cycles_in_a_row(pattern: list[int], gaps: list[int]) -> None:
    """``gaps``: after the pattern's end. A gap is of one cycle, also where a memory still keeps somebody waiting."""
    arch = machine(2)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    long = {"size_m1": 15, "rows_m1": 7, "swap": 0, "loads": 0, "zeroes": 0, "accumulate": 1, "input_shift": 0,
            "local": walk, "accumulator": walk}
    dut = MatMulUnit(arch)
    source = Source("operation", [to_bits(dut.operation.payload.shape(), long)], Random(0), 1)
    memory, found = ReadServer("local_read", [0] * 41, LOCAL_READ_LATENCY, Random(0)), Contention(pattern)
    simulate(dut, source, memory, Array(arch), Ended(1), found)
    asked = [cycle for cycle, _ in memory.requests]
    assert [gap - len(pattern) for gap in found.gaps if asked[0] < gap < asked[-1]] == gaps
    assert asked[-1] - asked[0] == 127 + len(gaps), "a vector a cycle but for that"


def test_every_step_machine() -> None:
    rng, arch = Random(42), machine(3, mac_rounding="every_step")
    run(arch, [random_operation(rng, arch) for _ in range(10)], rng, 0.8, 0.8)


def test_one_vector_a_cycle_operation_after_operation() -> None:
    rng, arch = Random(43), machine(3)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    single = {"size_m1": 0, "rows_m1": 0, "swap": 1, "loads": 0, "zeroes": 0, "accumulate": 1, "input_shift": 1,
              "local": walk, "accumulator": walk}
    operations = [*({**random_operation(rng, arch), "swap": 0, "input_shift": 1} for _ in range(15)),
                  *[{**single, "swap": 0}] * 6]
    source, array = run(arch, operations, rng, 1, 1)
    first = source.taken[0] + Walker.LATENCY + LOCAL_READ_LATENCY
    assert [cycle for cycle, *_ in array.given] == list(range(first, first + len(array.given)))


@pytest.mark.parametrize("change", ("swap", "input_shift"))
def test_the_bias_enters_every_bias_interval_and_no_later(change: str) -> None:
    """Operations of one vector, each with other weights or another shift: as fast as one unit enters the bias."""
    rng, arch = Random(44), machine(5)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    single = {"size_m1": 0, "rows_m1": 0, "swap": 0, "loads": 0, "zeroes": 0, "accumulate": 1, "input_shift": 1,
              "local": walk, "accumulator": walk}
    values = [1] * 9 if change == "swap" else [1, 0] * 4 + [1]
    _, array = run(arch, [{**single, change: value} for value in values], rng, 1, 1)
    cycles = [cycle for cycle, *_ in array.given]
    assert [later - earlier for earlier, later in pairwise(cycles)] == [bias_interval(arch)] * 8
