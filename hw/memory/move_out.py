"""DataMove from the accumulators to local memory, rounding off the leave shift, with ReLU when asked."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY
from weft.hw.memory.leave import Leave
from weft.hw.memory.read_stream import ReadStream
from weft.hw.parts.delay import delayed
from weft.hw.parts.fixed_point import clip
from weft.hw.parts.operations import move_out_layout
from weft.hw.parts.ports import ReadPort, accumulator_read_port, local_write_port, vector_layout
from weft.hw.parts.slices import sliced, stage
from weft.hw.parts.walker import Walker


class MoveOutUnit(wiring.Component):
    """``operation`` in; ``done`` pulses when its last vector was written. One vector a cycle.

    LATENCY: from an operation taken to its first write request, where nothing stalls; with register slices one more.
    """

    LATENCY = Walker.LATENCY + ACCUMULATOR_READ_LATENCY + Leave.LATENCY + ReadStream.LATENCY + 1

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(move_out_layout(arch))), "done": Out(1),
            "accumulator_read": Out(accumulator_read_port(arch)), "local_write": Out(local_write_port(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arch, layout = self._arch, move_out_layout(self._arch)
        # Rows are rounded off on their way into the FIFO, which then holds scalars.
        scalars = ReadPort(arch.accumulator_address_width, vector_layout(arch))
        latency = ACCUMULATOR_READ_LATENCY + Leave.LATENCY
        tag = data.StructLayout({"address": arch.local_address_width, "last": 1})
        m.submodules.walker = walker = Walker(layout, ("accumulator", "local"))
        m.submodules.rows = rows = ReadStream(scalars, tag, latency)
        connect(m, wiring.flipped(self.operation), walker.i)
        addresses = sliced(m, arch, "addresses", walker.o)
        at, read = addresses.payload, self.accumulator_read
        m.d.comb += [
            rows.i.valid.eq(addresses.valid), addresses.ready.eq(rows.i.ready),
            rows.i.payload.address.eq(at.accumulator), rows.i.payload.tag.address.eq(at.local),
            rows.i.payload.tag.last.eq(at.last),
            read.request.valid.eq(rows.port.request.valid), read.request.payload.eq(rows.port.request.payload),
            rows.port.request.ready.eq(read.request.ready),
            rows.port.response.valid.eq(
                delayed(m, read.response.valid, Leave.LATENCY, name="rounded_valid", reset=True)),
            Cat(rows.port.response.payload).eq(Cat(self._scalars(m, at.operation, read.response.payload))),
        ]
        self._write(m, rows.o)
        return m

    def _scalars(self, m: Module, operation, row) -> list[Value]:
        """The accumulators' answers rounded off; what to do with them comes from the walker as late as they do."""
        width = self._arch.number.width
        m.submodules.leave = leave = Leave(self._arch)
        shift = delayed(m, operation.leave_shift, ACCUMULATOR_READ_LATENCY - 1, name="leave_shift", reset=True)
        relu = delayed(m, operation.relu, ACCUMULATOR_READ_LATENCY + Leave.LATENCY, name="relu", reset=True)
        m.d.comb += [leave.row.eq(row), leave.shift.eq(shift)]
        return [Mux(relu & rounded[-1], 0, clip(rounded, width)) for rounded in leave.rounded]

    def _write(self, m: Module, rows) -> None:
        """One register, into the local write port."""
        request = self.local_write.request
        written = stage(m, self._arch, "written", rows.payload.shape(), "tag")
        connect(m, rows, written.i)
        row = written.o.payload
        m.d.comb += [
            request.valid.eq(written.o.valid), written.o.ready.eq(request.ready),
            request.payload.address.eq(row.tag.address), request.payload.data.eq(row.data),
            self.done.eq(request.valid & request.ready & row.tag.last),
        ]
