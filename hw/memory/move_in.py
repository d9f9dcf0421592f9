"""DataMove from local memory into the accumulators, entering by the enter shift, replacing or accumulating."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import EVERY_STEP, Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.memory.read_stream import ReadStream
from weft.hw.parts.fixed_point import fitting, place, reached, turn
from weft.hw.parts.operations import move_in_layout, shift_width
from weft.hw.parts.ports import accumulator_layout, accumulator_write_port, local_read_port
from weft.hw.parts.slices import sliced, stage
from weft.hw.parts.walker import Walker


class MoveInUnit(wiring.Component):
    """``operation`` in; ``done`` pulses when its last vector was taken by the accumulators. One vector a cycle.

    LATENCY: from an operation taken to its first write request, where nothing stalls; with register slices one more.
    """

    LATENCY = Walker.LATENCY + LOCAL_READ_LATENCY + ReadStream.LATENCY + 2

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(move_in_layout(arch))), "done": Out(1),
            "local_read": Out(local_read_port(arch)), "accumulator_write": Out(accumulator_write_port(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arch, layout = self._arch, move_in_layout(self._arch)
        tag = data.StructLayout({"address": arch.accumulator_address_width, "last": 1, "accumulate": 1,
                                 "enter_shift": shift_width(arch)})
        m.submodules.walker = walker = Walker(layout, ("local", "accumulator"))
        m.submodules.rows = rows = ReadStream(local_read_port(arch), tag, LOCAL_READ_LATENCY)
        connect(m, wiring.flipped(self.operation), walker.i)
        connect(m, rows.port, wiring.flipped(self.local_read))
        addresses = sliced(m, arch, "addresses", walker.o)
        at, operation = addresses.payload, addresses.payload.operation
        m.d.comb += [
            rows.i.valid.eq(addresses.valid), addresses.ready.eq(rows.i.ready),
            rows.i.payload.address.eq(at.local), rows.i.payload.tag.address.eq(at.accumulator),
            rows.i.payload.tag.last.eq(at.last), rows.i.payload.tag.accumulate.eq(operation.accumulate),
            rows.i.payload.tag.enter_shift.eq(operation.enter_shift),
        ]
        self._write(m, rows.o)
        return m

    def _write(self, m: Module, rows) -> None:
        """Enter in two steps, each with a register, into the accumulators' write port."""
        arch, request, tag = self._arch, self.accumulator_write.request, rows.payload.tag
        turned = Signal(rows.payload.shape().members["tag"], name="turned_tag")
        turned_valid = Signal()
        target = data.StructLayout({name: tag.shape()[name].shape for name in ("address", "accumulate", "last")})
        entered = stage(m, arch, "entered", data.StructLayout(
            {"data": accumulator_layout(arch), "target": target}), "target")
        incoming, outgoing, written = entered.i, entered.o, entered.o.payload
        m.d.comb += [
            rows.ready.eq(~turned_valid | incoming.ready), incoming.valid.eq(turned_valid),
            *(incoming.payload.target[name].eq(turned[name]) for name in target.members),
            request.valid.eq(outgoing.valid), outgoing.ready.eq(request.ready),
            request.payload.address.eq(written.target.address), request.payload.data.eq(written.data),
            request.payload.accumulate.eq(written.target.accumulate),
            self.done.eq(request.valid & request.ready & written.target.last),
        ]
        with m.If(rows.ready):
            m.d.sync += [turned_valid.eq(rows.valid), turned.eq(tag)]
        width, enters = arch.accumulator_bits, arch.mac_rounding != EVERY_STEP
        fits, from_shift = fitting(tag.enter_shift, arch.number.width, width), Signal(width, reset_less=True)
        with m.If(rows.ready):
            m.d.sync += from_shift.eq(reached(tag.enter_shift, width))
        for lane in range(arch.array_size):
            scalar = rows.payload.data[lane]
            step = turn(scalar, tag.enter_shift, fits) if enters else scalar
            value = Signal(len(step), name=f"turned_{lane}", reset_less=True)
            with m.If(rows.ready):
                m.d.sync += value.eq(step)
            m.d.comb += incoming.payload.data[lane].eq(
                place(value, turned.enter_shift, from_shift) if enters else value.as_signed())
