# SPDX-License-Identifier: Apache-2.0
"""Accumulators against a memory that is read, overwritten and added to in the order in which requests are taken."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from weft.hw.contract import numerics
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY
from weft.hw.memory.accumulators import FORWARDING_DEPTH, Accumulators
from weft.hw.parts.ports import accumulator_layout, partial_sum_width, sum_layout
from weft.tb.bench.block_bench import Bench, simulate
from weft.tb.bench.block_models import Script, Source
from weft.tb.bench.block_ports import Ports, from_bits, to_bits
from weft.tb.bench.memory_clients import PortReader, PortWriter, SequentialMemory
from weft.tb.bench.on_accumulators import RowsAtOnce

READERS, WRITERS, SUMS = ("simd_read", "move_out"), ("simd_write", "move_in"), "mat_mul"
Request = tuple[int, bool, list[int]]
"""Address, accumulate, row."""


def machine(size: int = 2, banks: int = 2, depth: int = 16, **keys: object) -> Arch:
    return Arch.load("tiny").replace(array_size=size, accumulator_depth=depth, accumulator_banks=banks, **keys)


class Sums(PortWriter):
    """The array's sums: they are never refused."""

    def watch(self, ports) -> None:
        super().watch(ports)
        assert ports["mat_mul.request.ready"] and self.offered is None


@cache
def build(arch: Arch) -> tuple[RowsAtOnce, Bench]:
    dut = RowsAtOnce(arch, READERS, WRITERS)
    return dut, Bench(dut)


class Clients:
    """All clients of one machine's accumulators, the reference behind them."""

    def __init__(self, arch: Arch, rng: Random) -> None:
        self.arch, self.rng = arch, rng
        self.memory = SequentialMemory(arch.accumulator_depth, arch.accumulator_banks)
        self.dut, self.bench = build(arch)
        self.clients: dict[str, Source] = {}

    def row(self, width: int) -> list[int]:
        """Scalars of ``width`` bits; often the ends of the range, so that sums saturate."""
        low, high = numerics.minimum(width), numerics.maximum(width)
        return [self.rng.choice([low, high, self.rng.randint(low, high), self.rng.randint(-3, 3)])
                for _ in range(self.arch.array_size)]

    def requests(self, name: str, addresses: list[int], adds: float = 0.5) -> list[Request]:
        width = partial_sum_width(self.arch) if name == SUMS else self.arch.accumulator_bits
        return [(address, self.rng.random() < adds, self.row(width)) for address in addresses]

    def writes(self, name: str, requests: list[Request], rate: float = 1.0) -> None:
        layout = getattr(self.dut, name).request.payload.shape()
        items = [to_bits(layout, {"address": address, "accumulate": adds, "data": row})
                 for address, adds, row in requests]
        kind = Sums if name == SUMS else PortWriter
        self.clients[name] = kind(name, items, lambda raw: self.apply(from_bits(layout, raw)), self.rng, rate)

    def reads(self, name: str, addresses: list[int], rate: float = 1.0) -> None:
        self.clients[name] = PortReader(name, self.memory, addresses, ACCUMULATOR_READ_LATENCY, self.rng, rate,
                                        anything_between=True)

    def apply(self, request: dict) -> None:
        layout, bits = accumulator_layout(self.arch), self.arch.accumulator_bits

        def update(raw: int) -> int:
            old = from_bits(layout, raw) if request["accumulate"] else [0] * self.arch.array_size
            return to_bits(layout, [numerics.saturate(a + b, bits) for a, b in zip(old, request["data"], strict=True)])

        self.memory.write(request["address"], update)

    def run(self) -> int:
        return self.bench.run(self.memory, *self.clients.values())


MACHINES = {
    "1 bank": machine(2, 1), "2 banks": machine(3, 2, 13), "4 banks": machine(8, 4, 21),
    "every_step": machine(3, 2, 9, mac_rounding="every_step"), "every_step fp8": machine(2, 1, 16, data_type="FP8BP4",
                                                                                      mac_rounding="every_step"),
    "narrow": machine(2, 2, 16, accumulator_width=17), "wide": machine(2, 2, 16, accumulator_width=96),
    "one row a bank": machine(2, 4, 4), "two rows": machine(2, 1, 2),
}


@pytest.mark.wide_cases("*-1.0")
@pytest.mark.parametrize("rate", (0.5, 1.0))
@pytest.mark.parametrize("name", MACHINES)
def test_everything_taken_is_seen_by_all_that_follows(name: str, rate: float) -> None:
    """Reads, overwrites, accumulates and sums on few addresses, in every order, at all distances."""
    arch = MACHINES[name]
    bench, rng = Clients(arch, Random(7)), Random(8)

    def addresses(count: int) -> list[int]:
        hot = [0, arch.accumulator_depth - 1, rng.randrange(arch.accumulator_depth)]
        return [rng.choice(hot) if rng.random() < 0.7 else rng.randrange(arch.accumulator_depth) for _ in range(count)]

    bench.writes(SUMS, bench.requests(SUMS, addresses(70)), 0.5 * rate)
    for writer in WRITERS:
        bench.writes(writer, bench.requests(writer, addresses(60)), rate)
    for reader in READERS:
        bench.reads(reader, addresses(80), rate)
    bench.run()


@pytest.mark.parametrize("writer", (SUMS, "move_in"))
@pytest.mark.parametrize("distance", range(1, FORWARDING_DEPTH + 3))
def test_accumulates_meet_at_every_distance(writer: str, distance: int) -> None:
    """One accumulate a cycle round ``distance`` addresses of a bank: each sees the one ``distance`` cycles before."""
    arch = machine(2, 1)
    bench, count = Clients(arch, Random(distance)), 12 * distance
    bench.writes(writer, [(k % distance, True, [k + 1, -3 * k - 1]) for k in range(count)])
    assert bench.run() == count
    assert bench.clients[writer].taken == list(range(count)), "one a cycle, back to back"
    layout = accumulator_layout(arch)
    bench.memory.settle()
    expected = [[sum(k + 1 for k in range(d, count, distance)), -sum(3 * k + 1 for k in range(d, count, distance))]
                for d in range(distance)]
    assert [from_bits(layout, raw) for raw in bench.memory.rows[:distance]] == expected, "the reference itself"
    check = Clients(arch, Random(0))
    check.writes(writer, [(k % distance, True, [k + 1, -3 * k - 1]) for k in range(count)])
    check.reads("move_out", [k % distance for k in range(2 * count)], 0.7)
    check.run()


@pytest.mark.parametrize("banks", (1, 2, 4))
def test_sums_are_taken_in_every_cycle_and_accumulate(banks: int) -> None:
    """The array cannot wait, whatever else asks for the same bank."""
    bench, count = Clients(machine(2, banks), Random(3)), 80
    bench.writes(SUMS, bench.requests(SUMS, [k // 2 % 16 for k in range(count)], adds=1))
    for client in READERS:
        bench.reads(client, [k % 16 for k in range(40)])
    for client in WRITERS:
        bench.writes(client, bench.requests(client, [k % 16 for k in range(40)], adds=1))
    bench.run()
    assert bench.clients[SUMS].taken == list(range(count))


def test_one_read_and_one_overwrite_a_bank_in_every_cycle() -> None:
    bench, count = Clients(machine(2, 2), Random(4)), 60
    for index, (reader, writer) in enumerate(zip(READERS, WRITERS, strict=True)):
        bench.reads(reader, [(k + index) % 16 for k in range(count)])
        bench.writes(writer, bench.requests(writer, [(k + index) % 16 for k in range(count)], adds=0))
    bench.run()
    assert all(client.taken == list(range(count)) for client in bench.clients.values())


@pytest.mark.parametrize("banks", (1, 2))
def test_readers_and_accumulating_writers_share_a_bank_evenly(banks: int) -> None:
    """All on one bank: a read and an accumulate alternate, and each pair of clients takes turns."""
    bench, count = Clients(machine(2, banks), Random(5)), 30
    addresses = [banks * k % 16 for k in range(count)]
    for reader in READERS:
        bench.reads(reader, addresses)
    for writer in WRITERS:
        bench.writes(writer, bench.requests(writer, addresses, adds=1))
    bench.run()
    for client in bench.clients.values():
        assert {later - earlier for earlier, later in pairwise(client.taken)} == {4}


def test_nobody_starves_beside_overwrites() -> None:
    """An accumulating writer beside one that overwrites in every cycle, and a reader: all on one bank."""
    bench, count = Clients(machine(2, 1), Random(6)), 40
    bench.writes("simd_write", bench.requests("simd_write", [3] * count, adds=1))
    bench.writes("move_in", bench.requests("move_in", [k % 16 for k in range(count)], adds=0))
    bench.reads("simd_read", [3] * count)
    bench.run()
    for client in bench.clients.values():
        assert max(later - earlier for earlier, later in pairwise(client.taken)) <= 4


def test_a_reader_that_a_sum_held_back_is_next() -> None:
    """Sums in every other cycle, and a writer that adds: it must not take all the cycles between them."""
    found = []

    def script(ports: Ports) -> Generator[Any, None, None]:
        ports.put("mat_mul.request.payload", {"address": 3, "accumulate": 1})
        ports.put("simd_write.request.payload", {"address": 4, "accumulate": 1})
        ports["simd_read.request.valid"] = ports["simd_write.request.valid"] = 1
        for cycle in range(8):
            ports["mat_mul.request.valid"] = cycle % 2
            yield
            found.append((ports["simd_read.request.ready"], ports["simd_write.request.ready"]))

    simulate(Accumulators(machine(2, 1), READERS, WRITERS), Script(script))
    assert found[2:] == 3 * [(1, 0), (0, 0)]


def test_sums_wider_than_the_accumulators_saturate() -> None:
    arch = machine(2, 1)
    bench = Clients(arch, Random(0))
    top, most = numerics.maximum(partial_sum_width(arch)), numerics.maximum(arch.accumulator_bits)
    assert top > most and sum_layout(arch).size > accumulator_layout(arch).size
    bench.writes(SUMS, [(0, False, [top, -top - 1]), (0, True, [top, -top - 1]), (0, True, [-top - 1, top])])
    bench.reads("move_out", [0] * 12)
    bench.run()
    bench.memory.settle()
    assert from_bits(accumulator_layout(arch), bench.memory.rows[0]) == [-most - 1, most]


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("client", [*READERS, *WRITERS])
def test_a_sum_contends_in_its_bank_and_with_readers_only_where_it_adds(client: str, accumulate: int) -> None:
    """Of two banks; a sum that replaces a row leaves the read port to others."""
    found = []

    def script(ports: Ports) -> Generator[Any, None, None]:
        for valid, asks, address in ((1, 1, 5), (1, 1, 4), (0, 1, 5), (1, 0, 5)):
            ports["mat_mul.request.valid"], ports[f"{client}.request.valid"] = valid, asks
            ports.put("mat_mul.request.payload", {"address": 3, "accumulate": accumulate})
            if client in WRITERS:
                ports.put(f"{client}.request.payload", {"address": address, "accumulate": 0})
            else:
                ports[f"{client}.request.payload"] = address
            yield
            yield
            found.append(ports["contended"])

    simulate(Accumulators(machine(), READERS, WRITERS), Script(script))
    assert found == [int(client in WRITERS or accumulate), 0, 0, 0]
