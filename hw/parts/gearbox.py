# SPDX-License-Identifier: Apache-2.0
"""Between words of different sizes: beats and vectors, beats and instructions."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from weft.hw.contract.numerics import bits_to_count


class StreamFifo(wiring.Component):
    """A first-in, first-out queue of ``depth`` payloads between two streams.

    Neither valid nor ready depends on the other side in the same cycle. Latency 1 cycle; one payload a cycle from
    depth 2 up. ``level``: the number of payloads inside."""

    LATENCY = 1

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self._depth = depth
        super().__init__({
            "i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "level": Out(range(depth + 1)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: Amaranth's FIFO behind two streams."""
        m = Module()
        incoming, outgoing = Value.cast(self.i.payload), Value.cast(self.o.payload)
        m.submodules.fifo = fifo = SyncFIFO(width=len(incoming), depth=self._depth)
        m.d.comb += [
            fifo.w_data.eq(incoming), fifo.w_en.eq(self.i.valid), self.i.ready.eq(fifo.w_rdy),
            outgoing.eq(fifo.r_data), self.o.valid.eq(fifo.r_rdy), fifo.r_en.eq(self.o.ready),
            self.level.eq(fifo.level),
        ]
        return m


def word_in_layout(unit_width: int, units_in: int, units_out: int) -> data.StructLayout:
    """Return the layout of an input word of a :class:`Gearbox`.

    ``data``: units ``skip`` .. ``end`` - 1 count. ``lead``: output units left out before a segment's first.
    ``last``: it is the segment's last word."""
    return data.StructLayout({
        "data": unsigned(unit_width * units_in),
        "skip": unsigned(bits_to_count(units_in)), "end": unsigned(bits_to_count(units_in + 1)),
        "lead": unsigned(bits_to_count(units_out)), "last": 1,
    })


def word_out_layout(unit_width: int, units_out: int) -> data.StructLayout:
    """Return the layout of an output word of a :class:`Gearbox`; ``mask`` has one bit for each unit that was filled."""
    return data.StructLayout({"data": unsigned(unit_width * units_out), "mask": unsigned(units_out)})


class Gearbox(wiring.Component):
    """Turn words of ``units_in`` units into words of ``units_out`` units; the units keep their order.

    A segment ends with an input word that has ``last``. If a part of an output word is left then, it comes out with a
    partial mask (``flush``) or is dropped (not ``flush``). So each segment begins at the first unit of an output word,
    or with ``flush`` at unit ``lead``, read from the segment's first word. Without ``last`` all is one segment. Without
    ``flush`` an input word may be empty (``end`` = ``skip``).

    Latency: 1 cycle from the input word that completes an output word; 0 if both words are one unit and the gearbox
    is just wires. Full throughput: one word a cycle on the narrower side while no segment ends; a segment's end
    costs nothing with ``flush``, at most one cycle without. ``i.ready`` depends on ``o.ready`` in the same cycle;
    the output word is stable until taken. ``empty``: no unit is inside."""

    def __init__(self, unit_width: int, units_in: int, units_out: int, *, flush: bool = False) -> None:
        self._unit_width, self._units_in, self._units_out, self._flush = unit_width, units_in, units_out, flush
        self._capacity = units_in + units_out - 1
        super().__init__({
            "i": In(stream.Signature(word_in_layout(unit_width, units_in, units_out))),
            "o": Out(stream.Signature(word_out_layout(unit_width, units_out))),
            "empty": Out(1),
        })

    @property
    def latency(self) -> int:
        """The cycles from the input word that completes an output word to this word."""
        return int(self._units_in != 1 or self._units_out != 1)

    @staticmethod
    def reference(words: list[dict], units_out: int, *, flush: bool) -> list[list[int | None]]:
        """Return the output words, with None for units whose mask is 0.

        ``words``: dicts {units: list, skip, end, lead, last}."""
        result: list[list[int | None]] = []
        held: list[int | None] = []
        fresh = True
        for word in words:
            held += [None] * word["lead"] if fresh and flush else []
            held += word["units"][word["skip"]:word["end"]]
            fresh = word["last"]
            if fresh and flush:
                held += [None] * (-len(held) % units_out)
            while len(held) >= units_out:
                result.append(held[:units_out])
                held = held[units_out:]
            held = [] if fresh else held
        return result

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: i -> placed behind the units inside -> store, moved down by each word taken -> o: its first units."""
        m = Module()
        if self.latency == 0:
            m.d.comb += [
                self.o.payload.data.eq(self.i.payload.data), self.o.payload.mask.eq(1), self.empty.eq(1),
                self.o.valid.eq(self.i.valid & (self.i.payload.end != 0)),
                self.i.ready.eq(self.o.ready | (self.i.payload.end == 0)),
            ]
            return m
        units_out = self._units_out
        level, closing = Signal(range(self._capacity + 1)), Signal()
        taken, emptied, remaining = Signal(), Signal(), Signal(range(self._capacity + 1))
        if self._flush:
            ends = closing & (level <= units_out) & self.o.ready
            valid = (level >= units_out) | closing
        else:
            ends = closing & ((level < units_out) | ((level < 2 * units_out) & self.o.ready))
            valid = level >= units_out
        m.d.comb += [
            self.o.valid.eq(valid), taken.eq(self.o.valid & self.o.ready), emptied.eq(ends),
            remaining.eq(Mux(emptied, 0, Mux(taken, level - units_out, level))),
            self.i.ready.eq((~closing | emptied) & (remaining < units_out)),
            self.empty.eq(level == 0),
        ]
        accept, position = self.i.valid & self.i.ready, Signal(range(units_out))
        self._holes(m, accept, taken, level, remaining, position)
        m.d.sync += level.eq(remaining)
        with m.If(emptied):
            m.d.sync += closing.eq(0)
        with m.If(accept):
            word = self.i.payload
            m.d.sync += [level.eq(position + word.end - word.skip), closing.eq(word.last)]
        self._store(m, taken, position)
        return m

    def _holes(self, m: Module, accept, taken, level, remaining, position) -> None:
        """Compute the place of the next unit, and the mask of the output word."""
        m.d.comb += position.eq(remaining)
        if not self._flush:
            m.d.comb += self.o.payload.mask.eq(~0)
            return
        fresh, holes = Signal(init=1), Signal(range(self._units_out))
        with m.If(taken):
            m.d.sync += holes.eq(0)
        with m.If(fresh):
            m.d.comb += position.eq(self.i.payload.lead)
        with m.If(accept):
            m.d.sync += fresh.eq(self.i.payload.last)
            with m.If(fresh):
                m.d.sync += holes.eq(self.i.payload.lead)
        m.d.comb += self.o.payload.mask.eq(Cat((unit >= holes) & (unit < level) for unit in range(self._units_out)))

    def _store(self, m: Module, taken, position) -> None:
        """Keep the units inside, oldest first.

        A word taken moves them down. Whatever is offered fills them from ``position`` up while there is room;
        ``level`` tells whether it was accepted."""
        width, word = self._unit_width, self.i.payload
        store = [Signal(width, reset_less=True, name=f"unit{index}") for index in range(self._capacity)]
        if self._units_in == 1:
            fresh = [word.data] * self._capacity
        else:
            places = Signal(range(self._capacity))
            m.d.comb += places.eq(word.skip + (self._units_out - 1) - position)
            moved = Signal(width * self._capacity)
            m.d.comb += moved.eq(Cat(Const(0, width * (self._units_out - 1)), word.data) >> (places * width))
            fresh = [moved.word_select(index, width) for index in range(self._capacity)]
        for index, unit in enumerate(store):
            if index + self._units_out < self._capacity:
                with m.If(taken):
                    m.d.sync += unit.eq(store[index + self._units_out])
            with m.If(self.i.ready & (index >= position)):
                m.d.sync += unit.eq(fresh[index])
        m.d.comb += self.o.payload.data.eq(Cat(store[:self._units_out]))
