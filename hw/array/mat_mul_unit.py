# SPDX-License-Identifier: Apache-2.0
"""MatMul: vectors of local memory go through the systolic array, and the sums into the accumulators."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.kernel_rows import KernelRows, arrived_rows, arriving_layout
from weft.hw.array.tap_order import TapOrder
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import (
    ACCUMULATE_DATA_LATENCY,
    LOCAL_READ_LATENCY,
    STARVATION_LIMIT,
    array_latency,
    bias_interval,
)
from weft.hw.parts.delay import delayed
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import TAP_FIELDS, register_fields, shift_width, turns_layout
from weft.hw.parts.ports import AccumulatePort, activation_layout, local_read_port, sum_layout
from weft.hw.parts.schemes import circuits
from weft.hw.parts.slices import sliced
from weft.hw.parts.walker import Walker


def row_reads(arch: Arch) -> tuple[str, ...]:
    """Return the names of the ports by which rows of taps read local memory, the first row's first."""
    return ("local_read", *(f"local_read_{row}" for row in range(1, arch.kernel_rows)))


class MultiplyingPort(wiring.Signature):
    """These members are what the core sees of :class:`MatMulUnit`: operations, and what they read and write."""

    def __init__(self, arch: Arch) -> None:
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "mat_mul"))), "done": Out(1),
            "contended": In(1),
            **{name: Out(local_read_port(arch)) for name in row_reads(arch)},
            "accumulator_write": Out(AccumulatePort(arch.accumulator_address_width, sum_layout(arch))),
        })


class MatMulUnit(wiring.Component):
    """The mat_mul unit: it requests vectors, feeds the array, and writes the sums to the accumulators.

    ``operation``: a stream; ``done`` pulses when the accumulators took the last sum of an operation. ``swapped`` pulses
    when the first vector of an operation that swaps was requested: from the next cycle on new weights may be requested.
    ``loaded``: a LoadWeight is done; an operation that swaps waits for all loads before it, and may follow in the next
    cycle.

    The unit requests one vector a cycle, operation after operation without a gap. Operations that rescale the bias anew
    (with swapped weights, or with another input shift than the operation before) begin at least bias_interval cycles
    apart. Nothing behind the local memory ever waits: every vector reaches the array LOCAL_READ_LATENCY cycles after
    its request, and its sum the accumulators array_latency cycles later.

    A depthwise result goes through the array when the last vector that it needs has come. So the results of an
    operation lag behind the vectors that are requested, and at its end as many results follow for which nothing is
    requested (:class:`TapOrder`). ``depthwise`` and ``taps`` come with each activation. Further rows of taps read
    through ports of their own, ``local_read_1`` and so on, and enter the array beside the first row's, as
    ``activation_1`` and so on (:class:`KernelRows`).

    ``contended``: a memory served this unit and kept another client waiting. After STARVATION_LIMIT such cycles in a
    row no vector is requested for one cycle."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            **MultiplyingPort(arch).members, "swapped": Out(1), "loaded": In(1),
            "activation": Out(activation_layout(arch)), "activation_valid": Out(1), "swap": Out(1),
            "rescale_bias": Out(1), "input_shift": Out(shift_width(arch)),
            **({"depthwise": Out(1), "taps": Out(arch.row_taps)} if arch.depthwise_taps else {}),
            **{f"activation_{row}": Out(activation_layout(arch)) for row in range(1, arch.kernel_rows)},
            "result": In(sum_layout(arch)), "result_coming": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: operation, walker, local memory, array, accumulators."""
        m = Module()
        arch, walker = self._arch, self._walker(m)
        addresses = sliced(m, arch, "addresses", walker.o)
        at, operation, request = addresses.payload, addresses.payload.operation, self.local_read.request
        order = TapOrder(m, arch, at) if arch.depthwise_taps else None
        rows = KernelRows(m, arch, at, order.follows, [port.request for port in self._reads()]) if (
            order and arch.kernel_rows > 1) else None
        first = at.first & ~order.follows if order else at.first
        unread = operation.zeroes | order.follows if order else operation.zeroes
        entering, enters = Signal(range(bias_interval(arch))), first & operation.enters  # cycles until another may
        bubble = self._bubble(m, rows) | (enters & (entering != 0)) | self._weights_missing(m, first, operation)
        goes = (rows.served if rows else unread | request.ready) & ~bubble
        if rows is None:
            m.d.comb += [request.valid.eq(addresses.valid & ~unread & ~bubble), request.payload.eq(at.local)]
        m.d.comb += addresses.ready.eq(goes & ~order.more if order else goes)
        taken = addresses.valid & (goes if order else addresses.ready)
        m.d.sync += entering.eq(Mux(taken & enters, bias_interval(arch) - 1, Mux(entering != 0, entering - 1, 0)))
        m.d.comb += self.swapped.eq(taken & first & operation.swap)
        target = data.StructLayout({"address": arch.accumulator_address_width, "accumulate": 1, "last": 1,
                                    **({"written": 1} if order else {})})
        of_taps = {"depthwise": 1, "taps": arch.row_taps, **({"rows": arriving_layout(arch)} if rows else {})} if (
            order) else {}
        head = data.StructLayout({
            "target": target, "swap": 1, "rescale_bias": 1, "input_shift": shift_width(arch),
            **{name: register_fields(arch, "mat_mul")[name] for name in self._activation_fields()}, **of_taps})
        place, last = (order.result.address, at.last & ~order.more) if order else (at.accumulator, at.last)
        fields = Cat(place, operation.accumulate, last, *([order.result.written] if order else []), self.swapped,
                     enters, operation.input_shift,
                     *(Mux(operation.zeroes, 0, operation[name]) for name in self._activation_fields()),
                     *([order.depthwise, order.result.taps] if order else []),
                     *([rows.arriving] if rows else []))
        if order:
            order.step(m, taken)
        if rows:
            rows.step(addresses.valid & ~bubble, taken, last)
        arriving = data.View(head, delayed(m, fields, LOCAL_READ_LATENCY, name="arriving"))
        self._feed(m, delayed(m, taken, LOCAL_READ_LATENCY, name="arrived", reset=True), arriving)
        self._collect(m, data.View(target, delayed(
            m, arriving.target.as_value(), array_latency(arch) - ACCUMULATE_DATA_LATENCY, name="leaving")))
        return m

    def _weights_missing(self, m: Module, first, operation) -> Value:
        """Return whether a LoadWeight whose weights this vector swaps in is not done.

        ``first``: the vector is the first of its operation."""
        loads = Signal(turns_layout(self._arch)["loads"].shape)  # so far
        m.d.sync += loads.eq(loads + self.loaded)
        return first & operation.swap & (operation.loads != loads)

    def _activation_fields(self) -> list[str]:
        """Return the names of an operation's fields that apply to activations; an operation on zeros ignores them."""
        return [name for name in register_fields(self._arch, "mat_mul") if name not in ("input_shift", *TAP_FIELDS)]

    def _walker(self, m: Module) -> Walker:
        """Return the walker. Its operations have a field ``enters``: they rescale the bias anew.

        The field is computed as an operation enters the walker."""
        layout = data.StructLayout({**operation_layout(self._arch, "mat_mul").members, "enters": 1})
        m.submodules.walker = walker = Walker(layout, ("local", "accumulator"), counts=bool(self._arch.depthwise_taps))
        given, newest_shift = self.operation.payload, Signal(shift_width(self._arch))
        m.d.comb += [
            walker.i.valid.eq(self.operation.valid), self.operation.ready.eq(walker.i.ready),
            walker.i.payload.as_value().eq(Cat(given, given.swap | (given.input_shift != newest_shift))),
        ]
        with m.If(walker.i.valid & walker.i.ready):
            m.d.sync += newest_shift.eq(given.input_shift)
        return walker

    def _reads(self) -> list:
        """Return the ports by which rows of taps read."""
        return [getattr(self, name) for name in row_reads(self._arch)]

    def _bubble(self, m: Module, rows: KernelRows | None) -> Value:
        """Return whether nothing may be requested in this cycle, so that a client that starves is served."""
        request, contended, starved = self.local_read.request, Signal(), Signal(range(STARVATION_LIMIT + 1))
        settled = ~rows.waits() if rows else ~request.valid | request.ready  # what was offered stays until it is taken
        bubble = starved[-1]
        m.d.sync += contended.eq(self.contended)
        with m.If(settled):
            m.d.sync += starved.eq(Mux(contended & ~bubble, starved + 1, 0))
        return bubble

    def _feed(self, m: Module, arrived, arriving) -> None:
        """Give the vector that arrived, and the fields of its operation, to the array."""
        row = self.local_read.response.payload  # zeros when nothing was requested
        numbers = circuits(self._arch)
        if self._arch.kernel_rows > 1:
            self._feed_rows(m, arrived, arriving)
        else:
            m.d.comb += [activation.eq(numbers.activation(scalar, arriving))
                         for activation, scalar in zip(self.activation, row, strict=True)]
        m.d.comb += [
            self.activation_valid.eq(arrived),
            self.swap.eq(arrived & arriving.swap), self.rescale_bias.eq(arrived & arriving.rescale_bias),
            self.input_shift.eq(arriving.input_shift),
        ]
        if self._arch.depthwise_taps:
            m.d.comb += [self.depthwise.eq(arriving.depthwise), self.taps.eq(arriving.taps)]

    def _feed_rows(self, m: Module, arrived, arriving) -> None:
        """Give the array what each row of taps meets; zeros for one that does not count."""
        numbers = circuits(self._arch)
        met = arrived_rows(m, self._arch, [port.response for port in self._reads()], arriving.rows, arrived,
                           arriving.depthwise)
        for number, row in enumerate(met):
            fields = {name: Mux(arriving.rows.count[number], arriving[name], 0) for name in self._activation_fields()}
            given = getattr(self, f"activation_{number}") if number else self.activation
            m.d.comb += [activation.eq(numbers.chosen_activation(scalar, SimpleNamespace(**fields)))
                         for activation, scalar in zip(given, row, strict=True)]

    def _collect(self, m: Module, target) -> None:
        """Write the array's result to the accumulators, which always take it."""
        request = self.accumulator_write.request
        m.d.comb += [
            request.valid.eq(self.result_coming & target.written if self._arch.depthwise_taps else self.result_coming),
            request.payload.address.eq(target.address),
            request.payload.accumulate.eq(target.accumulate),
            self.accumulator_write.data.eq(self.result),
            self.done.eq(self.result_coming & target.last),
        ]
