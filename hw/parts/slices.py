# SPDX-License-Identifier: Apache-2.0
"""Handshakes cut by registers: what the architecture key ``register_slices`` puts between a machine's blocks."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import Arch
from weft.hw.parts.gearbox import StreamFifo


class RegisterSlice(wiring.Component):
    """A stream through registers both ways: ``o`` and ``i.ready`` come straight from flip-flops.

    Latency 1 cycle, one payload a cycle, holds two. It is for narrow payloads whose reader decides much in its
    cycle."""

    LATENCY = 1

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a register on offer, and a spare one."""
        m = Module()
        incoming, outgoing = Value.cast(self.i.payload), Value.cast(self.o.payload)
        payload, spare = (Signal(len(incoming), name=name, reset_less=True) for name in ("payload", "spare"))
        free = Signal(init=1)  # the spare register is
        moves = ~self.o.valid | self.o.ready
        m.d.comb += [outgoing.eq(payload), self.i.ready.eq(free)]
        with m.If(moves):
            m.d.sync += [self.o.valid.eq(self.i.valid | ~free), free.eq(1)]
            with m.If(free):
                m.d.sync += payload.eq(incoming)
            with m.Else():
                m.d.sync += payload.eq(spare)
        with m.Elif(self.i.valid):
            m.d.sync += free.eq(0)
        with m.If(free):
            m.d.sync += spare.eq(incoming)
        return m


class Stage(wiring.Component):
    """One register of a pipeline that can stall: latency 1 cycle, one payload a cycle.

    ``i.ready`` follows ``o.ready`` in the same cycle."""

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: one register."""
        m = Module()
        payload = Signal(len(Value.cast(self.o.payload)), reset_less=True)
        m.d.comb += [self.i.ready.eq(~self.o.valid | self.o.ready), Value.cast(self.o.payload).eq(payload)]
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), payload.eq(self.i.payload)]
        return m


class PingPong(wiring.Component):
    """A FIFO of two registers, filled in turn, for wide payloads.

    Each register's enable is a flip-flop that says whether it is free, and ``o.ready`` moves pointers only.
    ``narrow``: fields that the reader decides by. They go through a :class:`RegisterSlice` instead: they come
    straight from flip-flops and do not wait for the pointer that drives the wide fields. Latency 1 cycle, one
    payload a cycle, holds two. Neither valid nor ready depends on the other side in the same cycle."""

    def __init__(self, shape: ShapeLike, narrow: tuple[str, ...] = ()) -> None:
        self._shape, self._narrow = shape, narrow
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: two registers, their flags and pointers, and a slice for the narrow fields."""
        m = Module()
        incoming, outgoing = self._wide(self.i.payload), self._wide(self.o.payload)
        places = [Signal(len(incoming), name=f"place{index}", reset_less=True) for index in (0, 1)]
        newest, oldest = (Signal(name=name) for name in ("newest", "oldest"))  # where to write, where to read
        free = Signal(init=1)  # a place is
        open_places = [Signal(name=f"open{index}", init=1) for index in (0, 1)]  # this one is: it follows the input
        enters, leaves = self.i.valid & free, self.o.valid & self.o.ready
        m.d.comb += [self.i.ready.eq(free), outgoing.eq(Mux(oldest, places[1], places[0]))]
        for index, (place, is_open) in enumerate(zip(places, open_places, strict=True)):
            with m.If(is_open):
                m.d.sync += place.eq(incoming)
            with m.If(enters & (newest == index)):
                m.d.sync += is_open.eq(0)
            with m.If(leaves & (oldest == index)):
                m.d.sync += is_open.eq(1)
        m.d.sync += [newest.eq(newest ^ enters), oldest.eq(oldest ^ leaves)]
        with m.If(enters & ~leaves):
            m.d.sync += [self.o.valid.eq(1), free.eq(~self.o.valid)]
        with m.Elif(leaves & ~enters):
            m.d.sync += [self.o.valid.eq(~free), free.eq(1)]
        if self._narrow:
            self._slice(m)
        return m

    def _wide(self, payload) -> Value:
        """Return the fields of a payload that are not narrow."""
        if not self._narrow:
            return Value.cast(payload)
        return Cat(payload[name] for name in self._shape.members if name not in self._narrow)

    def _slice(self, m: Module) -> None:
        """Pass the narrow fields through a slice.

        It always holds as many payloads as the two registers, so its handshakes are theirs."""
        layout = data.StructLayout({name: self._shape[name].shape for name in self._narrow})
        m.submodules.narrow = narrow = RegisterSlice(layout)
        m.d.comb += [narrow.i.valid.eq(self.i.valid), narrow.o.ready.eq(self.o.ready)]
        for name in self._narrow:
            m.d.comb += [narrow.i.payload[name].eq(self.i.payload[name]),
                         self.o.payload[name].eq(narrow.o.payload[name])]


def sliced(m: Module, arch: Arch, name: str, source):
    """Return the stream ``source``, with ``register_slices`` a cycle later through a :class:`RegisterSlice`."""
    if not arch.register_slices:
        return source
    m.submodules[name] = register = RegisterSlice(source.payload.shape())
    connect(m, source, register.i)
    return register.o


def fifo_of_two(arch: Arch, shape: ShapeLike, *narrow: str):
    """Return a FIFO of two payloads that cuts ``ready`` on every machine.

    It is a memory, with ``register_slices`` two registers, whose valid is a flip-flop."""
    return PingPong(shape, narrow) if arch.register_slices else StreamFifo(shape, 2)


def stage(m: Module, arch: Arch, name: str, shape: ShapeLike, *narrow: str):
    """Return a stage of a pipeline that can stall: one register, with ``register_slices`` a :class:`PingPong`.

    ``narrow``: fields that its reader decides by."""
    m.submodules[name] = result = PingPong(shape, narrow) if arch.register_slices else Stage(shape)
    return result
