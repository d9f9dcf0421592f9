# SPDX-License-Identifier: Apache-2.0
"""A processing element of the systolic array, and its place in the column of shadow weights."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.multiplier import Multiplier, TapMultiplier
from weft.hw.contract.arch import Arch
from weft.hw.parts.schemes import circuits


class ShadowWeight(wiring.Component):
    """One place of the column through which new weights are shifted in.

    ``shift``: ``shadow`` takes ``link_i``, and ``link_o`` the old value of ``shadow``. So the next row may shift one
    cycle later, or, if it gets ``shadow`` itself, in the same cycle. Both keep their values over a reset and are
    zero at power-up."""

    def __init__(self, width: int) -> None:
        super().__init__({
            "shift": In(1), "link_i": In(signed(width)), "link_o": Out(signed(width)), "shadow": Out(signed(width)),
        })
        self._width = width

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: a register for the weight, and one for what the next row gets."""
        m = Module()
        # The outputs of a component reset; registers behind them do not.
        shadow = Signal(signed(self._width), reset_less=True)
        link = Signal(signed(self._width), reset_less=True)
        with m.If(self.shift):
            m.d.sync += [shadow.eq(self.link_i), link.eq(shadow)]
        m.d.comb += [self.link_o.eq(link), self.shadow.eq(shadow)]
        return m


class ProcessingElement(wiring.Component):
    """Multiply what passes from left to right by the weight, and add it to what passes from top to bottom.

    ``activation_i`` of cycle t appears at ``activation_o`` at t + ACTIVATION_LATENCY. Its product is added to the
    ``partial_sum_i`` of cycle t + PARTIAL_SUM_OFFSET, and the sum is ``partial_sum_o`` at t + LATENCY. A ``swap`` at
    cycle t makes the shadow the weight, from the activation_i of cycle t on; with a shift in the same cycle it is the
    old shadow. Free running, one operand a cycle.

    The number scheme says how many bits sums have and how they are rounded. If the bias is added below the column,
    row 0's ``partial_sum_i`` is left at zero. ``shift``, ``link_i`` and ``link_o``: see :class:`ShadowWeight`.

    With ``tap`` the element also holds a tap. While ``depthwise`` is high it multiplies ``tap_i`` if ``tap_counts``,
    else zero, and ``activation_i`` passes by."""

    ACTIVATION_LATENCY = 1
    PARTIAL_SUM_OFFSET = 2
    LATENCY = 3

    def __init__(self, arch: Arch, row: int, *, tap: bool = False) -> None:
        self._arch, self._tap = arch, tap
        width, factor = arch.number.width, arch.scheme.activation_width
        sum_in, sum_out = (arch.scheme.row_sum_width(each) for each in (max(row - 1, 0), row))
        super().__init__({
            "activation_i": In(signed(factor)), "activation_o": Out(signed(factor)),
            "partial_sum_i": In(signed(sum_in)), "partial_sum_o": Out(signed(sum_out)),
            "shift": In(1), "swap": In(1), "link_i": In(signed(width)), "link_o": Out(signed(width)),
            **({"depthwise": In(1), "tap_i": In(signed(factor)), "tap_counts": In(1)} if tap else {}),
        })

    @staticmethod
    def reference(arch: Arch, weight: int, activation: int, partial_sum: int) -> int:
        """Return the sum that the element makes of these numbers."""
        return arch.scheme.add_product(partial_sum, weight, activation)

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: a shadow weight, a multiplier, and the number scheme's adder."""
        m = Module()
        width = self._arch.number.width
        factor = self._arch.scheme.activation_width
        m.submodules.weights = weights = ShadowWeight(width)
        multiplier: Any
        if self._tap:
            m.submodules.tap_multiplier = multiplier = TapMultiplier(factor, width)
            given = [multiplier.activation.eq(self.activation_i), multiplier.tap.eq(self.tap_i),
                     multiplier.tap_counts.eq(self.tap_counts), multiplier.take_tap.eq(self.depthwise)]
        else:
            m.submodules.multiplier = multiplier = Multiplier(factor, width)
            given = [multiplier.left.eq(self.activation_i)]
        activation = Signal(signed(factor), reset_less=True)  # the multiplier's own first register has it too
        partial_sum = Signal(self.partial_sum_o.shape(), reset_less=True)
        m.d.sync += activation.eq(self.activation_i)
        total = circuits(self._arch).add_product(self.partial_sum_i, multiplier.product, len(partial_sum))
        m.d.sync += partial_sum.eq(total)
        m.d.comb += [
            self.activation_o.eq(activation), self.partial_sum_o.eq(partial_sum), *given,
            multiplier.right.eq(weights.shadow), multiplier.take_right.eq(self.swap), weights.shift.eq(self.shift),
            weights.link_i.eq(self.link_i), self.link_o.eq(weights.link_o),
        ]
        return m
