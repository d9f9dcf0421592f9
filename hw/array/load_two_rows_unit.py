# SPDX-License-Identifier: Apache-2.0
"""LoadWeight with two rows a cycle: one for the upper part of the column of shadow weights, one for the lower part."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.load_weight_unit import LoadingPort
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY, ROWS_AHEAD, upper_places, weight_latency
from weft.hw.parts.delay import delayed
from weft.hw.parts.gearbox import StreamFifo
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import walk_layout
from weft.hw.parts.ports import vector_layout
from weft.hw.parts.walker import Walker


def source_layout(arch: Arch) -> data.StructLayout:
    """Return the layout that says which weights one part of the column, upper or lower, takes next.

    ``address``: the vector of local memory that holds the row of weights. ``zero``: the row is zeros and is not
    read."""
    return data.StructLayout({"address": arch.local_address_width, "zero": 1})


def order_layout(arch: Arch) -> data.StructLayout:
    """Return the layout that says how the next rows of both parts, upper and lower, are shifted into the column.

    ``through``: the upper part's row goes through both parts. ``last``: these are the last rows of their operation.
    ``swaps``: the count of swaps, modulo 2, that must be reached before, see :func:`turns_layout`."""
    return data.StructLayout({"through": 1, "last": 1, "swaps": operation_layout(arch, "load_weight")["swaps"].shape})


class LoadTwoRowsUnit(wiring.Component):
    """The load_weight unit of machines with ``weight_load_rows`` 2; it does what :class:`LoadWeightUnit` does.

    ``lower_read`` and ``lower_weight`` serve the lower part of the column as ``local_read`` and ``weight`` serve the
    upper part. The lower part shifts whenever the upper one does. ``through``, with ``shift``: the lower part takes the
    row that falls out of the upper part.

    An operation that replaces the whole column (its rows and its row of zeros are array_size + 1) takes
    ``timing.upper_places`` cycles: each part takes its own rows, last address first. Rows of other operations go
    through both parts, one a cycle. Up to ROWS_AHEAD rows of each part are read before their turn, so that the array
    waits neither for a bank that MatMul uses nor for the other part."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self._operation = data.StructLayout({
            **operation_layout(arch, "load_weight").members,
            "lower": walk_layout(arch, arch.local_address_width), "whole": 1})
        super().__init__({
            **LoadingPort(arch).members, "swapped": In(1), "shift": Out(1), "through": Out(1),
            "weight": Out(vector_layout(arch)), "lower_weight": Out(vector_layout(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: operation -> walker of both parts -> sources of each -> local memory -> rows of each -> both at once."""
        m = Module()
        walker = self._walker(m)
        m.submodules.order = order = StreamFifo(order_layout(self._arch), ROWS_AHEAD)
        sources = self._sources(m, walker, order)
        swaps = Signal()  # so far, modulo 2
        m.d.sync += swaps.eq(swaps ^ self.swapped)
        # A row that was taken arrives in time: the turn of both parts' next rows is settled before.
        shifts = Signal()
        now = order.o.payload
        shifting = delayed(m, Cat(shifts, now.through), LOCAL_READ_LATENCY, name="shifting", reset=True)
        upper_ahead = self._part(m, "upper", sources[0], self.local_read, shifts, shifting[0], self.weight)
        lower_ahead = self._part(m, "lower", sources[1], self.lower_read, shifts, shifting[0], self.lower_weight)
        latency = weight_latency(self._arch)
        under_way = Signal(range(latency + 1))  # cycles until the last wave is through
        m.d.sync += under_way.eq(Mux(shifts, latency, Mux(self.busy, under_way - 1, 0)))
        m.d.comb += [
            shifts.eq((upper_ahead != 0) & (lower_ahead != 0) & (now.swaps == swaps)), order.o.ready.eq(shifts),
            self.done.eq(shifts & now.last), self.busy.eq(under_way != 0), Cat(self.shift, self.through).eq(shifting),
        ]
        return m

    def _walker(self, m: Module) -> Walker:
        """Return the walker over both parts' addresses; ``whole`` of its operations: they replace the whole column.

        The first addresses of both parts are computed as an operation enters the walker."""
        arch, places = self._arch, upper_places(self._arch)
        m.submodules.walker = walker = Walker(self._operation, ("local", "lower"), descending=True)
        given, taken = self.operation.payload, walker.i.payload
        whole, shorter = given.size_m1 == arch.array_size - given.zero_bias, self._lower_is_shorter
        m.d.comb += [
            walker.i.valid.eq(self.operation.valid), self.operation.ready.eq(walker.i.ready),
            *(taken[name].eq(given[name]) for name in operation_layout(arch, "load_weight").members),
            taken.lower.eq(given.local), taken.whole.eq(whole),
        ]
        with m.If(whole):
            below = Const(arch.array_size + 1 - places) << given.local.stride_log2
            m.d.comb += [
                taken.size_m1.eq(places - 1), taken.local.base.eq(given.local.base - below),
                taken.lower.base.eq(given.local.base + (Const(shorter, 1) << given.local.stride_log2)),
            ]
        return walker

    @property
    def _lower_is_shorter(self) -> bool:
        """Whether the lower part has fewer rows than the upper. Then its first row is zeros, and falls out again."""
        return self._arch.array_size + 1 < 2 * upper_places(self._arch)

    def _sources(self, m: Module, walker: Walker, order: StreamFifo) -> tuple:
        """Return the streams of row sources of the upper and of the lower part.

        Both get the same number of entries. ``order`` holds an entry for each pair of rows under way, so only it can
        be full."""
        at, operation = walker.o.payload, walker.o.payload.operation
        bias_row, ends = Signal(), at.last & operation.zero_bias  # the row of zeros of what goes through both is due
        more = ends & ~operation.whole & ~bias_row
        m.d.comb += [
            walker.o.ready.eq(order.i.ready & ~more), order.i.valid.eq(walker.o.valid),
            order.i.payload.as_value().eq(Cat(~operation.whole, at.last & ~more, operation.swaps)),
        ]
        with m.If(walker.o.valid & order.i.ready):
            m.d.sync += bias_row.eq(more)
        unread = at.first if self._lower_is_shorter else Const(0, 1)
        sources = []
        for name, address, zero in (("upper", at.local, bias_row | (ends & operation.whole)),
                                    ("lower", at.lower, ~operation.whole | unread)):
            m.submodules[f"{name}_sources"] = fifo = StreamFifo(source_layout(self._arch), ROWS_AHEAD)
            m.d.comb += [fifo.i.valid.eq(walker.o.valid & order.i.ready),
                         fifo.i.payload.as_value().eq(Cat(address, operation.zeroes | zero))]
            sources.append(fifo.o)
        return tuple(sources)

    def _part(self, m: Module, name: str, source: Value, port: Value, shifts: Value, leaves: Value,
              weight: Value) -> Signal:
        """Read a part's rows and keep them until ``leaves`` gives them to the array as ``weight``.

        Return the number of rows that were requested and whose shift is not yet decided."""
        m.submodules[f"{name}_rows"] = rows = StreamFifo(vector_layout(self._arch), ROWS_AHEAD)
        taken, ahead = Signal(name=f"{name}_taken"), Signal(range(ROWS_AHEAD + 1), name=f"{name}_ahead")
        m.d.sync += ahead.eq(ahead + taken - shifts)
        m.d.comb += [
            port.request.valid.eq(source.valid & ~source.payload.zero),
            port.request.payload.eq(source.payload.address),
            taken.eq(source.valid & (source.payload.zero | port.request.ready)), source.ready.eq(taken),
            rows.i.valid.eq(delayed(m, taken, LOCAL_READ_LATENCY, name=f"{name}_coming", reset=True)),
            rows.i.payload.eq(port.response.payload),  # zeros when nothing was requested
            rows.o.ready.eq(leaves), weight.eq(rows.o.payload),
        ]
        return ahead
