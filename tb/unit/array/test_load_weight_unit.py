# SPDX-License-Identifier: Apache-2.0
"""LoadWeight against the order of the definition: last address first, zeros, timing of shift and done."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

import pytest

from weft.hw.array.load_weight_unit import LoadWeightUnit
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Cycles, Model, Pulses, ReadServer, Source, Turns
from weft.tb.bench.block_ports import Ports, to_bits
from weft.tb.random.random_operations import random_tile


class Shifts(Model):
    """The rows shifted into the array, with their cycles, and the cycles in which the unit is busy."""

    def __init__(self, count: int) -> None:
        self.rows: list[list[int]] = []
        self.cycles: list[int] = []
        self.busy: list[int] = []
        self.now_busy = False
        self.count = count

    def watch(self, ports: Ports) -> None:
        if ports["shift"]:
            self.rows.append(ports.get("weight"))
            self.cycles.append(ports.cycle)
        self.now_busy = bool(ports["busy"])
        self.busy += [ports.cycle] * self.now_busy

    @property
    def finished(self) -> bool:
        return len(self.rows) >= self.count and not self.now_busy


def machine(size: int) -> Arch:
    return Arch.load("tiny").replace(array_size=size, local_depth=45)


def random_operation(rng: Random, arch: Arch) -> dict[str, Any]:
    """``local.base`` is the last address, the first one visited."""
    operation = random_tile(rng, 2 * arch.array_size, 1, 4, local=arch.local_depth)
    walk = operation["local"]
    base = walk["base"] + (operation["size_m1"] << walk["stride_log2"])
    return {**operation, "local": {**walk, "base": base}, "zeroes": rng.random() < 0.2, "zero_bias": rng.randrange(2),
            "swaps": 0}


def in_turns(rng: Random, operations: list[dict[str, Any]]) -> list[int]:
    """Makes the loads wait for swaps, and says how many are before each."""
    before = list(accumulate(rng.randrange(2) for _ in operations))
    for operation, swaps in zip(operations, before, strict=True):
        operation["swaps"] = swaps % 2
    return before


def expected(operation: dict[str, Any], rows: list[list[int]]) -> list[tuple[int | None, list[int]]]:
    """(Address, or None for zeros; row) in the order of the shifts."""
    zero: tuple[int | None, list[int]] = None, [0] * len(rows[0])
    found = [zero if operation["zeroes"] else (address, rows[address])
             for address in Walker.reference(operation, "local", descending=True)]
    return [*found, zero] if operation["zero_bias"] else found


def run(arch: Arch, operations: list[dict[str, Any]], rng: Random, ask: float, serve: float,
        delay: int = 1) -> tuple[Source, Shifts]:
    before = in_turns(rng, operations) if delay > 1 else [0] * len(operations)
    number, dut = arch.number, LoadWeightUnit(arch)
    rows = [[rng.randint(number.minimum, number.maximum) for _ in range(arch.array_size)]
            for _ in range(arch.local_depth)]
    right = [expected(operation, rows) for operation in operations]
    flat = [step for part in right for step in part]
    source = Source("operation", [to_bits(dut.operation.payload.shape(), each) for each in operations], rng, ask)
    raw = [to_bits(dut.weight.shape(), row) for row in rows]
    memory = ReadServer("local_read", raw, LOCAL_READ_LATENCY, rng, serve)
    shifts, done = Shifts(len(flat)), Pulses("done")
    turns = Turns(before, rng, delay)
    simulate(dut, source, memory, shifts, done, turns)
    assert shifts.rows == [row for _, row in flat]
    assert [address for _, address in memory.requests] == [address for address, _ in flat if address is not None]
    requested = [cycle for cycle, (address, _) in zip(shifts.cycles, flat, strict=True) if address is not None]
    assert requested == [cycle + LOCAL_READ_LATENCY for cycle, _ in memory.requests]
    ends = [sum(len(part) for part in right[:k + 1]) - 1 for k in range(len(right))]
    wave = 2 * arch.array_size - 2  # from a shift to the last place's
    under_way = {cycle + k for cycle in shifts.cycles for k in range(1 - LOCAL_READ_LATENCY, wave + 1)}
    assert shifts.busy == sorted(under_way), "busy from the cycle after a row's request to the end of its wave"
    firsts = [shifts.cycles[end + 1 - len(part)] - LOCAL_READ_LATENCY for end, part in zip(ends, right, strict=True)]
    assert all(first > turns.swaps[swaps - 1] for first, swaps in zip(firsts, before, strict=True) if swaps)
    assert done.cycles == [shifts.cycles[end] - LOCAL_READ_LATENCY for end in ends], "done comes with the last request"
    return source, shifts


@pytest.mark.parametrize(("ask", "serve"), ((1, 1), (0.4, 1), (1, 0.4), (0.6, 0.7)))
@pytest.mark.parametrize("size", (2, 3, 8))
def test_rows_come_last_address_first(size: int, ask: float, serve: float) -> None:
    rng, arch = Random(31 + size), machine(size)
    run(arch, [random_operation(rng, arch) for _ in range(25)], rng, ask, serve)


@pytest.mark.parametrize(("ask", "serve", "delay"), ((1, 1, 2), (1, 1, 30), (0.5, 0.6, 12)))
def test_a_load_waits_until_the_weights_before_it_are_taken_over(ask: float, serve: float, delay: int) -> None:
    rng, arch = Random(33 + delay), machine(3)
    run(arch, [random_operation(rng, arch) for _ in range(40)], rng, ask, serve, delay)


def test_a_load_goes_on_in_the_cycle_behind_the_swap() -> None:
    arch = machine(3)
    dut, turns = LoadWeightUnit(arch), Turns([0, 1, 2], Random(0), 1)
    walk = {"base": 5, "stride_log2": 0, "pitch": 0}
    loads = [{"size_m1": 2, "rows_m1": 0, "local": walk, "zeroes": 0, "zero_bias": 0, "swaps": k % 2} for k in range(3)]
    source = Source("operation", [to_bits(dut.operation.payload.shape(), each) for each in loads], Random(0), 1)
    shifts = Shifts(9)
    simulate(dut, source, ReadServer("local_read", [0] * 45, LOCAL_READ_LATENCY, Random(0)), shifts, turns)
    assert [cycle - LOCAL_READ_LATENCY for cycle in shifts.cycles[3::3]] == [cycle + 1 for cycle in turns.swaps]


def test_one_row_a_cycle_load_after_load() -> None:
    rng, arch = Random(32), machine(3)
    source, shifts = run(arch, [random_operation(rng, arch) for _ in range(25)], rng, 1, 1)
    first = source.taken[0] + Walker.LATENCY + LOCAL_READ_LATENCY
    assert shifts.cycles == list(range(first, first + shifts.count))


def test_nothing_is_shifted_without_an_operation() -> None:
    shifts = Shifts(0)
    simulate(LoadWeightUnit(machine(2)), shifts, ReadServer("local_read", [0] * 45, LOCAL_READ_LATENCY, Random(0)),
             Cycles(20))
    assert shifts.rows == []
