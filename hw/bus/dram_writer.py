# SPDX-License-Identifier: Apache-2.0
"""The DRAM writer: DataMove from local memory to DRAM."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.bus.bursts import BurstSplitter, issue
from weft.hw.bus.segments import Geometry, Segments, count_operations, dram_segment_layout, fork
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import (
    BURSTS_BEFORE_DATA,
    OUTSTANDING_BURSTS,
    WRITER_BEATS_WAITING,
    WRITER_OPERATIONS_AHEAD,
    WRITER_VECTORS_AHEAD,
)
from weft.hw.parts.delay import delayed
from weft.hw.parts.gearbox import Gearbox, StreamFifo
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.ports import local_read_port, vector_layout
from weft.hw.parts.slices import sliced
from weft.hw.parts.walker import Walker


class DramWriter(wiring.Component):
    """Copy local memory to DRAM, operation after operation; addresses, segments and bursts are those of DramReader.

    ``operation``: the next is taken while data and responses of earlier ones are still to come. ``local_read``: a
    vector is requested only when there is room for it; scalars are sign-extended to their bytes. ``aw``, ``w``: neither
    waits for the other to be accepted. Up to ``BURSTS_BEFORE_DATA`` addresses go ahead of data, and up to
    ``OUTSTANDING_BURSTS`` bursts wait for responses. Beats are whole; strobes leave out bytes that belong to no vector
    of the segment. ``b``: always accepted.

    ``done``: a pulse for each operation, in order, the cycle after its last response. ``error``: a pulse the cycle
    after each response other than OKAY, with register slices a cycle later; the operation still drains. ``busy``: an
    operation was taken and is not done; otherwise no burst is outstanding either.

    Throughput: a beat or a vector a cycle, whichever is more bytes; a segment that ends inside a beat costs that
    beat. Latency: DRAM_REQUEST_LATENCY from an operation taken to awvalid, LOCAL_READ_LATENCY + 5 cycles to wvalid
    (+ 4 if a vector is a beat), with register slices one more."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "dram_read"))),
            "local_read": Out(local_read_port(arch)),
            **dict(axi.Axi4Write(arch.axi_address_width, arch.axi_data_width,
                                   axi.user_width(arch)).members.items()),
            "done": Out(1), "error": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: operation -> segments -> bursts -> aw; local memory -> vectors -> beats -> w; b -> done."""
        m = Module()
        m.submodules.segments = segments = Segments(self._arch)
        operation = operation_layout(self._arch, "dram_read")
        local = data.StructLayout({name: operation[name].shape for name in ("size_m1", "rows_m1", "local")})
        m.submodules.waiting = waiting = StreamFifo(local, WRITER_OPERATIONS_AHEAD)
        m.submodules.walker = walker = Walker(local, ("local",))
        fork(m, self.operation, segments.i, waiting.i)
        wiring.connect(m, waiting.o, walker.i)
        bursts, segment = self._bursts(m, segments)
        vectors = self._vectors(m, sliced(m, self._arch, "addresses", walker.o))
        beats = self._beats(m, vectors, segment)
        self._data(m, beats, bursts)
        m.d.comb += self.busy.eq(count_operations(
            m, self.operation.valid & self.operation.ready, self.done, OUTSTANDING_BURSTS + 8))
        return m

    def _bursts(self, m: Module, segments: Segments):
        """Send addresses. Return the bursts to send data for, and the segments to fill with vectors, as streams."""
        arch, segment = self._arch, dram_segment_layout(self._arch)
        m.submodules.splitter = splitter = BurstSplitter(segment, arch.axi_max_burst)
        m.submodules.to_fill = to_fill = StreamFifo(
            data.StructLayout({name: segment[name].shape for name in ("skip", "vectors_m1")}), BURSTS_BEFORE_DATA)
        m.submodules.to_send = to_send = StreamFifo(data.StructLayout({"len": 8}), BURSTS_BEFORE_DATA)
        m.submodules.to_answer = to_answer = StreamFifo(data.StructLayout({"last": 1}), OUTSTANDING_BURSTS)
        fork(m, segments.o, splitter.i, to_fill.i)
        issued = issue(m, splitter.o, self.aw, to_send.i.ready & to_answer.i.ready, arch.axi_data_width)
        burst = splitter.o.payload
        m.d.comb += [
            to_send.i.valid.eq(issued), to_send.i.payload.len.eq(burst.len),
            to_answer.i.valid.eq(issued), to_answer.i.payload.last.eq(burst.last & burst.segment.last),
            self.b.ready.eq(1), to_answer.o.ready.eq(self.b.valid),
        ]
        error = self.b.valid & (self.b.payload.resp != axi.Response.OKAY)
        m.d.sync += self.done.eq(self.b.valid & to_answer.o.payload.last)
        m.d.comb += self.error.eq(delayed(m, error, 1 + arch.register_slices, name="error", reset=True))
        return to_send.o, to_fill.o

    def _vectors(self, m: Module, addresses):
        """Return the stream of vectors read from local memory.

        A vector is requested only when a place is free for the answer."""
        request = self.local_read.request
        m.submodules.vectors = vectors = StreamFifo(vector_layout(self._arch), WRITER_VECTORS_AHEAD)
        places = Signal(range(WRITER_VECTORS_AHEAD + 1), init=WRITER_VECTORS_AHEAD)
        room = Signal(init=1)
        requested, used = request.valid & request.ready, vectors.o.valid & vectors.o.ready
        m.d.comb += [
            request.payload.eq(addresses.payload.local), request.valid.eq(addresses.valid & room),
            addresses.ready.eq(request.ready & room),
            vectors.i.payload.eq(self.local_read.response.payload),
            vectors.i.valid.eq(self.local_read.response.valid),
        ]
        m.d.sync += places.eq(places - requested + used)
        with m.If(used):
            m.d.sync += room.eq(1)
        with m.Elif(requested):
            m.d.sync += room.eq(places != 1)
        return vectors.o

    def _beats(self, m: Module, vectors, segment):
        """Return the stream of beats made of vectors; each segment begins ``skip`` units into its first beat."""
        geometry = Geometry(self._arch)
        m.submodules.gearbox = gearbox = Gearbox(
            geometry.unit_width, geometry.vector_units, geometry.beat_units, flush=True)
        word, count = gearbox.i.payload, Signal.like(segment.payload.vectors_m1)
        last = count == segment.payload.vectors_m1
        stored = [scalar.as_value() if isinstance(scalar, data.View) else scalar for scalar in vectors.payload]
        m.d.comb += [
            gearbox.i.valid.eq(vectors.valid & segment.valid), vectors.ready.eq(gearbox.i.ready & segment.valid),
            segment.ready.eq(gearbox.i.ready & vectors.valid & last),
            word.data.eq(Cat(self._extend(m, scalar, lane) for lane, scalar in enumerate(stored))),
            word.skip.eq(0), word.end.eq(geometry.vector_units), word.lead.eq(segment.payload.skip), word.last.eq(last),
        ]
        with m.If(gearbox.i.valid & gearbox.i.ready):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
        return gearbox.o

    def _extend(self, m: Module, scalar, lane: int) -> Signal:
        """Return a scalar as it lies in DRAM: sign-extended to whole bytes."""
        stored = Signal(unsigned(8 * self._arch.number.scalar_bytes), name=f"stored{lane}")
        m.d.comb += stored.eq(scalar)
        return stored

    def _data(self, m: Module, beats, bursts) -> None:
        """Send beats as bursts, through a FIFO, so that the gearbox does not wait for the ready of the bus."""
        unit_bytes = Geometry(self._arch).unit_bytes
        word = data.StructLayout({"data": len(beats.payload.data), "mask": len(beats.payload.mask), "last": 1})
        m.submodules.words = words = StreamFifo(word, WRITER_BEATS_WAITING)
        sent, ends = Signal(8), Signal()
        m.d.comb += [
            ends.eq(sent == bursts.payload.len), words.i.valid.eq(beats.valid & bursts.valid),
            beats.ready.eq(words.i.ready & bursts.valid), bursts.ready.eq(words.i.ready & beats.valid & ends),
            words.i.payload.data.eq(beats.payload.data), words.i.payload.mask.eq(beats.payload.mask),
            words.i.payload.last.eq(ends),
            self.w.valid.eq(words.o.valid), words.o.ready.eq(self.w.ready),
            self.w.payload.data.eq(words.o.payload.data), self.w.payload.last.eq(words.o.payload.last),
            self.w.payload.strb.eq(Cat(bit.replicate(unit_bytes) for bit in words.o.payload.mask)),
        ]
        with m.If(beats.valid & beats.ready):
            m.d.sync += sent.eq(sent + 1)
            with m.If(ends):
                m.d.sync += sent.eq(0)
