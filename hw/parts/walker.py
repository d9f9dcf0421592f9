# SPDX-License-Identifier: Apache-2.0
"""Turns sizes and walks into a stream of addresses, one a cycle, rows outer, vectors inner."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.walk import Walk


class Walker(wiring.Component):
    """Turn an operation into its addresses.

    ``operation``: a layout with ``size_m1``, ``rows_m1`` and, under each of ``names``, a walk (base, stride_log2,
    pitch). ``descending``: vectors go down from the base instead of up. ``counts``: ``o`` says which ``vector`` of its
    row it is.

    ``i``: the operation, taken when idle or in the cycle in which the last address of the one before is taken, so
    that operations follow each other without a gap. ``o``: an address for each name, ``first`` and ``last`` of the
    operation, and the operation itself as ``operation`` (stable while its addresses come). Latency: 1 cycle from
    ``i`` taken to the first ``o`` valid."""

    LATENCY = 1

    def __init__(self, operation: data.StructLayout, names: tuple[str, ...], *, descending: bool = False,
                 counts: bool = False) -> None:
        self._names, self._descending, self._counts = names, descending, counts
        self._walks = {name: operation[name].shape for name in names}
        self.payload = self.walked(operation, names, counts=counts)
        super().__init__({"i": In(stream.Signature(operation)), "o": Out(stream.Signature(self.payload))})

    @staticmethod
    def walked(operation: data.StructLayout, names: tuple[str, ...], *, counts: bool = False) -> data.StructLayout:
        """Return the layout of ``o``: an address for each name, its place in the operation, and the operation."""
        widths = {name: operation[name].shape["base"].width for name in names}
        return data.StructLayout({
            **{name: unsigned(width) for name, width in widths.items()},
            "first": 1, "last": 1, "operation": operation,
            **({"vector": operation["size_m1"].shape} if counts else {}),
        })

    @staticmethod
    def reference(operation: dict, name: str, *, descending: bool = False) -> list[int]:
        """Return the addresses of one walk of an operation given as nested dicts."""
        walk, sign = operation[name], -1 if descending else 1
        return Walk(walk["base"], operation["size_m1"] + 1, sign << walk["stride_log2"], operation["rows_m1"] + 1,
                    walk["pitch"]).addresses().ravel().tolist()

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: i -> registers of one address a walk, of the row's start, of the counts -> o; the ends compared a cycle
        ahead."""
        m = Module()
        busy, at = self.o.valid, Signal(self.payload, reset_less=True)
        current = at.operation
        m.d.comb += self.o.payload.eq(at)
        # Counted up from zero: that needs no multiplexer in front of the registers, and no decrement.
        vector, row = (Signal.like(count, reset_less=True, name=name)
                       for name, count in (("vector", current.size_m1), ("row", current.rows_m1)))
        vector = at.vector if self._counts else vector
        step, load = self.o.valid & self.o.ready, self.i.valid & self.i.ready
        # Compared a cycle ahead: whoever waits for ``last`` has it from a register.
        next_vector = Signal.like(vector)
        next_row = Signal.like(row)
        end_of_row, last_row = (Signal(name=name, reset_less=True) for name in ("end_of_row", "last_row"))
        next_last_row = Signal()
        m.d.comb += [
            next_vector.eq(vector + 1), next_row.eq(row + 1),
            next_last_row.eq(Mux(end_of_row, next_row == current.rows_m1, last_row)),
            self.i.ready.eq(~busy | (step & at.last)),
        ]
        with m.If(step):
            next_end = Mux(end_of_row, current.size_m1 == 0, next_vector == current.size_m1)
            m.d.sync += [at.first.eq(0), vector.eq(next_vector), end_of_row.eq(next_end),
                         last_row.eq(next_last_row), at.last.eq(next_end & next_last_row)]
            with m.If(end_of_row):
                m.d.sync += row.eq(next_row)
            with m.If(at.last):
                m.d.sync += busy.eq(0)
        with m.If(load | (step & end_of_row)):
            m.d.sync += vector.eq(0)
        for name in self._names:
            self._walk(m, name, at, step, load, end_of_row)
        with m.If(load):
            one_vector, one_row = self.i.payload.size_m1 == 0, self.i.payload.rows_m1 == 0
            m.d.sync += [busy.eq(1), current.eq(self.i.payload), at.first.eq(1), row.eq(0),
                         end_of_row.eq(one_vector), last_row.eq(one_row), at.last.eq(one_vector & one_row)]
        return m

    def _walk(self, m: Module, name: str, at, step, load, end_of_row) -> None:
        """Make one address register, and the start of its current row."""
        address, walk, width = at[name], at.operation[name], len(at[name])
        row_start = Signal(width, name=f"{name}_row_start", reset_less=True)
        stride = Signal(width, name=f"{name}_stride")
        next_row = Signal(width, name=f"{name}_next_row")
        m.d.comb += [stride.eq(1 << walk.stride_log2), next_row.eq(row_start + walk.pitch)]
        with m.If(step):
            with m.If(end_of_row):
                m.d.sync += [address.eq(next_row), row_start.eq(next_row)]
            with m.Else():
                m.d.sync += address.eq(address - stride if self._descending else address + stride)
        with m.If(load):
            base = self.i.payload[name].base
            m.d.sync += [address.eq(base), row_start.eq(base)]
