# SPDX-License-Identifier: Apache-2.0
"""Programs from memory: an AXI4 read master that delivers the beats that the instruction stream would."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.bus.bursts import BurstSplitter, issue
from weft.hw.bus.segments import segment_layout
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import OUTSTANDING_BURSTS, program_burst
from weft.hw.parts.gearbox import StreamFifo

BYTES_WIDTH = 32


class ProgramReader(wiring.Component):
    """Read ``bytes`` bytes from byte ``address`` on, and give them out as AXI4-Stream beats, the last with ``last``.

    ``start``: a pulse that takes address (a multiple of ``stream_width`` / 8; lower bits are ignored) and bytes. It is
    ignored while busy, with ``stop``, and if bytes is 0. ``beats``: one beat a cycle; ``keep`` of the last one has the
    bytes that are left. ``stop``: no more bursts are requested, outstanding ones are accepted and thrown away, and a
    beat on offer is withdrawn. ``error``: a pulse at the first response other than OKAY, which stops likewise: no byte
    of it or after it comes out, so the beats then end without ``last``. ``busy``: from the cycle after start until the
    last beat was taken or, when stopped, until the last outstanding one arrived.

    Bursts are cut as DramReader's, to ``axi_max_burst`` beats or 4 KiB. Latency: REQUEST_LATENCY cycles from start
    to arvalid, 1 from a beat read to a beat out."""

    REQUEST_LATENCY = 1 + BurstSplitter.LATENCY + 1  # the segment's register, the address channel's

    def __init__(self, arch: Arch) -> None:
        self._width, self._address_width = arch.stream_width, arch.axi_address_width
        self._max_burst = program_burst(arch)
        super().__init__({
            "start": In(1), "stop": In(1), "address": In(arch.axi_address_width), "bytes": In(BYTES_WIDTH),
            **dict(axi.Axi4Read(arch.axi_address_width, arch.stream_width).members.items()),
            "beats": Out(axi.axi4_stream(arch.stream_width)),
            "busy": Out(1), "error": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: one segment from the start, its bursts on ar, and received beats, the last one cut."""
        m = Module()
        beat_bits, beat_bytes = axi.size_log2(self._width), self._width // 8
        segment = segment_layout(self._address_width, self._width, BYTES_WIDTH - beat_bits)
        m.submodules.splitter = splitter = BurstSplitter(segment, self._max_burst)
        m.submodules.notes = notes = StreamFifo(data.StructLayout({"last": 1}), OUTSTANDING_BURSTS)
        beat = data.StructLayout({"data": self._width, "last": 1, "bad": 1})
        m.submodules.received = received = StreamFifo(beat, 2)
        m.d.comb += [
            received.i.valid.eq(self.r.valid), self.r.ready.eq(received.i.ready),
            *(received.i.payload[name].eq(self.r.payload[name]) for name in ("data", "last")),
            received.i.payload.bad.eq(self.r.payload.resp != axi.Response.OKAY),
        ]

        request, tail, begin = splitter.i.payload, Signal(range(beat_bytes)), Signal()  # tail: bytes of the last beat
        m.d.comb += begin.eq(self.start & ~self.stop & ~self.busy & (self.bytes != 0))
        with m.If(begin):
            m.d.sync += [
                splitter.i.valid.eq(1), request.beat.eq(self.address[beat_bits:]),
                request.beats_m1.eq((self.bytes - 1)[beat_bits:BYTES_WIDTH]), tail.eq(self.bytes[:beat_bits]),
            ]
        with m.Elif(splitter.i.ready | splitter.cancel):
            m.d.sync += splitter.i.valid.eq(0)
        m.d.comb += [
            notes.i.valid.eq(issue(m, splitter.o, self.ar, notes.i.ready & ~splitter.cancel, self._width)),
            notes.i.payload.last.eq(splitter.o.payload.last),
        ]
        self._deliver(m, begin, notes, received.o, splitter, tail)
        return m

    def _deliver(self, m: Module, begin, notes, received, splitter, tail) -> None:
        """Give beats out, or throw them away once the program is broken off."""
        beat_bytes = self._width // 8
        broken, bad, discard = Signal(), Signal(), Signal()
        last = received.payload.last & notes.o.payload.last
        keep = Mux(last & (tail != 0), (Const(1, beat_bytes + 1) << tail) - 1, Const(-1, beat_bytes))
        m.d.comb += [
            bad.eq(received.valid & received.payload.bad & ~broken),
            discard.eq(broken | bad | self.stop), splitter.cancel.eq(discard),
            self.beats.valid.eq(received.valid & ~discard), received.ready.eq(self.beats.ready | discard),
            self.beats.payload.data.eq(received.payload.data), self.beats.payload.last.eq(last),
            self.beats.payload.keep.eq(keep),
            notes.o.ready.eq(received.valid & received.ready & received.payload.last), self.error.eq(bad),
        ]
        requesting = Cat(splitter.i.valid, splitter.o.valid, self.ar.valid, notes.o.valid).any()
        with m.If(begin):
            m.d.sync += [self.busy.eq(1), broken.eq(0)]
        with m.Elif((self.beats.valid & self.beats.ready & last) | (discard & ~requesting)):
            m.d.sync += [self.busy.eq(0), broken.eq(0)]
        with m.Elif(self.busy & discard):
            m.d.sync += broken.eq(1)
