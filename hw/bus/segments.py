# SPDX-License-Identifier: Apache-2.0
"""The segment maker of DRAM readers and writers: from operations to contiguous segments of DRAM."""

from __future__ import annotations

import math

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.timing import SEGMENTS_WAITING
from weft.hw.parts.gearbox import StreamFifo
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import CACHE_WIDTH, dram_place, size_width
from weft.hw.parts.slices import stage
from weft.hw.parts.walker import Walker


class Geometry:
    """The layout of vectors on the bus, in units: the largest piece that divides both a vector and a beat."""

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
    """Return the layout of a contiguous run of ``beats_m1`` + 1 beats from ``beat`` on, an address in beats.

    ``fields``: further fields that go along."""
    return data.StructLayout({
        "beat": unsigned(address_width - axi.size_log2(data_width)), "beats_m1": unsigned(beats_width),
        "cache": CACHE_WIDTH, **fields,
    })


def dram_segment_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a segment of ``vectors_m1`` + 1 vectors.

    ``skip``: units of the first beat before the first vector; ``end``: units of the last beat that count. ``last``:
    it is the last segment of its operation. ``dram1``, if both windows share a port: it lies in DRAM1."""
    geometry = Geometry(arch)
    return segment_layout(
        arch.axi_address_width, arch.axi_data_width, geometry.beats_width,
        skip=unsigned(bits_to_count(geometry.beat_units)), end=unsigned(bits_to_count(geometry.beat_units + 1)),
        vectors_m1=unsigned(size_width(arch)), last=1, **({"dram1": 1} if arch.shared_dram else {}))


def times(value, factor: int):
    """Return ``value`` times a constant, as a sum of shifts, since a multiplier block would be wasted on it."""
    return sum((value << bit for bit in range(factor.bit_length()) if factor >> bit & 1), start=Const(0))


class Segments(wiring.Component):
    """Turn DRAM operations into the contiguous segments of their DRAM side, one a cycle.

    A row of vectors without a stride is one segment; with a stride each vector is one. LATENCY: from an operation
    taken to its first segment. The next operation is taken with the last piece of the one before."""

    LATENCY = Walker.LATENCY + 1 + StreamFifo.LATENCY

    def __init__(self, arch: Arch) -> None:
        self._arch, self._geometry = arch, Geometry(arch)
        super().__init__({
            "i": In(stream.Signature(operation_layout(arch, "dram_read"))),
            "o": Out(stream.Signature(dram_segment_layout(arch))),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a walker over the operation's pieces, their sizes in beats, and a FIFO of segments."""
        m = Module()
        operation, place = operation_layout(self._arch, "dram_read"), tuple(dram_place(self._arch))
        pieces = data.StructLayout({
            **{name: operation[name].shape for name in ("size_m1", "rows_m1", "dram", *place)},
            "vectors_m1": unsigned(size_width(self._arch)),
        })
        m.submodules.walker = walker = Walker(pieces, ("dram",))
        m.submodules.segments = segments = StreamFifo(dram_segment_layout(self._arch), SEGMENTS_WAITING)
        wiring.connect(m, segments.o, wiring.flipped(self.o))
        whole_rows = self.i.payload.dram.stride_log2 == 0
        m.d.comb += [
            walker.i.valid.eq(self.i.valid), self.i.ready.eq(walker.i.ready),
            *(walker.i.payload[name].eq(self.i.payload[name]) for name in ("rows_m1", "dram", *place)),
            walker.i.payload.size_m1.eq(Mux(whole_rows, 0, self.i.payload.size_m1)),
            walker.i.payload.vectors_m1.eq(Mux(whole_rows, self.i.payload.size_m1, 0)),
        ]
        self._addresses(m, walker, segments.i)
        return m

    def _addresses(self, m: Module, walker: Walker, segment) -> None:
        """Turn addresses in vectors into units (a product, registered), then into beats (a sum, into a FIFO).

        The FIFO also keeps ready from reaching back through all of it."""
        geometry, piece, unit_bits = self._geometry, walker.o.payload, self._geometry.unit_bytes_log2
        place = dram_place(self._arch)
        product = stage(m, self._arch, "product", data.StructLayout({
            "start": len(piece.dram) + bits_to_count(geometry.vector_units + 1),
            "units_m1": size_width(self._arch) + bits_to_count(geometry.vector_units + 1),
            "vectors_m1": size_width(self._arch), "last": 1, **place,
        }))
        scaling, scaled = product.i.payload, product.o.payload
        m.d.comb += [
            walker.o.ready.eq(product.i.ready), product.i.valid.eq(walker.o.valid), product.o.ready.eq(segment.ready),
            scaling.start.eq(times(piece.dram, geometry.vector_units)),
            scaling.units_m1.eq(times(piece.operation.vectors_m1, geometry.vector_units)
                                + (geometry.vector_units - 1)),
            scaling.last.eq(piece.last),
            *(scaling[name].eq(piece.operation[name]) for name in ("vectors_m1", *place)),
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
            *(segment.payload[name].eq(scaled[name]) for name in ("vectors_m1", "last", *place) if name != "window"),
        ]


def fork(m: Module, source, *sinks) -> None:
    """Hand each payload of ``source`` to all of ``sinks`` in one cycle; fields of the same name are copied."""
    ready = Cat(sink.ready for sink in sinks).all()
    m.d.comb += source.ready.eq(ready)
    for sink in sinks:
        m.d.comb += sink.valid.eq(source.valid & ready)
        m.d.comb += [sink.payload[name].eq(source.payload[name]) for name, _ in sink.payload.shape()]


def count_operations(m: Module, taken, done, most: int) -> Value:
    """Return whether an operation was taken and is not done. At most ``most`` may be under way at a time."""
    count = Signal(range(most + 1))
    m.d.sync += count.eq(count + taken - done)
    return count != 0
