# SPDX-License-Identifier: Apache-2.0
"""DataMove from the accumulators to local memory, with ReLU when asked, and other functions that a machine has."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ROUNDED_READ_LATENCY, move_out_latency, output_latency
from weft.hw.memory.output_functions import OutputFunctions, functions_of
from weft.hw.memory.read_stream import ReadStream
from weft.hw.parts.delay import delayed
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.ports import ReadPort, RequantizerPort, local_write_port, vector_layout
from weft.hw.parts.slices import sliced, stage
from weft.hw.parts.walker import Walker


class MoveOutUnit(wiring.Component):
    """The move_out unit; ``done`` pulses when the last vector of an ``operation`` was written. One vector a cycle.

    LATENCY: from an operation taken to its first write request, if nothing stalls; with register slices one more, with
    functions on output ``output_latency`` more."""

    LATENCY = Walker.LATENCY + ROUNDED_READ_LATENCY + ReadStream.LATENCY + 1

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "move_out"))), "done": Out(1),
            "accumulator_read": Out(RequantizerPort(arch)), "local_write": Out(local_write_port(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a walker, requantizer, output functions, and a FIFO in front of local memory."""
        m = Module()
        arch, layout = self._arch, operation_layout(self._arch, "move_out")
        scalars = ReadPort(arch.accumulator_address_width, vector_layout(arch))
        tag = data.StructLayout({"address": arch.local_address_width, "last": 1})
        m.submodules.walker = walker = Walker(layout, ("accumulator", "local"))
        m.submodules.rows = rows = ReadStream(scalars, tag, move_out_latency(arch))
        connect(m, wiring.flipped(self.operation), walker.i)
        addresses = sliced(m, arch, "addresses", walker.o)
        at, read = addresses.payload, self.accumulator_read
        m.d.comb += [
            rows.i.valid.eq(addresses.valid), addresses.ready.eq(rows.i.ready),
            rows.i.payload.address.eq(at.accumulator), rows.i.payload.tag.address.eq(at.local),
            rows.i.payload.tag.last.eq(at.last),
            read.request.valid.eq(rows.port.request.valid), rows.port.request.ready.eq(read.request.ready),
            read.request.payload.address.eq(rows.port.request.payload),
            read.request.payload.output_shift.eq(at.operation.output_shift),
            read.request.payload.relu.eq(0 if arch.output_slope else at.operation.relu),
            rows.port.response.valid.eq(delayed(m, read.response.valid, output_latency(arch), name="done", reset=True)),
            rows.port.response.payload.eq(self._functions(m, at.operation)),
            self.done.eq(write_rows(m, arch, rows.o, self.local_write)),
        ]
        return m

    def _functions(self, m: Module, operation):
        """Return the row of scalars with the functions on output that the machine has."""
        row, names = self.accumulator_read.response.payload, functions_of(self._arch)
        if not names:
            return row
        m.submodules.functions = functions = OutputFunctions(self._arch)
        m.d.comb += [
            functions.row.eq(row),
            *(getattr(functions, name).eq(delayed(m, operation[name], ROUNDED_READ_LATENCY, name=f"{name}_line"))
              for name in ("relu", *names)),
        ]
        return functions.scalars


def write_rows(m: Module, arch: Arch, rows, port):
    """Write a stream of rows, with ``address`` and ``last`` in their tag, to a local memory port through one register.

    Return whether an operation's last row is written in this cycle."""
    request = port.request
    written = stage(m, arch, "written", rows.payload.shape(), "tag")
    connect(m, rows, written.i)
    row = written.o.payload
    m.d.comb += [
        request.valid.eq(written.o.valid), written.o.ready.eq(request.ready),
        request.payload.address.eq(row.tag.address), request.payload.data.eq(row.data),
    ]
    return request.valid & request.ready & row.tag.last
