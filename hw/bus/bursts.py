# SPDX-License-Identifier: Apache-2.0
"""The burst splitter of DRAM readers and writers: from segments to bursts on an address channel."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.bus.segments import Segments
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.timing import DRAM_REQUEST_LATENCY


def burst_layout(segment: data.StructLayout) -> data.StructLayout:
    """Return the layout of one burst.

    ``beat``: its first beat, ``len`` = beats - 1, ``first`` and ``last`` of its ``segment``, and the segment itself."""
    return data.StructLayout({"beat": segment["beat"].shape, "len": 8, "first": 1, "last": 1, "segment": segment})


class BurstSplitter(wiring.Component):
    """Cut segments into bursts at multiples of ``max_burst`` beats (a power of two), so never across 4 KiB.

    All bursts of a segment but its first and last have ``max_burst`` beats. One burst leaves a cycle, also from
    segment to segment. LATENCY: cycles from a segment taken to its first burst. While ``cancel`` is high the segment
    inside is dropped and none is taken."""

    LATENCY = 1

    def __init__(self, segment: data.StructLayout, max_burst: int) -> None:
        self._segment, self._beat_bits = segment, bits_to_count(max_burst)
        super().__init__({
            "i": In(stream.Signature(segment)), "o": Out(stream.Signature(burst_layout(segment))), "cancel": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: i -> beats counted from a multiple of max_burst -> a burst a cycle, its number counted up -> o."""
        m, burst = Module(), self.o.payload
        bits, new = self._beat_bits, self.i.payload
        # Both counted from the last multiple of max_burst before the segment's first beat.
        first_beat, last_beat = (Signal(bits, name=name, reset_less=True) for name in ("first_beat", "last_beat"))
        segment = Signal(self._segment, reset_less=True)
        first, last = (Signal(name=name, reset_less=True) for name in ("first", "last"))
        end = Signal(max(len(new.beats_m1), bits) + 1)
        number, last_number = (Signal(len(end) - bits, name=name, reset_less=True)
                               for name in ("number", "last_number"))
        following = Signal.like(number)
        m.d.comb += [
            end.eq(new.beat[:bits] + new.beats_m1),
            burst.segment.eq(segment), burst.first.eq(first), burst.last.eq(last), following.eq(number + 1),
            burst.beat.eq(Cat(first_beat, segment.beat[bits:] + number)),
            burst.len.eq(Mux(last, last_beat, Const((1 << bits) - 1, bits)) - first_beat),
            self.i.ready.eq((~self.o.valid | (self.o.ready & last)) & ~self.cancel),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [first.eq(0), self.o.valid.eq(~last), first_beat.eq(0), number.eq(following),
                         last.eq(following == last_number)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                self.o.valid.eq(1), first.eq(1), segment.eq(new), first_beat.eq(new.beat[:bits]),
                last_beat.eq(end[:bits]), last_number.eq(end[bits:]), number.eq(0), last.eq(end[bits:] == 0),
            ]
        with m.If(self.cancel):
            m.d.sync += self.o.valid.eq(0)
        return m


assert Segments.LATENCY + BurstSplitter.LATENCY + 1 == DRAM_REQUEST_LATENCY, "and the register in issue()"


def issue(m: Module, bursts, channel, room, data_width: int) -> Value:
    """Join a splitter's bursts to an address channel through a register, held back without ``room``.

    If the channel has AxUSER, it is 1 for DRAM1. Return a strobe that is high in the cycle in which a burst enters
    the register: the moment to note it elsewhere. From then on it is offered until it is taken."""
    issued, address, size = Signal(), channel.payload, axi.size_log2(data_width)
    m.d.comb += [
        bursts.ready.eq(room & (~channel.valid | channel.ready)), issued.eq(bursts.valid & bursts.ready),
        address.size.eq(size), address.burst.eq(axi.Burst.INCR),
    ]
    segment = bursts.payload.segment
    sources = {"beat": bursts.payload.beat, "len": bursts.payload.len, "cache": segment.cache,
               **({"user": segment.dram1} if "user" in address.shape().members else {})}
    kept = {name: Signal.like(source, name=f"burst_{name}", reset_less=True) for name, source in sources.items()}
    m.d.comb += [address.addr.eq(Cat(Const(0, size), kept["beat"])),
                 *(address[name].eq(value) for name, value in kept.items() if name != "beat")]
    with m.If(channel.ready):
        m.d.sync += channel.valid.eq(0)
    with m.If(issued):
        m.d.sync += [channel.valid.eq(1), *(kept[name].eq(source) for name, source in sources.items())]
    return issued
