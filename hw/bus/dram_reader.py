# SPDX-License-Identifier: Apache-2.0
"""The DRAM reader: DataMove from DRAM to local memory."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.bus.bursts import BurstSplitter, issue
from weft.hw.bus.segments import Geometry, Segments, count_operations, dram_segment_layout, fork
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import (
    OUTSTANDING_BURSTS,
    READER_BEATS_WAITING,
    READER_OPERATIONS_AHEAD,
    READER_VECTORS_WAITING,
)
from weft.hw.parts.delay import delayed
from weft.hw.parts.gearbox import Gearbox, StreamFifo
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.ports import local_write_port
from weft.hw.parts.slices import fifo_of_two
from weft.hw.parts.walker import Walker


class DramReader(wiring.Component):
    """Copy DRAM to local memory, operation after operation. Addresses go out without waiting for earlier data.

    ``operation``: taken ahead of data; up to ``READER_OPERATIONS_AHEAD`` operations wait for their data while the
    addresses of later ones go out. Vector a of a window lies at byte window x 65536 + a x vector_bytes. A segment (a
    row of vectors; with a DRAM stride a single vector) is read by INCR bursts of full beats, up to ``axi_max_burst``,
    cut at multiples of it. Beats that two segments share are read for each. Up to ``OUTSTANDING_BURSTS`` bursts are
    outstanding.

    ``local_write``: vectors in program order (rows outer), scalars cut to the type's width. ``done``: a pulse for each
    operation, in order, in the cycle in which its last local write is taken. ``error``: a pulse for beats with a
    response other than OKAY, while their operation is the oldest that is not done. It comes no later than the
    operation's ``done``; with register slices both reach the interlock a cycle later. Such beats are used like any
    other, so that the operation drains. ``busy``: an operation was taken and is not done; otherwise no burst is
    outstanding either.

    Throughput: a beat or a vector a cycle, whichever is more bytes. Latency: DRAM_REQUEST_LATENCY from an operation
    taken to arvalid; 3 cycles from the beat that completes a vector to its local write (2 if a vector is a beat).
    ``r.ready`` depends on no other port in the same cycle."""

    assert READER_VECTORS_WAITING == 2, "fifo_of_two"

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "dram_read"))),
            "local_write": Out(local_write_port(arch)),
            **dict(axi.Axi4Read(arch.axi_address_width, arch.axi_data_width,
                                  axi.user_width(arch)).members.items()),
            "done": Out(1), "error": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: operation -> segments -> bursts -> ar; r -> beats -> gearbox -> vectors, with the walker's addresses ->
        local."""
        m = Module()
        arch, operation = self._arch, operation_layout(self._arch, "dram_read")
        local = data.StructLayout({name: operation[name].shape for name in ("size_m1", "rows_m1", "local")})
        m.submodules.segments = segments = Segments(arch)
        m.submodules.waiting = waiting = StreamFifo(local, READER_OPERATIONS_AHEAD)
        m.submodules.walker = walker = Walker(local, ("local",))
        fork(m, self.operation, segments.i, waiting.i)
        wiring.connect(m, waiting.o, walker.i)
        # A FIFO, so that local memory's arbitration ends here and not in the bus's handshakes.
        target = data.StructLayout({"address": arch.local_address_width, "last": 1})
        vector = data.StructLayout({"data": unsigned(8 * arch.vector_bytes), "target": target})
        m.submodules.vectors = vectors = fifo_of_two(arch, vector, "target")
        words, addresses, write, to_write = (
            self._read(m, segments), walker.o, self.local_write.request, vectors.o.payload)
        m.d.comb += [
            vectors.i.valid.eq(words.valid & addresses.valid), vectors.i.payload.data.eq(words.payload.data),
            vectors.i.payload.target.address.eq(addresses.payload.local),
            vectors.i.payload.target.last.eq(addresses.payload.last),
            words.ready.eq(vectors.i.ready & addresses.valid), addresses.ready.eq(vectors.i.ready & words.valid),
            write.valid.eq(vectors.o.valid), write.payload.address.eq(to_write.target.address),
            vectors.o.ready.eq(write.ready), self.done.eq(write.valid & write.ready & to_write.target.last),
            self.busy.eq(count_operations(m, self.operation.valid & self.operation.ready, self.done,
                                          READER_OPERATIONS_AHEAD + 1)),
        ]
        for lane, scalar in enumerate(write.payload.data):
            stored = to_write.data.word_select(lane, 8 * arch.number.scalar_bytes)
            m.d.comb += scalar.eq(stored[:arch.number.width])
        return m

    def _read(self, m: Module, segments: Segments):
        """Send bursts and take beats; return the stream of vectors from the gearbox."""
        arch, geometry, segment = self._arch, Geometry(self._arch), dram_segment_layout(self._arch)
        sizes = {name: segment[name].shape for name in ("skip", "end")}
        note = data.StructLayout({"first": 1, "last": 1, "ends": 1, **sizes})
        m.submodules.splitter = splitter = BurstSplitter(segment, arch.axi_max_burst)
        m.submodules.notes = notes = StreamFifo(note, OUTSTANDING_BURSTS)
        m.submodules.beats = beats = StreamFifo(axi.read_data_layout(arch.axi_data_width), READER_BEATS_WAITING)
        m.submodules.gearbox = gearbox = Gearbox(geometry.unit_width, geometry.beat_units, geometry.vector_units)
        wiring.connect(m, segments.o, splitter.i)
        wiring.connect(m, wiring.flipped(self.r), beats.i)
        m.d.comb += [
            notes.i.valid.eq(issue(m, splitter.o, self.ar, notes.i.ready, arch.axi_data_width)),
            *(notes.i.payload[name].eq(splitter.o.payload[name]) for name in ("first", "last")),
            *(notes.i.payload[name].eq(splitter.o.payload.segment[name]) for name in ("skip", "end")),
            notes.i.payload.ends.eq(splitter.o.payload.segment.last & splitter.o.payload.last),
        ]
        starts, beat, word = Signal(init=1), beats.o.payload, gearbox.i.payload  # starts: the next beat starts a burst
        m.d.comb += [
            gearbox.i.valid.eq(beats.o.valid), beats.o.ready.eq(gearbox.i.ready), word.data.eq(beat.data),
            word.skip.eq(Mux(starts & notes.o.payload.first, notes.o.payload.skip, 0)),
            word.end.eq(Mux(beat.last & notes.o.payload.last, notes.o.payload.end, geometry.beat_units)),
            notes.o.ready.eq(beats.o.valid & beats.o.ready & beat.last),
        ]
        used = beats.o.valid & beats.o.ready
        with m.If(used):
            m.d.sync += starts.eq(beat.last)
        # A cycle later: no vector of theirs has reached local memory by then.
        bad, ends = Signal(), Signal()
        m.d.sync += [bad.eq(used & (beat.resp != axi.Response.OKAY)), ends.eq(used & beat.last & notes.o.payload.ends)]
        slices = arch.register_slices
        self._report(m, *(delayed(m, pulse, slices, name=f"{name}_late", reset=True)
                          for name, pulse in (("bad", bad), ("ends", ends), ("done", self.done))))
        return gearbox.o

    def _report(self, m: Module, bad, ends, done) -> None:
        """Pulse ``error`` for a bad beat once its operation is the oldest that is not done.

        ``ends``: the last beat of an operation went into the gearbox; its vectors may still be on their way out."""
        inside, before = (Signal(range(READER_OPERATIONS_AHEAD + 1), name=name) for name in ("inside", "before"))
        m.d.sync += inside.eq(inside + ends - done)
        with m.If(before != 0):
            m.d.sync += before.eq(before - done)
        with m.Elif(bad):
            m.d.sync += before.eq(inside - done)
        late = Signal()
        m.d.sync += late.eq(done & Mux(before != 0, before == 1, bad & (inside == 1)))
        m.d.comb += self.error.eq(late | (bad & (before == 0) & (inside == 0)))
