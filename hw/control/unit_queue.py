# SPDX-License-Identifier: Apache-2.0
"""The operations that wait for their unit, and the memory that keeps them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.control.tracker import after, done_layout, wait_layout
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.select import select


class UnitQueue(wiring.Component):
    """The order of one unit's operations, and what each waits for; an :class:`OperationMemory` keeps their fields.

    ``rings``: the trackers whose events can end a wait, with their number of places. ``reserve`` takes ``place``
    (only while ``room``), where the operation is stored; ``push``, a cycle later, brings its ``waits``, which
    ``events`` end. ``wanted``: the operation at ``next`` may be fetched into the head register; ``fetch``: it is
    fetched. ``valid``: the head is there and waits for nothing; ``ready`` takes it. ``refill``: the next operation
    is wanted in the cycle in which the head is taken, not a cycle later."""

    def __init__(self, depth: int, rings: dict[str, int], *, refill: bool) -> None:
        self.depth, self._refill = depth, refill
        self._rings = tuple(rings)
        waits = data.StructLayout({name: wait_layout(size) for name, size in rings.items()})
        super().__init__({
            "reserve": In(1), "place": Out(range(depth)), "push": In(1), "waits": In(waits), "room": Out(1),
            "events": In(data.StructLayout({name: done_layout(size) for name, size in rings.items()})),
            "wanted": Out(1), "next": Out(range(depth)), "fetch": In(1),
            "valid": Out(1), "ready": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: reserve: stored -> (a cycle) push: its waits -> fetch: at the head -> no wait left: valid -> ready."""
        m = Module()
        slots = [Signal(self.waits.shape(), name=f"waits{k}") for k in range(self.depth)]  # a ring
        stored, entering, leaving = (Signal(self.depth, name=name) for name in ("stored", "entering", "leaving"))
        reserved = Signal(range(self.depth + 1))
        has_room = Signal(init=1)
        head = Signal(range(self.depth))
        tail = Signal(range(self.depth))  # of what is pushed, or comes next
        there = Signal()
        taken = Signal()
        waiting = Cat(Cat(slot[name].needed for name in self._rings).any() for slot in slots)
        fetchable = (~there | taken) if self._refill else ~there
        m.d.comb += [
            self.room.eq(has_room), self.wanted.eq(stored.bit_select(self.next, 1) & fetchable),
            self.valid.eq(there & ~waiting.bit_select(head, 1)), taken.eq(self.valid & self.ready),
            entering.eq(self.push << tail), leaving.eq(self.fetch << self.next),
        ]
        m.d.sync += [
            reserved.eq(reserved + self.reserve - taken), stored.eq((stored | entering) & ~leaving),
            there.eq(self.fetch | (there & ~taken)),
        ]
        with m.If(taken):
            m.d.sync += has_room.eq(1)
        with m.Elif(self.reserve):
            m.d.sync += has_room.eq(reserved != self.depth - 1)
        m.d.sync += tail.eq(self.place)
        with m.If(self.reserve):
            m.d.sync += self.place.eq(after(self.place, self.depth))
        with m.If(self.fetch):
            m.d.sync += [head.eq(self.next), self.next.eq(after(self.next, self.depth))]
        for slot, enters in zip(slots, entering, strict=True):
            for name in self._rings:
                event, wait = self.events[name], slot[name]
                with m.If(enters):
                    m.d.sync += wait.eq(self.waits[name])
                with m.Elif(event.happens & (event.place == wait.place)):
                    m.d.sync += wait.needed.eq(0)
        return m


class OperationMemory(wiring.Component):
    """The fields of the queued operations. One operation is written and one fetched a cycle; several queues take turns.

    Queue k of ``depths`` writes ``operation`` at its ``place[k]`` with ``write[k]`` (one bit is set). ``fetch[k]``
    answers ``wanted[k]``: at once if there is one queue, else a cycle later or, if others are served first, more.
    From the cycle after ``fetch[k]`` on, ``heads[k]`` has what lies at ``next[k]``."""

    def __init__(self, operation: data.Layout, depths: tuple[int, ...]) -> None:
        self._operation, self._depths = operation, depths
        count, places = len(depths), data.ArrayLayout(range(max(depths)), len(depths))
        super().__init__({
            "write": In(count), "operation": In(operation), "place": In(places),
            "wanted": In(count), "next": In(places), "fetch": Out(count),
            "heads": Out(data.ArrayLayout(operation, count)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: one memory with a range of rows for each queue, and a head register for each."""
        m = Module()
        rows = sum(self._depths)
        m.submodules.rows = memory = Memory(shape=self._operation, depth=rows, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        if len(self._depths) == 1:
            m.d.comb += [self.fetch.eq(self.wanted), read.addr.eq(self.next[0])]
        else:
            m.submodules.turns = turns = RoundRobin(len(self._depths))
            m.d.comb += [turns.requests.eq(self.wanted & ~self.fetch), turns.advance.eq(1)]
            row = Signal.like(read.addr)  # ``next`` stays as it is until its fetch
            m.d.sync += [self.fetch.eq(turns.grant), row.eq(self._row(turns.grant, self.next))]
            m.d.comb += read.addr.eq(row)
        m.d.comb += [
            write.en.eq(self.write.any()), write.data.eq(self.operation),
            write.addr.eq(self._row(self.write, self.place)),
        ]
        for index, fetched in enumerate(self.fetch):
            head = Signal(self._operation, reset_less=True, name=f"head{index}")
            m.d.comb += self.heads[index].eq(head)
            with m.If(fetched):
                m.d.sync += head.eq(read.data)
        return m

    def _row(self, chosen, places):
        """Return the row of the chosen queue's place: the queues' rows lie one queue behind the other."""
        firsts = [sum(self._depths[:index]) for index in range(len(self._depths))]
        return select(chosen, [first + place for first, place in zip(firsts, places, strict=True)])
