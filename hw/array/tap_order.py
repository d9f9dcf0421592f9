# SPDX-License-Identifier: Apache-2.0
"""Depthwise MatMuls: which taps of a result count, and how results lag behind the vectors that are requested."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data

from weft.hw.contract.arch import Arch


def result_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a depthwise result.

    ``address``: where it goes. ``written``: whether it is written at all. ``taps``: bit t says whether tap t falls
    into the result's row, bit 0 the first."""
    return data.StructLayout({"address": arch.accumulator_address_width, "written": 1, "taps": arch.row_taps})


class TapOrder:
    """The order of depthwise results behind the vectors that are requested.

    ``at``: the vector that is requested, with its place in the row. A result is complete with the vector that its
    last tap meets. So ``result``, which goes through the array now, belongs to the vector ``lag`` vectors earlier;
    if the operation has none there, it is not ``written``. ``follows``: this result comes after the operation's last
    vector, and nothing is requested for it. ``more``: another result comes behind this one. Each of several rows of
    taps meets its vectors one step after the row before, so that results lag by as many vectors more."""

    def __init__(self, m: Module, arch: Arch, at: Any) -> None:
        self._arch, self._at, operation = arch, at, at.operation
        taps, origin = arch.row_taps, operation.tap_origin
        self.depthwise = origin != 0
        late = arch.kernel_rows - 1
        most = taps + late
        lag, self._behind = Signal(range(most)), Signal(range(most))
        self._given = Signal(range(most))  # vectors of the operation so far, as far as ``lag`` counts
        own = self._of_vector(m)
        self._older = [Signal(own.shape(), reset_less=True, name=f"older_{k}") for k in range(1, most)]
        self.follows, self.more, self.result = self._behind != 0, Signal(), Signal(own.shape())
        results = Array(each.as_value() for each in (own, *self._older))
        m.d.comb += [
            lag.eq(Mux(self.depthwise, taps + late - origin, 0)),
            self.more.eq(at.last & (self._behind != lag)),
            self.result.as_value().eq(results[lag]),
        ]
        with m.If(self._given < lag):
            m.d.comb += self.result.written.eq(0)
        self._own = own

    def _of_vector(self, m: Module) -> data.View:
        """Return the result of the vector ``at``. Tap t meets the vector t - origin behind it, in the same row."""
        at, operation, taps = self._at, self._at.operation, self._arch.row_taps
        before = [at.vector >= k for k in range(1, taps)]  # so many vectors of the row lie before, and behind
        behind = [at.vector + k <= operation.size_m1 for k in range(1, taps + 1)]
        own = Signal(result_layout(self._arch), name="own")
        for tap in range(taps):
            met = [before[origin - tap - 1] if tap < origin else behind[tap - origin - 1] if tap > origin else 1
                   for origin in range(taps)]
            m.d.comb += own.taps[tap].eq(Array([0, *met])[operation.tap_origin])
        written = Array([1, *behind])[operation.tap_dropped]
        m.d.comb += [own.address.eq(at.accumulator), own.written.eq(~self.depthwise | written)]
        return own

    def step(self, m: Module, taken: Value) -> None:
        """Move on in a cycle in which the vector, or the result that follows it, is ``taken``."""
        with m.If(taken):
            most = len(self._older)
            m.d.sync += [
                self._behind.eq(Mux(self.more, self._behind + 1, 0)),
                self._given.eq(Mux(self._at.last & ~self.more, 0, self._given + (self._given != most))),
                *(older.eq(newer) for older, newer in zip(self._older, (self._own, *self._older), strict=False)),
            ]
