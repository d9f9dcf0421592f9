# SPDX-License-Identifier: Apache-2.0
"""Local memory against an array that is read and written in the order in which requests are taken."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.memory.local import LocalMemory
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.block_models import Cycles, Source
from weft.tb.bench.block_ports import Ports
from weft.tb.bench.memory_clients import PortReader, PortWriter, SequentialMemory

READERS, WRITERS = ("a", "b", "c"), ("d", "e")


def machine(size: int = 2, depth: int = 32, banks: int = 4) -> Arch:
    return Arch.load("tiny").replace(array_size=size, local_depth=depth, local_banks=banks)


@cache
def bench(arch: Arch, first: str | None = None, first_writer: str | None = None, beside: tuple[str, ...] = ()) -> Bench:
    return Bench(LocalMemory(arch, READERS, WRITERS, first, first_writer, beside))


def run(arch: Arch, addresses: dict[str, list[int]], rng: Random, rate: float = 1.0,
        first: str | None = None, first_writer: str | None = None,
        beside: tuple[str, ...] = ()) -> tuple[int, dict[str, Source]]:
    """Every client visits its addresses; the cycles it took, and the clients."""
    memory = SequentialMemory(arch.local_depth, arch.local_banks)
    width, row_bits = arch.local_address_width, arch.array_size * arch.number.width

    def write(request: int) -> None:
        memory.write(request & ((1 << width) - 1), lambda row: request >> width)

    clients: dict[str, Source] = {
        **{name: PortReader(name, memory, addresses.get(name, []), LOCAL_READ_LATENCY, rng, rate) for name in READERS},
        **{name: PortWriter(name, [address | rng.getrandbits(row_bits) << width for address in addresses.get(name, [])],
                            write, rng, rate) for name in WRITERS}}
    return bench(arch, first, first_writer, beside).run(memory, *clients.values()), clients


@pytest.mark.parametrize(("size", "depth", "banks"),
                         ((2, 32, 1), (3, 19, 2), (8, 13, 4), (2, 20, 4), (3, 2, 1), (2, 2, 2), (2, 4, 4), (3, 5, 4)))
def test_reads_see_all_writes_of_earlier_cycles(size: int, depth: int, banks: int) -> None:
    """Few addresses and random pauses, so that reads and writes of one row meet in every order."""
    rng = Random(100 * depth + banks)
    hot = rng.sample(range(depth), min(depth, 6)) + [depth - 1]
    addresses = {name: [rng.choice(hot) if rng.random() < 0.7 else rng.randrange(depth) for _ in range(150)]
                 for name in (*READERS, *WRITERS)}
    run(machine(size, depth, banks), addresses, rng, 0.8)


@pytest.mark.parametrize("slices", (0, 1))
def test_write_is_seen_by_a_read_one_cycle_later_and_not_in_the_same(slices: int) -> None:
    """With register slices two cycles later."""
    arch, seen = machine().replace(register_slices=slices), []

    class Race(Cycles):
        def drive(self, ports: Ports) -> None:
            ports["a.request.valid"] = ports.cycle in (3, 4, 5)
            ports["a.request.payload"] = 5
            ports["d.request.valid"] = ports.cycle == 3
            ports.put("d.request.payload", {"address": 5, "data": [-2, 7] if ports.cycle == 3 else [1, 1]})

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            if ports["a.response.valid"]:
                seen.append((ports.cycle, ports.get("a.response.payload")))

    bench(arch).run(Race(12))
    rows = [[0, 0], [0, 0] if slices else [-2, 7], [-2, 7]]
    assert seen == [(cycle + LOCAL_READ_LATENCY, row) for cycle, row in zip((3, 4, 5), rows, strict=True)]


@pytest.mark.parametrize("banks", (1, 2, 4))
def test_one_read_and_one_write_a_bank_in_every_cycle(banks: int) -> None:
    """Clients in step, each in a bank of its own: nobody waits. With fewer banks every bank is busy in every cycle."""
    arch, count = machine(2, 32, banks), 60
    readers, writers = READERS[:banks], WRITERS[:banks]
    addresses = {name: [(k + index) % 32 for k in range(count)]
                 for group in (readers, writers) for index, name in enumerate(group)}
    _, clients = run(arch, addresses, Random(1))
    for name in (*readers, *writers):
        assert clients[name].taken == list(range(count)), name


@pytest.mark.parametrize("banks", (1, 2, 4))
def test_clients_of_one_bank_share_it_evenly(banks: int) -> None:
    """Nobody starves: in any ``clients`` cycles each is served once."""
    count = 40
    addresses = {name: [(k * banks) % 32 for k in range(count)] for name in (*READERS, *WRITERS)}
    _, clients = run(machine(2, 32, banks), addresses, Random(2))
    for group in (READERS, WRITERS):
        for name in group:
            taken = clients[name].taken
            assert {later - earlier for earlier, later in zip(taken, taken[1:], strict=False)} == {len(group)}
        assert max(max(clients[name].taken) for name in group) == len(group) * count - 1


@pytest.mark.parametrize("banks", (1, 2, 4))
def test_the_first_reader_never_waits(banks: int) -> None:
    """Whatever the others ask; they are served as well."""
    count = 60
    slow = [k % 32 for k in range(count // 2)]
    _, clients = run(machine(2, 32, banks), {"a": slow, "b": [k % 32 for k in range(count)], "c": slow}, Random(3),
                     first="b")
    assert clients["b"].taken == list(range(count))
    assert len(clients["a"].taken) == len(clients["c"].taken) == count // 2


@pytest.mark.parametrize("banks", (2, 4))
def test_readers_beside_the_first_one_never_wait(banks: int) -> None:
    """They ask for other banks than it and than each other; another client meets both and is served as well."""
    count = 60
    own = {"a": [k % 32 for k in range(count)], "b": [(k + 1) % 32 for k in range(count)]}
    _, clients = run(machine(2, 32, banks), {**own, "c": [k * 7 % 32 for k in range(count)]}, Random(5), first="a",
                     beside=("b",))
    for name in own:
        assert clients[name].taken == list(range(count))
    assert len(clients["c"].taken) == count


@pytest.mark.parametrize("banks", (1, 2, 4))
def test_the_first_writer_never_waits(banks: int) -> None:
    """Whatever the others write; they are served as well, and every write is kept."""
    count, (first, *others) = 60, WRITERS
    slow = [k % 32 for k in range(count // 2)]
    _, clients = run(machine(2, 32, banks), {first: [k % 32 for k in range(count)], **dict.fromkeys(others, slow)},
                     Random(4), first_writer=first)
    assert clients[first].taken == list(range(count))
    assert {len(clients[name].taken) for name in others} == {count // 2}


def test_contents_survive_a_reset() -> None:
    arch, seen = machine(), []

    class Resets(Cycles):
        def drive(self, ports: Ports) -> None:
            ports["reset"] = ports.cycle == 6
            ports["d.request.valid"] = ports.cycle == 1
            ports.put("d.request.payload", {"address": 9, "data": [3, 4]})
            ports["a.request.valid"], ports["a.request.payload"] = ports.cycle == 8, 9

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            if ports["a.response.valid"]:
                seen.append(ports.get("a.response.payload"))

    bench(arch).run(Resets(15))
    assert seen == [[3, 4]]
