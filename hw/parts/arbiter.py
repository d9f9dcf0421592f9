# SPDX-License-Identifier: Apache-2.0
"""Round-robin choice among requests, combinational, with a registered memory of who was served last."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """``grant`` is one-hot, in the same cycle as ``requests``: the next request after the one granted last.

    ``open``: bit k says whether request k would be granted. It depends on the other requests alone, so a client
    knows its turn before its own request is ready. A request that stays is granted within ``count`` grants, so
    nobody starves. ``advance``: this cycle's grant was used; only then does the turn pass on. ``keeps``: a request
    whose grant was not used keeps it."""

    def __init__(self, count: int, *, keeps: bool = False) -> None:
        super().__init__({"requests": In(count), "grant": Out(count), "open": Out(count),
                          "advance": In(1)})
        self.count, self._keeps = count, keeps

    @staticmethod
    def reference(requests: int, last: int, count: int) -> int:
        """Return the index granted after ``last`` was served, -1 for none."""
        order = [(last + 1 + k) % count for k in range(count)]
        return next((index for index in order if requests >> index & 1), -1)

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: comparisons of all pairs of requests, and who goes first."""
        m = Module()
        later = Signal(self.count)  # ones above the index served last: those go first

        def before(other: int, index: int):
            """Whether ``other`` has its turn before ``index``."""
            return later[other] | ~later[index] if other < index else later[other] & ~later[index]

        for index in range(self.count):
            others = (self.requests[other] & before(other, index) for other in range(self.count) if other != index)
            m.d.comb += self.open[index].eq(~Cat(*others).any())
        m.d.comb += self.grant.eq(self.requests & self.open)
        with m.If(self.advance & self.grant.any()):
            above = [self.grant[:index].any() if index else 0 for index in range(self.count)]
            m.d.sync += later.eq(Cat(*above))
        if self._keeps:
            with m.If(~self.advance & self.grant.any()):
                m.d.sync += later.eq(Cat(*(self.grant[:index + 1].any() for index in range(self.count))))
        return m
