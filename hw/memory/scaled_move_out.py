# SPDX-License-Identifier: Apache-2.0
"""The move_out unit of INT8 machines: DataMove from the accumulators, LoadScale and LoadActivationTable."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, LOCAL_READ_LATENCY, move_out_latency
from weft.hw.contract.units import depths
from weft.hw.memory.activation_tables import ActivationTables
from weft.hw.memory.move_out import write_rows
from weft.hw.memory.read_stream import ReadStream
from weft.hw.memory.scaler import Scaler
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.ports import ReadPort, local_read_port, local_write_port, requantizer_port, vector_layout
from weft.hw.parts.slices import sliced
from weft.hw.parts.walker import Walker


class ScaledMoveOutUnit(wiring.Component):
    """The move_out unit of INT8 machines; it takes an ``operation`` at a time and moves one vector a cycle.

    ``done`` pulses, in order, when a move's last vector was written, or a load's last vector was requested. A load
    of scales or of a table begins when all earlier moves have been written. ``busy``: scales or a table were
    requested and are not all there yet, so that a reset would lose some."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "move_out"))), "done": Out(1), "busy": Out(1),
            "accumulator_read": Out(requantizer_port(arch, "move_out")), "local_read": Out(local_read_port(arch)),
            "local_write": Out(local_write_port(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: operation -> walker -> accumulators -> scaler -> tables -> FIFO -> local memory or -> local memory ->
        scaler or tables."""
        m = Module()
        arch, latency = self._arch, move_out_latency(self._arch)
        # Rows become scalars on their way into the FIFO.
        scalars = ReadPort(arch.accumulator_address_width, vector_layout(arch))
        tag = data.StructLayout({"address": arch.local_address_width, "last": 1})
        m.submodules.walker = walker = Walker(operation_layout(arch, "move_out"), ("accumulator", "local"))
        m.submodules.rows = rows = ReadStream(scalars, tag, latency)
        m.submodules.scaler = scaler = Scaler(arch)
        connect(m, wiring.flipped(self.operation), walker.i)
        addresses = sliced(m, arch, "addresses", walker.o)
        at, read, scale = addresses.payload, self.accumulator_read, self.local_read
        written, moving = Signal(), Signal(range(depths(arch, "move_out").outstanding + 1))
        loads = at.operation.load_scale
        if arch.activation_tables:
            loads = loads | at.operation.load_table
        drained = self._drained(m, moving)
        requested = addresses.valid & addresses.ready & at.last
        m.d.comb += [
            rows.i.valid.eq(addresses.valid & ~loads),
            addresses.ready.eq(Mux(loads, scale.request.ready & drained, rows.i.ready)),
            rows.i.payload.address.eq(at.accumulator), rows.i.payload.tag.address.eq(at.local),
            rows.i.payload.tag.last.eq(at.last),
            scale.request.valid.eq(addresses.valid & loads & drained), scale.request.payload.eq(at.local),
            read.request.valid.eq(rows.port.request.valid), rows.port.request.ready.eq(read.request.ready),
            read.request.payload.eq(rows.port.request.payload),
            rows.port.response.valid.eq(delayed(
                m, read.response.valid, latency - ACCUMULATOR_READ_LATENCY, name="scaled", reset=True)),
            rows.port.response.payload.eq(
                self._look_up(m, scaler, at.operation) if arch.activation_tables else scaler.scalars),
            written.eq(write_rows(m, arch, rows.o, self.local_write)), self.done.eq(written | (requested & loads)),
        ]
        m.d.sync += moving.eq(moving + (requested & ~loads) - written)  # operations that are not all written
        self._scale(m, scaler, at.operation)
        under_way = DelayLine(m, scale.request.valid & scale.request.ready, LOCAL_READ_LATENCY, name="under_way",
                              reset=True)
        for cycles in range(1, LOCAL_READ_LATENCY + 1):
            with m.If(under_way.tap(cycles)):
                m.d.comb += self.busy.eq(1)
        return m

    def _drained(self, m: Module, moving: Value) -> Value:
        """Return whether all moves have been written and can be read.

        With register slices that is a cycle later (:class:`LocalMemory`)."""
        before = delayed(m, moving != 0, self._arch.register_slices, name="moved", reset=True)
        return (moving == 0) & ~before

    def _scale(self, m: Module, scaler: Scaler, operation) -> None:
        """Give the scaler the rows, with the fields of their operation, and the scales that are loaded."""
        late = {name: delayed(m, operation[name], ACCUMULATOR_READ_LATENCY, name=name)
                for name in ("scale_shift", "output_zero_point", "relu")}
        m.d.comb += [
            scaler.row.eq(self.accumulator_read.response.payload), scaler.relu.eq(late["relu"]),
            scaler.shift.eq(late["scale_shift"]), scaler.zero.eq(late["output_zero_point"]),
            scaler.take.eq(self._loaded(m, operation.load_scale)), scaler.scale.eq(self.local_read.response.payload),
        ]

    def _loaded(self, m: Module, kind: Value) -> Value:
        """Return whether a vector of this kind of load has arrived."""
        response = self.local_read.response.valid
        return response & delayed(m, kind, LOCAL_READ_LATENCY,
                                  name="kind") if self._arch.activation_tables else response

    def _look_up(self, m: Module, scaler: Scaler, operation) -> Value:
        """Return the scalars as their operation's activation table maps them; load the tables.

        The table's number comes with the scalars, or with the vectors of a load."""
        m.submodules.tables = tables = ActivationTables(self._arch)
        row = ACCUMULATOR_READ_LATENCY + self._arch.scheme.requantize_latency
        m.d.comb += [
            tables.scalars.eq(scaler.scalars),
            tables.table.eq(delayed(m, operation.activation_table, row, name="table")),
            tables.load.eq(self._loaded(m, operation.load_table)),
            tables.load_table.eq(delayed(m, operation.activation_table, LOCAL_READ_LATENCY, name="load_table")),
            tables.vector.eq(self.local_read.response.payload),
        ]
        return tables.looked_up
