# SPDX-License-Identifier: Apache-2.0
"""DataMove from local memory into the accumulators, replacing or accumulating."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.memory.read_stream import ReadStream
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import register_fields, shift_width
from weft.hw.parts.ports import InputRescalerPort, local_read_port
from weft.hw.parts.slices import sliced
from weft.hw.parts.walker import Walker


class MoveInUnit(wiring.Component):
    """The move_in unit; ``done`` pulses when the accumulators took an operation's last vector. One vector a cycle.

    LATENCY: from an operation taken to its first request to the input rescaler, if nothing stalls; with register
    slices one more."""

    LATENCY = Walker.LATENCY + LOCAL_READ_LATENCY + ReadStream.LATENCY

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "move_in"))), "done": Out(1),
            "local_read": Out(local_read_port(arch)), "accumulator_write": Out(InputRescalerPort(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a walker reads local memory, and its rows go to the input rescaler."""
        m = Module()
        arch, layout = self._arch, operation_layout(self._arch, "move_in")
        tag = data.StructLayout({"address": arch.accumulator_address_width, "last": 1, "accumulate": 1,
                                 "input_shift": shift_width(arch), **register_fields(arch, "move_in")})
        m.submodules.walker = walker = Walker(layout, ("local", "accumulator"))
        m.submodules.rows = rows = ReadStream(local_read_port(arch), tag, LOCAL_READ_LATENCY)
        connect(m, wiring.flipped(self.operation), walker.i)
        connect(m, rows.port, wiring.flipped(self.local_read))
        addresses = sliced(m, arch, "addresses", walker.o)
        at, operation = addresses.payload, addresses.payload.operation
        m.d.comb += [
            rows.i.valid.eq(addresses.valid), addresses.ready.eq(rows.i.ready),
            rows.i.payload.address.eq(at.local), rows.i.payload.tag.address.eq(at.accumulator),
            rows.i.payload.tag.last.eq(at.last),
            *(rows.i.payload.tag[name].eq(operation[name]) for name in tag.members if name not in ("address", "last")),
        ]
        row, enter = rows.o.payload, self.accumulator_write
        m.d.comb += [
            enter.request.valid.eq(rows.o.valid), rows.o.ready.eq(enter.request.ready),
            enter.request.payload.data.eq(row.data),
            *(enter.request.payload[name].eq(row.tag[name]) for name in tag.members),
            self.done.eq(enter.written & enter.written_last),
        ]
        return m
