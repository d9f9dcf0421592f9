"""A multiplier with its registers: what one DSP block of an FPGA holds."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Multiplier(wiring.Component):
    """``product`` = ``left`` x ``right``, LATENCY cycles later; ``right`` counts from the last cycle in which
    ``take_right`` was high. Free running, one product a cycle.

    A component of its own because yosys finds the registers inside a DSP block by itself for Xilinx only: for the ECP5
    the flow replaces it by name (``ecp5.dsp_multipliers``). Nothing here resets.
    """

    LATENCY = 2

    def __init__(self, left_width: int, right_width: int) -> None:
        self._widths = {"left": left_width, "right": right_width}
        super().__init__({
            "left": In(signed(left_width)), "right": In(signed(right_width)), "take_right": In(1),
            "product": Out(signed(left_width + right_width)),
        })

    def elaborate(self, platform: Any) -> Module:
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
