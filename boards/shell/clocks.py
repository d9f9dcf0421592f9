# SPDX-License-Identifier: Apache-2.0
"""Clocks of boards where LiteX's are of no use for a UART, or where LiteX does not know the board."""

from __future__ import annotations

from typing import Any

from litex.gen import ClockDomain, If, LiteXModule, Signal
from litex.soc.cores.clock import NXPLL
from migen.genlib.resetsync import AsyncResetSynchronizer

POWER_UP_CYCLES = 1 << 16
"""The cycles of the oscillator for which a board stays in reset after its configuration."""


class CrossLinkClocks(LiteXModule):
    """The clock of a CrossLink-NX evaluation board: a PLL behind the 12 MHz oscillator of its USB chip.

    LiteX takes the oscillator inside the chip, whose rate is known to 15 %. That is not enough for a UART."""

    def __init__(self, platform: Any, clock_hz: int) -> None:
        self.cd_sys = ClockDomain()  # LiteX takes the names from these lines
        self.cd_por = ClockDomain()
        oscillator = platform.request("clk12")
        started, cycles = Signal(), Signal(max=POWER_UP_CYCLES)
        self.comb += [self.cd_por.clk.eq(oscillator), started.eq(cycles == POWER_UP_CYCLES - 1)]
        self.sync.por += If(~started, cycles.eq(cycles + 1))
        self.pll = pll = NXPLL()
        self.comb += pll.reset.eq(~started)
        pll.register_clkin(oscillator, 12e6)
        pll.create_clkout(self.cd_sys, clock_hz)
        self.specials += AsyncResetSynchronizer(self.cd_sys, ~pll.locked)
