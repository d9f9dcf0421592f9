# SPDX-License-Identifier: Apache-2.0
"""Two multipliers and the register of their sum: the contents of one DSP block of a Xilinx chip."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.packing import PAIR, Packing

SUM_WIDTH = 48
"""The bits of a block's sum, and of the cascade that gives it to the next block."""


class PairedMultiplier(wiring.Component):
    """``sum_o`` is ``sum_i`` + (high x 2^distance + low) x ``activation``.

    It comes 3 cycles after the activation and 1 cycle after ``sum_i``. ``weights`` (low in the lower half) are those
    of the last cycle in which ``take`` was high. Sums go from block to block by the cascade: the ``first`` block has
    no ``sum_i``, and only the ``last`` block's sum goes to logic. Nothing here resets. It is a component of its own
    because yosys does not find it: the flow replaces it by name (``xilinx.paired_multipliers``)."""

    def __init__(self, packing: Packing, weight_width: int, activation_width: int, *, first: bool,
                 last: bool) -> None:
        self._packing, self._first, self._last = packing, first, last
        super().__init__({
            "activation": In(signed(activation_width)),
            "weights": In(PAIR * weight_width), "take": In(1),
            **({} if first else {"sum_i": In(SUM_WIDTH)}), "sum_o": Out(SUM_WIDTH),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: registers of activation, weights, product and sum."""
        m = Module()
        activation = Signal.like(self.activation, reset_less=True, name="activation_taken")
        weights = Signal.like(self.weights, reset_less=True, name="weights_taken")
        half = len(weights) // PAIR
        word = (weights[half:].as_signed() << self._packing.distance) + weights[:half].as_signed()
        product = Signal(signed(len(activation) + half + self._packing.distance), reset_less=True)
        # Its name becomes that of the module's output: the flow asks it where the sum goes.
        total = Signal(signed(SUM_WIDTH), reset_less=True, name="total" if self._last else "cascade")
        with m.If(self.take):
            m.d.sync += weights.eq(self.weights)
        m.d.sync += [activation.eq(self.activation), product.eq(word * activation),
                     total.eq(product if self._first else self.sum_i.as_signed() + product)]
        m.d.comb += self.sum_o.eq(total)
        return m
