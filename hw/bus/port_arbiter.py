# SPDX-License-Identifier: Apache-2.0
"""Several cores behind one memory port."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.bus import axi
from weft.hw.bus.joined_reads import JoinedReads
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.timing import (
    OUTSTANDING_BURSTS,
    PORT_ADDRESSES_WAITING,
    PORT_BEATS_WAITING,
    PORT_BURSTS_AHEAD,
    PORT_LATENCY,
    program_places,
)
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.gearbox import StreamFifo
from weft.hw.parts.select import select
from weft.hw.parts.slices import RegisterSlice


class PortArbiter(wiring.Component):
    """``count`` cores on one AXI4 port: core k has ``data{k}`` (DRAM windows) and ``program{k}`` (instructions).

    ``memory``: the port. Its AxUSER tells what a burst belongs to: DRAM0, DRAM1 or ``axi.PROGRAM_USER``.

    Reads: an address a cycle, of the clients that offer one in turn (data of all cores, then programs of all). Beats go
    to the clients in the order of the addresses. A program's beats wait in a queue of their own, and its address waits
    until the queue has room for the whole burst. For a core whose decoder waits for data must not keep that data
    waiting behind its next instructions. Writes: a core is chosen, in turn, when its address and the first beat of its
    data are here. It keeps the port until its burst's last beat. So no core waits for data that another has not made
    yet. Responses go back in the order of the bursts. Each client sees its own in its own order. Up to
    ``OUTSTANDING_BURSTS`` bursts are outstanding each way.

    With ``join_cycles`` one burst serves all cores that ask for the same constants (:class:`JoinedReads`). A beat of it
    moves when all of them are ready. ``members``: the cores that started together.

    ``restart``: the turns begin with core 0 again; transfers under way stay. Latency: PORT_LATENCY cycles for
    addresses and beats to be written, and for beats of programs; beats of data and responses pass through in their
    cycle. Throughput: an address and a beat each way a cycle, also from burst to burst. ``memory.r.ready`` depends
    in the same cycle on ``r.ready`` of the core that a beat of data is for; no other signal passes through."""

    assert RegisterSlice.LATENCY == StreamFifo.LATENCY == PORT_LATENCY
    assert PORT_ADDRESSES_WAITING == 2, "a RegisterSlice"

    def __init__(self, arch: Arch, count: int) -> None:
        self._arch, self._count = arch, count
        address, width = arch.axi_address_width, arch.axi_data_width
        super().__init__({
            **{f"data{k}": In(axi.Axi4(address, width, axi.user_width(arch))) for k in range(count)},
            **{f"program{k}": In(axi.Axi4Read(address, width)) for k in range(count)},
            "memory": Out(axi.Axi4(address, width, axi.SYSTEM_USER_WIDTH)), "restart": In(1),
            **({"members": In(count)} if arch.joins_reads else {}),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the reads and the writes."""
        m = Module()
        self._reads(m)
        self._writes(m)
        return m

    def _addresses(self) -> data.StructLayout:
        """Return the payload of an address of the memory port."""
        return axi.address_layout(self._arch.axi_address_width, axi.SYSTEM_USER_WIDTH)

    def _turns(self, m: Module, name: str, requests: list[Value]) -> RoundRobin:
        """Return an arbiter among ``requests``, which ``restart`` resets."""
        turns = RoundRobin(len(requests))
        m.submodules[name] = ResetInserter(self.restart)(turns)
        m.d.comb += turns.requests.eq(Cat(*requests))
        return turns

    def _reads(self, m: Module) -> None:
        """Pass read addresses on in turn, and beats to the clients that asked for them."""
        data_ports, programs = self._ports("data"), self._ports("program")
        queues, free_places = zip(*(self._queue(m, k) for k in range(self._count)), strict=True)
        clients, answers = [*data_ports, *programs], [*(port.r for port in data_ports), *(each.i for each in queues)]
        joined = JoinedReads(m, self._arch, data_ports, self.members) if self._arch.joins_reads else None
        order_shape = unsigned(len(clients) if joined else bits_to_count(len(clients)))
        m.submodules.read_addresses = addresses = RegisterSlice(self._addresses())
        m.submodules.read_order = order = StreamFifo(order_shape, OUTSTANDING_BURSTS)
        turns = self._turns(m, "read_turns", [
            *(joined.requests if joined else (port.ar.valid for port in data_ports)),
            *(port.ar.valid & (free > port.ar.payload.len) for port, free in zip(programs, free_places, strict=True))])
        asks, asked, served = turns.requests.any(), Signal(order_shape), turns.grant
        if joined:
            served = Signal(len(clients), name="served")
            m.d.comb += served.eq(turns.grant | joined.served(turns.grant))
            joined.step(served & turns.advance.replicate(len(clients)))
        m.d.comb += [
            asked.eq(served if joined else number_of(served)), turns.advance.eq(addresses.i.ready & order.i.ready),
            addresses.i.valid.eq(asks & order.i.ready), order.i.valid.eq(asks & addresses.i.ready),
            order.i.payload.eq(asked),
            *(client.ar.ready.eq(served[k] & turns.advance) for k, client in enumerate(clients)),
        ]
        self._choose(m, addresses.i.payload, turns.grant, [client.ar.payload for client in clients],
                     [*(port.ar.payload.user for port in data_ports),
                      *[Const(axi.PROGRAM_USER, axi.SYSTEM_USER_WIDTH)] * len(programs)])
        connect(m, addresses.o, flipped(self.memory.ar))
        r, whose = self.memory.r, [order.o.payload[k] if joined else order.o.payload == k for k in range(len(clients))]
        readies = [(mine, answer.ready) for mine, answer in zip(whose, answers, strict=True)]
        ready = (Cat(ready | ~mine for mine, ready in readies).all() if joined else
                 Cat(mine & ready for mine, ready in readies).any())
        m.d.comb += [
            r.ready.eq(order.o.valid & ready),
            order.o.ready.eq(r.valid & r.ready & r.payload.last),
        ]
        for mine, answer in zip(whose, answers, strict=True):
            valid = r.valid & order.o.valid & mine  # of a joined beat, when all are ready
            m.d.comb += [answer.valid.eq(valid & ready if joined else valid), answer.payload.eq(r.payload)]

    def _queue(self, m: Module, k: int) -> tuple[StreamFifo, Signal]:
        """Return the queue of a core's program beats, and the number of its places for which no beat was requested."""
        port, depth = getattr(self, f"program{k}"), program_places(self._arch)
        m.submodules[f"program_queue{k}"] = queue = StreamFifo(port.r.payload.shape(), depth)
        connect(m, queue.o, flipped(port.r))
        free = Signal(range(depth + 1), init=depth, name=f"free_places{k}")
        asked = Mux(port.ar.valid & port.ar.ready, port.ar.payload.len + 1, 0)
        m.d.sync += free.eq(free - asked + (port.r.valid & port.r.ready))
        return queue, free

    def _writes(self, m: Module) -> None:
        """Pass bursts on in turn, each with its address, and responses to the cores that wait for them."""
        clients, layout = self._ports("data"), axi.address_layout(self._arch.axi_address_width,
                                                                  axi.user_width(self._arch))
        waiting = [StreamFifo(layout, PORT_BURSTS_AHEAD) for _ in clients]
        for k, (client, queue) in enumerate(zip(clients, waiting, strict=True)):
            m.submodules[f"waiting{k}"] = queue
            connect(m, flipped(client.aw), queue.i)
        order_shape = unsigned(max(bits_to_count(len(clients)), 1))
        m.submodules.write_addresses = addresses = RegisterSlice(self._addresses())
        m.submodules.write_order = order = StreamFifo(order_shape, OUTSTANDING_BURSTS)
        m.submodules.beats = beats = StreamFifo(self.memory.w.payload.shape(), PORT_BEATS_WAITING)
        turns = self._turns(m, "write_turns", [queue.o.valid & client.w.valid
                                               for queue, client in zip(waiting, clients, strict=True)])
        within, begins, room = (Signal(name=name) for name in ("within", "begins", "room"))  # within: a burst
        owner, chosen = (Signal(len(clients), name=name) for name in ("owner", "chosen"))
        m.d.comb += [
            room.eq(addresses.i.ready & order.i.ready), turns.advance.eq(begins),
            chosen.eq(Mux(within, owner, turns.grant & room.replicate(len(clients)))),
            beats.i.valid.eq((chosen & Cat(client.w.valid for client in clients)).any()),
            beats.i.payload.eq(select(chosen, [client.w.payload.as_value() for client in clients])),
            begins.eq(~within & beats.i.valid & beats.i.ready),
            addresses.i.valid.eq(begins), order.i.valid.eq(begins), order.i.payload.eq(number_of(turns.grant)),
            *(client.w.ready.eq(chosen[k] & beats.i.ready) for k, client in enumerate(clients)),
            *(queue.o.ready.eq(turns.grant[k] & begins) for k, queue in enumerate(waiting)),
        ]
        with m.If(beats.i.valid & beats.i.ready):
            m.d.sync += [within.eq(~beats.i.payload.last), owner.eq(chosen)]
        self._choose(m, addresses.i.payload, turns.grant, [queue.o.payload for queue in waiting],
                     [queue.o.payload.user for queue in waiting])
        connect(m, addresses.o, flipped(self.memory.aw))
        connect(m, beats.o, flipped(self.memory.w))
        b = self.memory.b
        readies = Cat((order.o.payload == k) & client.b.ready for k, client in enumerate(clients)).any()
        m.d.comb += [b.ready.eq(order.o.valid & readies), order.o.ready.eq(b.valid & b.ready)]
        for k, client in enumerate(clients):
            m.d.comb += [client.b.valid.eq(b.valid & order.o.valid & (order.o.payload == k)),
                         client.b.payload.eq(b.payload)]

    def _ports(self, kind: str) -> list:
        """Return the ports ``data{k}`` or ``program{k}`` of all cores."""
        return [getattr(self, f"{kind}{k}") for k in range(self._count)]

    def _choose(self, m: Module, target, grant: Value, sources: list, users: list[Value]) -> None:
        """Fill ``target`` with the address that was granted, and with the user that says what it belongs to."""
        for field, _ in self._addresses():
            values = users if field == "user" else [source[field] for source in sources]
            m.d.comb += target[field].eq(select(grant, values))


def number_of(grant: Value) -> Value:
    """Return the place of the one bit that is set."""
    bits = max(bits_to_count(len(grant)), 1)
    return Cat(Cat(grant[k] for k in range(len(grant)) if k >> bit & 1).any() for bit in range(bits))
