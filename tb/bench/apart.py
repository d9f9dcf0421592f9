# SPDX-License-Identifier: Apache-2.0
"""The sums of a pair of columns, taken apart, as a block of its own."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.paired_element import paired_sums, taken_apart
from weft.hw.contract.arch import Arch
from weft.hw.parts.ports import partial_sum_width


class Apart(wiring.Component):
    def __init__(self, arch: Arch) -> None:
        self._arch, width = arch, partial_sum_width(arch)
        super().__init__({"sums": In(paired_sums(arch)), "low": Out(width), "high": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low, high = taken_apart(m, self._arch, self.sums, "pair")
        m.d.comb += [self.low.eq(low), self.high.eq(high)]
        return m
