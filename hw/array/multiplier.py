# SPDX-License-Identifier: Apache-2.0
"""A multiplier with its registers: the contents of one DSP block of an FPGA."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed
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
