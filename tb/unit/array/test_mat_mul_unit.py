"""MatMul's control against its definition: what enters the array, what leaves it for the accumulators, and when."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from weft.hw.array.mat_mul_unit import MatMulUnit
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY, LOCAL_READ_LATENCY, array_latency, bias_interval
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
        """(cycle, vector, swap, enter, enter shift)"""
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
                               *(ports[name] for name in ("swap", "enter_bias", "enter_shift"))))
        else:
            assert not ports["swap"] and not ports["enter_bias"]
        if ports["accumulator_write.request.valid"]:
            self.written.append((ports.cycle, ports.get("accumulator_write.request.payload")))
        if any(ports.cycle == cycle + ACCUMULATE_DATA_LATENCY for cycle, _ in self.written[-4:]):
            self.rows.append(ports.get("accumulator_write.data"))


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
    return {**tile, "accumulate": rng.randrange(2), "zeroes": rng.random() < 0.2, "swap": rng.randrange(2),
            "enter_shift": rng.randrange(arch.accumulator_bits)}


def run(arch: Arch, operations: list[dict[str, Any]], rng: Random, ask: float, serve: float) -> tuple[Source, Array]:
    number, dut = arch.number, MatMulUnit(arch)
    rows = [[rng.randint(number.minimum, number.maximum) for _ in range(arch.array_size)]
            for _ in range(arch.local_depth)]
    source = Source("operation", [to_bits(dut.operation.payload.shape(), each) for each in operations], rng, ask)
    raw = [to_bits(dut.activation.shape(), row) for row in rows]
    memory = ReadServer("local_read", raw, LOCAL_READ_LATENCY, rng, serve)
    array, swapped, done = Array(arch), Pulses("swapped"), Ended(len(operations))
    simulate(dut, source, memory, array, swapped, done)

    def walks(operation: dict[str, Any]) -> list[tuple[int, int]]:
        return list(zip(Walker.reference(operation, "local"), Walker.reference(operation, "accumulator"), strict=True))

    steps = [(operation, local, far, k) for operation in operations for k, (local, far) in enumerate(walks(operation))]
    zero = [0] * arch.array_size
    before = [None, *(operation["enter_shift"] for operation, *_ in steps)]
    enters = [k == 0 and bool(operation["swap"] or operation["enter_shift"] != (shift or 0))
              for (operation, _, _, k), shift in zip(steps, before, strict=False)]
    assert [given[1:] for given in array.given] == [
        (zero if operation["zeroes"] else rows[local], operation["swap"] and k == 0, enter, operation["enter_shift"])
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
    counts = [(operation["size_m1"] + 1) * (operation["rows_m1"] + 1) for operation in operations]
    assert done.cycles == [array.written[sum(counts[:k + 1]) - 1][0] for k in range(len(counts))]
    return source, array


@pytest.mark.parametrize(("ask", "serve"), ((1, 1), (0.4, 1), (1, 0.4), (0.6, 0.7)))
@pytest.mark.parametrize("size", (2, 3, 8))
def test_every_vector_meets_the_array_and_its_address(size: int, ask: float, serve: float) -> None:
    rng, arch = Random(41 + size), machine(size)
    run(arch, [random_operation(rng, arch) for _ in range(18)], rng, ask, serve)


def test_every_step_machine() -> None:
    rng, arch = Random(42), machine(3, mac_rounding="every_step")
    run(arch, [random_operation(rng, arch) for _ in range(10)], rng, 0.8, 0.8)


def test_one_vector_a_cycle_operation_after_operation() -> None:
    rng, arch = Random(43), machine(3)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    single = {"size_m1": 0, "rows_m1": 0, "swap": 1, "zeroes": 0, "accumulate": 1, "enter_shift": 1,
              "local": walk, "accumulator": walk}
    operations = [*({**random_operation(rng, arch), "swap": 0, "enter_shift": 1} for _ in range(15)),
                  *[{**single, "swap": 0}] * 6]
    source, array = run(arch, operations, rng, 1, 1)
    first = source.taken[0] + Walker.LATENCY + LOCAL_READ_LATENCY
    assert [cycle for cycle, *_ in array.given] == list(range(first, first + len(array.given)))


@pytest.mark.parametrize("change", ("swap", "enter_shift"))
def test_the_bias_enters_every_bias_interval_and_no_later(change: str) -> None:
    """Operations of one vector, each with other weights or another shift: as fast as one unit enters the bias."""
    rng, arch = Random(44), machine(5)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    single = {"size_m1": 0, "rows_m1": 0, "swap": 0, "zeroes": 0, "accumulate": 1, "enter_shift": 1,
              "local": walk, "accumulator": walk}
    values = [1] * 9 if change == "swap" else [1, 0] * 4 + [1]
    _, array = run(arch, [{**single, change: value} for value in values], rng, 1, 1)
    cycles = [cycle for cycle, *_ in array.given]
    assert [later - earlier for earlier, later in pairwise(cycles)] == [bias_interval(arch)] * 8
