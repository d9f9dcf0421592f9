# SPDX-License-Identifier: Apache-2.0
"""Multipliers with their registers: each is the contents of one DSP block of an FPGA."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Multiplier(wiring.Component):
    """``product`` is ``left`` x ``right``, LATENCY cycles later, one product a cycle; free running.

    ``right`` is the value of the last cycle in which ``take_right`` was high. Nothing here resets. It is a component of
    its own because yosys finds the registers inside a DSP block for Xilinx only. For the ECP5 the flow replaces it by
    name (``ecp5.dsp_multipliers``)."""

    LATENCY = 2

    def __init__(self, left_width: int, right_width: int) -> None:
        self._widths = {"left": left_width, "right": right_width}
        super().__init__({
            "left": In(signed(left_width)), "right": In(signed(right_width)), "take_right": In(1),
            "product": Out(signed(left_width + right_width)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: a register for each factor and one for the product."""
        m = Module()
        # The outputs of a component reset; registers behind them do not.
        left, right = (Signal(signed(width), reset_less=True, name=f"{side}_taken")
                       for side, width in self._widths.items())
        product = Signal(self.product.shape(), reset_less=True)
        m.d.sync += [left.eq(self.left), product.eq(left * right)]
        with m.If(self.take_right):
            m.d.sync += right.eq(self.right)
        m.d.comb += self.product.eq(product)
        return m


class TapMultiplier(wiring.Component):
    """A :class:`Multiplier` whose left factor is ``tap`` in cycles with ``take_tap``, else ``activation``.

    ``tap_counts`` is high only with ``take_tap``; a tap without it is zero. The block of a Xilinx chip chooses by the
    two inputs of its own adder, so that the choice takes no look-up tables: the flow replaces this component by name
    (``xilinx.tap_multipliers``)."""

    LATENCY = Multiplier.LATENCY

    def __init__(self, left_width: int, right_width: int) -> None:
        self._widths = left_width, right_width
        super().__init__({
            "activation": In(signed(left_width)), "tap": In(signed(left_width)), "tap_counts": In(1),
            "take_tap": In(1), "right": In(signed(right_width)), "take_right": In(1),
            "product": Out(signed(left_width + right_width)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: a multiplexer in front of a multiplier."""
        m = Module()
        m.submodules.multiplier = multiplier = Multiplier(*self._widths)
        m.d.comb += [
            multiplier.left.eq(Mux(self.take_tap, Mux(self.tap_counts, self.tap, 0), self.activation)),
            multiplier.right.eq(self.right), multiplier.take_right.eq(self.take_right),
            self.product.eq(multiplier.product),
        ]
        return m
