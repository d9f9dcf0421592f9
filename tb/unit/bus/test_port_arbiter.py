# SPDX-License-Identifier: Apache-2.0
"""PortArbiter among cores that ask at random and a memory that stalls: what comes back to whom, in which order, how
fast, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from amaranth.sim import Simulator

from weft.hw.bus import axi
from weft.hw.bus.joined_reads import JoinedReads
from weft.hw.bus.port_arbiter import PortArbiter
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.timing import PORT_LATENCY, program_places
from weft.tb.bench.axi_models import OKAY, SLVERR, AxiReadMemory, AxiWriteMemory, ByteMemory
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Model, Script, Sink, Source
from weft.tb.bench.block_ports import Ports, from_bits, to_bits

BEAT, REGION = 8, 4096
"""Bytes of a beat, and of what belongs to one client."""
ARCH = Arch.load("tiny").replace(dram_ports=SHARED)
FAST = (1.0, (1, 1))
STALLS = (0.5, (1, 25))
Bursts = list[tuple[int, int]]
"""First beat within the client's region, number of beats."""


class Behind(wiring.Component):
    """An arbiter whose memory port is called as the models of memories want it."""

    def __init__(self, count: int) -> None:
        self._count, self._arbiter = count, PortArbiter(ARCH, count)
        members = dict(self._arbiter.signature.members)
        memory = members.pop("memory")
        super().__init__({**members, **dict(memory.signature.members)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = self._arbiter
        for name in self._arbiter.signature.members:
            if name == "restart":
                m.d.comb += arbiter.restart.eq(self.restart)
            elif name != "memory":
                connect(m, flipped(getattr(self, name)), getattr(arbiter, name))
        for channel in ("ar", "r", "aw", "w", "b"):
            connect(m, getattr(arbiter.memory, channel), flipped(getattr(self, channel)))
        return m


def random_bursts(rng: Random, count: int, longest: int = 16) -> Bursts:
    sizes = [rng.randint(1, longest) for _ in range(count)]
    return [(rng.randrange(REGION // BEAT // 16) * 16 + rng.randint(0, 16 - size), size) for size in sizes]


def names(count: int) -> list[str]:
    """Of the clients that read, in the order of their turns."""
    return [*(f"data{k}" for k in range(count)), *(f"program{k}" for k in range(count))]


class Users(Model):
    """Checks that AxUSER says what a burst is of: its client by the region of its address, its window by ``users``."""

    def __init__(self, channel: str, count: int, users: dict[int, int]) -> None:
        self.channel, self.count, self.users = channel, count, users
        self.seen: list[tuple[int, int]] = []

    def watch(self, ports: Ports) -> None:
        if ports[f"{self.channel}.valid"] and ports[f"{self.channel}.ready"]:
            got = ports.get(f"{self.channel}.payload")
            client = got["addr"] // REGION
            assert got["user"] == (axi.PROGRAM_USER if client >= self.count else self.users[client])
            self.seen.append((ports.cycle, client))


class Reads:
    """``bursts``: of each client by number. ``run`` ends when each has its beats, which are compared."""

    def __init__(self, count: int, bursts: dict[int, Bursts], seed: int, *, memory=FAST, rate: float = 1.0,
                 errors: range = range(0), deaf: Iterable[int] = ()) -> None:
        rng = Random(seed)
        self.count, self.bursts, self.dut, self.deaf = count, bursts, Behind(count), set(deaf)
        shapes = Ports(self.dut).shapes
        self.bytes = ByteMemory(2 * count * REGION, rng)
        self.memory = AxiReadMemory(self.bytes, rng, *memory, max_burst=16, errors=errors)
        self.users = Users("ar", count, {k: rng.randrange(2) for k in range(count)})
        self.sources, self.answers = [], {}
        for client, name in enumerate(names(count)):
            own = bursts.get(client, [])
            user = {"user": self.users.users[client]} if client < count else {}
            self.sources.append(Source(f"{name}.ar", [
                to_bits(shapes[f"{name}.ar.payload"],
                        {"addr": client * REGION + BEAT * at, "len": size - 1, "size": 3, "burst": 1, **user})
                for at, size in own], rng, rate))
            sink = self.answers[client] = Sink(f"{name}.r", rng, sum(size for _, size in own), rate)
            if client in self.deaf:
                sink.count, sink.blocked = 0, True

    def steps(self, ports: Ports):
        while not all(sink.finished for sink in self.answers.values()):
            yield

    def run(self) -> Reads:
        self.cycles = simulate(self.dut, self.memory, self.users, *self.sources, *self.answers.values(),
                               Script(self.steps))
        layout = axi.read_data_layout(8 * BEAT)
        for client, sink in self.answers.items():
            found = [from_bits(layout, item) for item in sink.items]
            expected = [(client * REGION + BEAT * (at + k), k == size - 1)
                        for at, size in self.bursts.get(client, []) for k in range(size)]
            assert client in self.deaf or [(beat["data"], beat["last"], beat["resp"]) for beat in found] == [
                (int.from_bytes(self.bytes.read(at, BEAT), "little"), last,
                 SLVERR if at in self.memory.errors else OKAY) for at, last in expected]
        return self


class Writes:
    """The same of writes; what the memory holds at the end is compared, and who got which response."""

    def __init__(self, count: int, bursts: dict[int, Bursts], seed: int, *, memory=FAST, rate: float = 1.0,
                 errors: range = range(0), silent: Iterable[int] = (), data_waits: bool = False,
                 address_waits: bool = False) -> None:
        rng = Random(seed)
        self.count, self.bursts, self.dut, self.silent = count, bursts, Behind(count), set(silent)
        shapes = Ports(self.dut).shapes
        self.bytes = ByteMemory(count * REGION, rng)
        self.expected = bytearray(self.bytes.data)
        self.memory = AxiWriteMemory(self.bytes, rng, *memory, max_burst=16, errors=errors,
                                     data_waits=data_waits, address_waits=address_waits)
        self.users = Users("aw", count, {k: rng.randrange(2) for k in range(count)})
        self.sources, self.answers = [], {}
        for client in range(count):
            own = bursts.get(client, [])
            self.sources.append(Source(f"data{client}.aw", [
                to_bits(shapes[f"data{client}.aw.payload"],
                        {"addr": client * REGION + BEAT * at, "len": size - 1, "size": 3, "burst": 1,
                         "user": self.users.users[client]}) for at, size in own], rng, rate))
            beats = [(at + k, rng.getrandbits(8 * BEAT), rng.getrandbits(BEAT), k == size - 1)
                     for at, size in own for k in range(size)]
            if client not in self.silent:
                self.sources.append(Source(f"data{client}.w", [
                    to_bits(shapes[f"data{client}.w.payload"], {"data": value, "strb": strobes, "last": last})
                    for _, value, strobes, last in beats], rng, rate))
                self._expect(client, beats)
            self.answers[client] = Sink(f"data{client}.b", rng, 0 if client in self.silent else len(own))

    def _expect(self, client: int, beats: list[tuple[int, int, int, bool]]) -> None:
        for at, value, strobes, _ in beats:
            start = client * REGION + BEAT * at
            for index, byte in enumerate(value.to_bytes(BEAT, "little")):
                if strobes >> index & 1 and client * REGION not in self.memory.errors:
                    self.expected[start + index] = byte

    def steps(self, ports: Ports):
        while not all(sink.finished for sink in self.answers.values()):
            yield

    def run(self) -> Writes:
        self.cycles = simulate(self.dut, self.memory, self.users, *self.sources, *self.answers.values(),
                               Script(self.steps))
        assert self.bytes.data == self.expected
        for client, sink in self.answers.items():
            bad = client * REGION in self.memory.errors
            responses = [from_bits(axi.write_response_layout(), item)["resp"] for item in sink.items]
            assert responses == [SLVERR if bad else OKAY] * sink.count
        return self


@pytest.mark.wide_cases("*-2", "*-4")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("memory", [FAST, STALLS], ids=["fast", "stalls"])
def test_every_client_reads_its_own_in_its_own_order(count: int, memory) -> None:
    rng = Random(count)
    bursts = {client: random_bursts(rng, rng.randint(5, 30)) for client in range(2 * count)}
    Reads(count, bursts, count, memory=memory, rate=0.6).run()


def test_a_program_that_is_not_taken_keeps_no_data_waiting() -> None:
    """As of a core whose decoder waits for this data: as many beats as have room are asked for, and no more."""
    rng = Random(11)
    bursts = {client: random_bursts(rng, 40) for client in range(4)}
    found = Reads(2, bursts, 11, deaf=[2]).run()
    asked = [size for (_, size), _ in zip(bursts[2], found.sources[2].taken, strict=False)]
    room = program_places(ARCH)
    assert room - bursts[2][len(asked)][1] < sum(asked) <= room


def test_an_error_goes_to_the_client_that_asked() -> None:
    rng = Random(5)
    bursts = {client: random_bursts(rng, 20) for client in range(6)}
    Reads(3, bursts, 5, memory=STALLS, errors=range(4 * REGION, 5 * REGION)).run()
    Writes(3, {client: random_bursts(rng, 20) for client in range(3)}, 5, memory=STALLS,
           errors=range(REGION, 2 * REGION)).run()


@pytest.mark.wide_cases("*-2", "*-4")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("memory", [FAST, STALLS], ids=["fast", "stalls"])
@pytest.mark.parametrize("options", [{}, {"data_waits": True}, {"address_waits": True}], ids=str)
def test_every_core_writes_its_own_bytes_and_hears_of_its_own_bursts(count: int, memory, options) -> None:
    rng = Random(count)
    bursts = {client: random_bursts(rng, rng.randint(5, 25)) for client in range(count)}
    Writes(count, bursts, count, memory=memory, rate=0.6, **options).run()


def test_a_core_whose_data_does_not_come_keeps_nobody_waiting() -> None:
    """It has addresses to offer for ever, and no data for them."""
    rng = Random(7)
    bursts = {client: random_bursts(rng, 40) for client in range(3)}
    found = Writes(3, bursts, 7, silent=[1]).run()
    assert {client for _, client in found.users.seen} == {0, 2}


@pytest.mark.parametrize("kind", [Reads, Writes])
@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("clients", [[0], [0, 1, 2]], ids=str)
def test_a_beat_moves_every_cycle_from_burst_to_burst(kind, size: int, clients: list[int]) -> None:
    bursts = {client: [(16 * k, size) for k in range(32)] for client in clients}
    found = kind(3, bursts, 1, **({"data_waits": True} if kind is Writes else {})).run()
    beats = 32 * size * len(clients)
    assert found.cycles <= beats + 12


@pytest.mark.parametrize("kind", [Reads, Writes])
def test_bursts_of_all_who_ask_take_turns(kind) -> None:
    count, bursts = 3, 40
    clients = range(2 * count if kind is Reads else count)
    found = kind(count, {client: [(16 * k % 512, 2) for k in range(bursts)] for client in clients}, 3).run()
    order = [client for _, client in found.users.seen][len(clients):-2 * len(clients)]
    assert order == (list(clients) * bursts)[:len(order)]


@pytest.mark.parametrize(("restart", "first"), [(0, 1), (1, 0)])
def test_a_restart_begins_with_the_first_again(restart: int, first: int) -> None:
    """Without it the client behind the one served last is first."""
    served = []

    def steps(ports: Ports):
        for asking in ([0], [], range(3)):
            for client in range(3):
                ports[f"data{client}.ar.valid"] = client in asking
            ports["ar.ready"], ports["restart"] = 1, restart and not asking
            yield
            served.append([client for client in range(3) if ports[f"data{client}.ar.ready"]])

    simulate(Behind(3), Script(steps))
    assert served == [[0], [], [first]]


@pytest.mark.parametrize("kind", [Reads, Writes])
def test_latency(kind) -> None:
    found = kind(2, {1: [(0, 1)]}, 1).run()
    assert found.users.seen[0][0] - found.sources[1 if kind is Reads else 3].taken[0] == PORT_LATENCY


@pytest.mark.parametrize("sizes", [[16, 15, 2], [16, 16, 1], [15, 10, 8], [9, 8, 16, 1]])
def test_bursts_of_a_program_that_is_not_taken_have_a_place_for_each_beat(sizes: list[int]) -> None:
    """One beat more than there are places would keep the data behind it waiting for ever."""
    places, bursts = program_places(ARCH), [(16 * k, size) for k, size in enumerate(sizes)]
    run = Reads(2, {0: [(k, 16) for k in range(0, 64, 16)], 2: bursts}, 9, deaf=[2]).run()
    asked = [client for _, client in run.users.seen].count(2)
    fits = [count for count in range(len(sizes) + 1) if sum(sizes[:count]) <= places]
    assert asked == max(fits)


def test_reads_of_constants_alike_are_joined_and_others_are_not() -> None:
    """Against sets: of DRAM1, modifiable, of the same beats, and by all that started together or after a while."""
    arch, m, rng = ARCH.replace(cores=3, join_cycles=6), Module(), Random(3)
    ports = [axi.Axi4(32, 64, 1).create() for _ in range(3)]
    members, taken, grant = Signal(3), Signal(3), Signal(3)
    joined = JoinedReads(m, arch, ports, members)
    requests, served = Signal(3), Signal(3)
    m.d.comb += [requests.eq(Cat(*joined.requests)), served.eq(joined.served(grant))]
    joined.step(taken)

    async def bench(ctx) -> None:
        waited, seen = 0, set()
        for _ in range(600):
            reads = [(rng.random() < 0.9, int(rng.random() < 0.9), 2 if rng.random() < 0.9 else 0, rng.randrange(2),
                      int(rng.random() < 0.1)) for _ in ports]
            for port, (valid, user, cache, address, length) in zip(ports, reads, strict=True):
                ctx.set(port.ar.valid, valid)
                ctx.set(port.ar.payload, {"user": user, "cache": cache, "addr": address, "len": length})
            group = rng.choice([7, 7, 3, 1])
            ctx.set(members, group)
            joins = [bool(valid and user == 1 and cache) for valid, user, cache, _, _ in reads]
            alike = [sum(1 << other for other in range(3) if joins[own] and joins[other]
                         and reads[own][3:] == reads[other][3:]) for own in range(3)]
            may = [valid and (not joins[own] or waited == 6 or not group & ~alike[own])
                   for own, (valid, *_) in enumerate(reads)]
            assert ctx.get(requests) == sum(int(each) << own for own, each in enumerate(may))
            own = rng.randrange(3)
            ctx.set(grant, 1 << own)
            assert ctx.get(served) == 1 << own | alike[own]
            goes = ctx.get(served) if may[own] and rng.random() < 0.3 else 0
            ctx.set(taken, goes)
            seen.add((waited, any(may)))
            left = any(each and not goes >> number & 1 for number, each in enumerate(joins))
            waited = min(waited + 1, 6) if left else 0
            await ctx.tick()
        assert {count for count, _ in seen} == set(range(7))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
