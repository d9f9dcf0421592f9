"""DataMove from the accumulators to local memory, rounding off the leave shift, with ReLU when asked."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.arch import EVERY_STEP, Arch
from weft.hw.control.walker import Walker
from weft.hw.fixed_point import clip, round_off
from weft.hw.memory.read_stream import ReadStream
from weft.hw.operations import move_out_layout, shift_width
from weft.hw.ports import accumulator_read_port, local_write_port
from weft.hw.timing import ACCUMULATOR_READ_LATENCY


class MoveOutUnit(wiring.Component):
    """``operation`` in; ``done`` pulses when its last vector was written. One vector a cycle."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(move_out_layout(arch))), "done": Out(1),
            "accumulator_read": Out(accumulator_read_port(arch)), "local_write": Out(local_write_port(arch)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        arch, layout = self._arch, move_out_layout(self._arch)
        tag = data.StructLayout({"address": arch.local_address_width, "last": 1, "relu": 1,
                                 "leave_shift": shift_width(arch)})
        m.submodules.walker = walker = Walker(layout, ("accumulator", "local"))
        m.submodules.rows = rows = ReadStream(accumulator_read_port(arch), tag, ACCUMULATOR_READ_LATENCY)
        connect(m, wiring.flipped(self.operation), walker.i)
        connect(m, rows.port, wiring.flipped(self.accumulator_read))
        at, operation = walker.o.payload, walker.o.payload.operation
        m.d.comb += [
            rows.i.valid.eq(walker.o.valid), walker.o.ready.eq(rows.i.ready),
            rows.i.payload.address.eq(at.accumulator), rows.i.payload.tag.address.eq(at.local),
            rows.i.payload.tag.last.eq(at.last), rows.i.payload.tag.relu.eq(operation.relu),
            rows.i.payload.tag.leave_shift.eq(operation.leave_shift),
        ]
        self._write(m, rows.o)
        return m

    def _write(self, m: Module, rows) -> None:
        """Leave the accumulators, one register, into the local write port."""
        arch, request = self._arch, self.local_write.request
        last = Signal()
        m.d.comb += [rows.ready.eq(~request.valid | request.ready), self.done.eq(request.valid & request.ready & last)]
        with m.If(rows.ready):
            m.d.sync += [request.valid.eq(rows.valid), last.eq(rows.payload.tag.last),
                         request.payload.address.eq(rows.payload.tag.address)]
            for lane in range(arch.array_size):
                value = rows.payload.data[lane]
                if arch.mac_rounding != EVERY_STEP:
                    rounded = Signal(arch.number.width + 2, name=f"rounded_{lane}")
                    m.d.comb += rounded.eq(round_off(value, rows.payload.tag.leave_shift, arch.number.width))
                    value = clip(rounded, arch.number.width)
                relu = Mux(rows.payload.tag.relu & value[-1], 0, value)
                m.d.sync += request.payload.data[lane].eq(relu)
