# SPDX-License-Identifier: Apache-2.0
"""Memory rows as a stream with back-pressure: addresses with a tag in, rows with the same tag out."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.timing import READ_STREAM_LATENCY, READ_STREAM_SPARE
from weft.hw.parts.ports import ReadPort


class ReadStream(wiring.Component):
    """Read rows: ``i`` has ``address`` and ``tag`` (any fields), ``o`` has ``data`` and ``tag``, in the same order.

    The memory's answers cannot be held back, so a request is made only while the FIFO has room for everything under
    way. The stream sustains one row a cycle. Its latency is the memory's plus LATENCY cycles."""

    LATENCY = READ_STREAM_LATENCY

    def __init__(self, port: ReadPort, tag: data.StructLayout, latency: int) -> None:
        row = port.members["response"].signature.members["payload"].shape
        address = port.members["request"].signature.members["payload"].shape
        self._tag, self._row, self._depth = tag, row, latency + READ_STREAM_SPARE
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({"address": address, "tag": tag}))),
            "o": Out(stream.Signature(data.StructLayout({"data": row, "tag": tag}))),
            "port": Out(port),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: requests while there is room, and a FIFO each for rows and for tags."""
        m = Module()
        rows = fifo.SyncFIFOBuffered(width=self._row.size, depth=self._depth)
        tags = fifo.SyncFIFOBuffered(width=self._tag.size, depth=self._depth)
        m.submodules.rows, m.submodules.tags = rows, tags
        under_way = Signal(range(self._depth + 1))
        room = Signal(init=1)
        taken, given = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        m.d.comb += [
            self.port.request.valid.eq(self.i.valid & room),
            self.port.request.payload.eq(self.i.payload.address),
            self.i.ready.eq(self.port.request.ready & room),
            tags.w_en.eq(taken), tags.w_data.eq(self.i.payload.tag),
            rows.w_en.eq(self.port.response.valid), rows.w_data.eq(self.port.response.payload),
            self.o.valid.eq(rows.r_rdy & tags.r_rdy),
            self.o.payload.data.eq(rows.r_data), self.o.payload.tag.eq(tags.r_data),
            rows.r_en.eq(given), tags.r_en.eq(given),
        ]
        m.d.sync += under_way.eq(under_way + taken - given)
        with m.If(given):
            m.d.sync += room.eq(1)
        with m.Elif(taken):
            m.d.sync += room.eq(under_way != self._depth - 1)
        return m
