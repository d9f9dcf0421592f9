"""DRAM to local memory, and what it shares with its twin in ``dram_writer.py``: segments and bursts."""

from __future__ import annotations

import math

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.contract.arch import Arch, bits_to_count
from weft.hw.contract.isa import DRAM_OFFSET_BYTES
from weft.hw.contract.timing import DRAM_REQUEST_LATENCY
from weft.hw.parts.delay import delayed
from weft.hw.parts.gearbox import Gearbox, StreamFifo
from weft.hw.parts.operations import CACHE_WIDTH, dram_layout, size_width
from weft.hw.parts.ports import local_write_port
from weft.hw.parts.slices import fifo_of_two, stage
from weft.hw.parts.walker import Walker

OUTSTANDING_BURSTS = 32
"""Bursts requested and not yet answered, at most, of one reader or writer."""
OPERATIONS_AHEAD = 16
"""Operations that wait for their data while the addresses of later ones are requested."""


class Geometry:
    """How vectors lie on the bus. A unit is the largest piece in which every vector starts and every beat ends."""

    def __init__(self, arch: Arch) -> None:
        self.beat_bytes = arch.axi_data_width // 8
        self.unit_bytes = math.gcd(arch.vector_bytes, self.beat_bytes)
        self.vector_units = arch.vector_bytes // self.unit_bytes
        self.beat_units = self.beat_bytes // self.unit_bytes
        self.beat_units_log2 = bits_to_count(self.beat_units)
        self.unit_bytes_log2 = bits_to_count(self.unit_bytes)
        self.unit_width = 8 * self.unit_bytes
        most_units = (self.vector_units << size_width(arch)) + self.beat_units - 2
        self.beats_width = max((most_units >> self.beat_units_log2).bit_length(), 1)


def segment_layout(address_width: int, data_width: int, beats_width: int, **fields: object) -> data.StructLayout:
    """A contiguous run of ``beats_m1`` + 1 beats from ``beat`` on, an address in beats; ``fields``: what goes along."""
    return data.StructLayout({
        "beat": unsigned(address_width - axi.size_log2(data_width)), "beats_m1": unsigned(beats_width),
        "cache": CACHE_WIDTH, **fields,
    })


def dram_segment_layout(arch: Arch) -> data.StructLayout:
    """``skip``: units of the first beat before the first vector; ``end``: units of the last beat that count.

    ``vectors_m1`` + 1 vectors; ``last``: of its operation.
    """
    geometry = Geometry(arch)
    return segment_layout(
        arch.axi_address_width, arch.axi_data_width, geometry.beats_width,
        skip=unsigned(bits_to_count(geometry.beat_units)), end=unsigned(bits_to_count(geometry.beat_units + 1)),
        vectors_m1=unsigned(size_width(arch)), last=1)


def times(value, factor: int):
    """``value`` times a constant, as a sum of shifts: a multiplier block would be wasted on it."""
    return sum((value << bit for bit in range(factor.bit_length()) if factor >> bit & 1), start=Const(0))


class Segments(wiring.Component):
    """DRAM operations in, the contiguous segments of their DRAM side out, one a cycle.

    A row of vectors without a stride is one segment, else each vector is one. Latency: 3 cycles from an operation
    taken to its first segment. The next operation is taken with the last piece of the one before.
    """

    LATENCY = 3

    def __init__(self, arch: Arch) -> None:
        self._arch, self._geometry = arch, Geometry(arch)
        super().__init__({
            "i": In(stream.Signature(dram_layout(arch))), "o": Out(stream.Signature(dram_segment_layout(arch))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        operation = dram_layout(self._arch)
        pieces = data.StructLayout({
            **{name: operation[name].shape for name in ("size_m1", "rows_m1", "dram", "window", "cache")},
            "vectors_m1": unsigned(size_width(self._arch)),
        })
        m.submodules.walker = walker = Walker(pieces, ("dram",))
        m.submodules.segments = segments = StreamFifo(dram_segment_layout(self._arch), 2)
        wiring.connect(m, segments.o, wiring.flipped(self.o))
        whole_rows = self.i.payload.dram.stride_log2 == 0
        m.d.comb += [
            walker.i.valid.eq(self.i.valid), self.i.ready.eq(walker.i.ready),
            *(walker.i.payload[name].eq(self.i.payload[name]) for name in ("rows_m1", "dram", "window", "cache")),
            walker.i.payload.size_m1.eq(Mux(whole_rows, 0, self.i.payload.size_m1)),
            walker.i.payload.vectors_m1.eq(Mux(whole_rows, self.i.payload.size_m1, 0)),
        ]
        self._addresses(m, walker, segments.i)
        return m

    def _addresses(self, m: Module, walker: Walker, segment) -> None:
        """From vectors to units (a product, registered), then to beats (a sum, into a FIFO: that cuts ready's way)."""
        geometry, piece, unit_bits = self._geometry, walker.o.payload, self._geometry.unit_bytes_log2
        product = stage(m, self._arch, "product", data.StructLayout({
            "start": len(piece.dram) + bits_to_count(geometry.vector_units + 1),
            "units_m1": size_width(self._arch) + bits_to_count(geometry.vector_units + 1),
            "window": len(piece.operation.window), "cache": CACHE_WIDTH, "vectors_m1": size_width(self._arch),
            "last": 1,
        }))
        scaling, scaled = product.i.payload, product.o.payload
        m.d.comb += [
            walker.o.ready.eq(product.i.ready), product.i.valid.eq(walker.o.valid), product.o.ready.eq(segment.ready),
            scaling.start.eq(times(piece.dram, geometry.vector_units)),
            scaling.units_m1.eq(times(piece.operation.vectors_m1, geometry.vector_units)
                                + (geometry.vector_units - 1)),
            scaling.last.eq(piece.last),
            *(scaling[name].eq(piece.operation[name]) for name in ("window", "cache", "vectors_m1")),
        ]
        window_shift = bits_to_count(DRAM_OFFSET_BYTES) - unit_bits
        start = Signal(self._arch.axi_address_width - unit_bits)  # the window lies below 2**axi_address_width
        skip = start[:geometry.beat_units_log2]
        last_unit = Signal(geometry.beats_width + geometry.beat_units_log2)  # counted from the first beat's first unit
        m.d.comb += [
            start.eq(Cat(Const(0, window_shift), scaled.window) + scaled.start),
            last_unit.eq(skip + scaled.units_m1),
            segment.valid.eq(product.o.valid), segment.payload.beat.eq(start[geometry.beat_units_log2:]),
            segment.payload.skip.eq(skip), segment.payload.beats_m1.eq(last_unit[geometry.beat_units_log2:]),
            segment.payload.end.eq(last_unit[:geometry.beat_units_log2] + 1),
            *(segment.payload[name].eq(scaled[name]) for name in ("cache", "vectors_m1", "last")),
        ]


def burst_layout(segment: data.StructLayout) -> data.StructLayout:
    """One burst: its first beat, ``len`` = beats - 1, ``first`` and ``last`` of its segment, and the segment."""
    return data.StructLayout({"beat": segment["beat"].shape, "len": 8, "first": 1, "last": 1, "segment": segment})


class BurstSplitter(wiring.Component):
    """Cuts segments into bursts at multiples of ``max_burst`` beats (a power of two), so never across 4 KiB.

    All bursts of a segment but its first and last have ``max_burst`` beats. One burst a cycle, also from segment to
    segment; latency 1 cycle. ``cancel`` drops the segment inside and takes none.
    """

    LATENCY = 1

    def __init__(self, segment: data.StructLayout, max_burst: int) -> None:
        self._segment, self._beat_bits = segment, bits_to_count(max_burst)
        super().__init__({
            "i": In(stream.Signature(segment)), "o": Out(stream.Signature(burst_layout(segment))), "cancel": In(1),
        })

    def elaborate(self, platform: object) -> Module:
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


def issue(m: Module, bursts, channel, room, data_width: int) -> Value:
    """Joins a splitter's bursts to an address channel through a register, held back without ``room``.

    Returns the strobe of the cycle in which a burst enters the register: the moment to note it elsewhere. Once there,
    it is offered until it is taken.
    """
    issued, address, size = Signal(), channel.payload, axi.size_log2(data_width)
    m.d.comb += [
        bursts.ready.eq(room & (~channel.valid | channel.ready)), issued.eq(bursts.valid & bursts.ready),
        address.size.eq(size), address.burst.eq(axi.Burst.INCR),
    ]
    beat, length, cache = (Signal.like(source, name=name, reset_less=True) for source, name in (
        (bursts.payload.beat, "burst_beat"), (bursts.payload.len, "burst_len"),
        (bursts.payload.segment.cache, "burst_cache")))
    m.d.comb += [address.addr.eq(Cat(Const(0, size), beat)), address.len.eq(length), address.cache.eq(cache)]
    with m.If(channel.ready):
        m.d.sync += channel.valid.eq(0)
    with m.If(issued):
        m.d.sync += [
            channel.valid.eq(1), beat.eq(bursts.payload.beat), length.eq(bursts.payload.len),
            cache.eq(bursts.payload.segment.cache),
        ]
    return issued


def fork(m: Module, source, *sinks) -> None:
    """Hands each payload of ``source`` to all of ``sinks`` in one cycle; fields of the same name are copied."""
    ready = Cat(sink.ready for sink in sinks).all()
    m.d.comb += source.ready.eq(ready)
    for sink in sinks:
        m.d.comb += sink.valid.eq(source.valid & ready)
        m.d.comb += [sink.payload[name].eq(source.payload[name]) for name, _ in sink.payload.shape()]


def count_operations(m: Module, taken, done, most: int) -> Value:
    """Whether an operation was taken and is not done; at most ``most`` at a time."""
    count = Signal(range(most + 1))
    m.d.sync += count.eq(count + taken - done)
    return count != 0


class DramReader(wiring.Component):
    """Copies DRAM to local memory, operation after operation, and nothing waits for the data but the data.

    ``operation``: taken ahead of data; up to ``OPERATIONS_AHEAD`` wait for their data while the addresses of later ones
    go out. Vector a of a window lies at byte window x 65536 + a x vector_bytes. A segment (a row of vectors; with a
    DRAM stride a single vector) is read by INCR bursts of full beats, up to ``axi_max_burst``, cut at multiples of
    it; beats shared by two segments are read for each. Up to ``OUTSTANDING_BURSTS`` are outstanding.
    ``local_write``: vectors in program order (rows outer), scalars cut to the type's width.
    ``done``: a pulse for each operation, in order, in the cycle in which its last local write is taken.
    ``error``: a pulse for beats with a response other than OKAY, while their operation is the oldest that is not done
    (its own ``done`` included; with register slices of the ``done`` a cycle ago, which the interlock hears then); the
    beats are used like any other, so that the operation drains.
    ``busy``: an operation was taken and is not done; then no burst is outstanding either.

    Throughput: a beat or a vector a cycle, whichever is more bytes. Latency: 5 cycles from an operation taken to
    arvalid, 3 from the beat that completes a vector to its local write (2 where a vector is a beat). ``r.ready``
    depends on no other port in the same cycle.
    """

    REQUEST_LATENCY = DRAM_REQUEST_LATENCY

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(dram_layout(arch))),
            "local_write": Out(local_write_port(arch)),
            **dict(axi.Axi4Read(arch.axi_address_width, arch.axi_data_width).members.items()),
            "done": Out(1), "error": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arch, operation = self._arch, dram_layout(self._arch)
        local = data.StructLayout({name: operation[name].shape for name in ("size_m1", "rows_m1", "local")})
        m.submodules.segments = segments = Segments(arch)
        m.submodules.waiting = waiting = StreamFifo(local, OPERATIONS_AHEAD)
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
                                          OPERATIONS_AHEAD + 1)),
        ]
        for lane, scalar in enumerate(write.payload.data):
            stored = to_write.data.word_select(lane, 8 * arch.number.scalar_bytes)
            m.d.comb += scalar.eq(stored[:arch.number.width])
        return m

    def _read(self, m: Module, segments: Segments):
        """Bursts out, beats in, vectors out of the gearbox."""
        arch, geometry, segment = self._arch, Geometry(self._arch), dram_segment_layout(self._arch)
        sizes = {name: segment[name].shape for name in ("skip", "end")}
        note = data.StructLayout({"first": 1, "last": 1, "ends": 1, **sizes})
        m.submodules.splitter = splitter = BurstSplitter(segment, arch.axi_max_burst)
        m.submodules.notes = notes = StreamFifo(note, OUTSTANDING_BURSTS)
        m.submodules.beats = beats = StreamFifo(axi.read_data_layout(arch.axi_data_width), 2)
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
        """``error`` for a bad beat, put off until its operation is the oldest that is not done. ``ends``: the last beat
        of an operation went into the gearbox, whose vectors may still be on their way out."""
        inside, before = (Signal(range(OPERATIONS_AHEAD + 1), name=name) for name in ("inside", "before"))
        m.d.sync += inside.eq(inside + ends - done)
        with m.If(before != 0):
            m.d.sync += before.eq(before - done)
        with m.Elif(bad):
            m.d.sync += before.eq(inside - done)
        late = Signal()
        m.d.sync += late.eq(done & Mux(before != 0, before == 1, bad & (inside == 1)))
        m.d.comb += self.error.eq(late | (bad & (before == 0) & (inside == 0)))
