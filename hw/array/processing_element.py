"""One processing element, and the element of the bias row above each column."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw import fixed_point
from weft.hw.arch import ONCE, Arch
from weft.hw.numerics import round_half_even, saturate
from weft.hw.operations import shift_width
from weft.hw.ports import partial_sum_width


def row_sum_widths(arch: Arch, row: int) -> tuple[int, int]:
    """Bits of the partial sum into and out of row ``row``: as many as its summands can need, up to partial_sum_width.

    A wider register would hold copies of its sign, and yosys 0.70 loses such copies when it packs the register into
    a DSP block.
    """
    if arch.mac_rounding != ONCE:
        return arch.number.width, arch.number.width
    limit = partial_sum_width(arch)
    into = arch.accumulator_bits if row == 0 else row_sum_widths(arch, row - 1)[1]
    return into, min(limit, max(into, 2 * arch.number.width) + 1)


class ShadowWeight(wiring.Component):
    """One place of the weight column: a shadow that shifts, and the active weight that is copied from it.

    ``shift``: the shadow takes ``link_i`` and ``link_o`` takes the shadow's old value, so that the next row may shift
    one cycle later. ``swap``: ``weight`` takes the shadow; at the same edge as a shift it takes the old shadow.
    All three registers keep their values over a reset and are zero at power-up.
    """

    def __init__(self, width: int) -> None:
        super().__init__({
            "shift": In(1), "swap": In(1), "link_i": In(signed(width)), "link_o": Out(signed(width)),
            "weight": Out(signed(width)),
        })
        self._width = width

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # The outputs of a component reset; registers behind them do not.
        shadow = Signal(signed(self._width), reset_less=True)
        link = Signal(signed(self._width), reset_less=True)
        active = Signal(signed(self._width), reset_less=True)
        with m.If(self.shift):
            m.d.sync += [shadow.eq(self.link_i), link.eq(shadow)]
        with m.If(self.swap):
            m.d.sync += active.eq(shadow)
        m.d.comb += [self.link_o.eq(link), self.weight.eq(active)]
        return m


class ProcessingElement(wiring.Component):
    """Multiplies what passes from left to right by its weight and adds it to what passes from top to bottom.

    activation_i at cycle t appears at ``activation_o`` at t + ACTIVATION_LATENCY; its product is added to the
    ``partial_sum_i`` of cycle t + PARTIAL_SUM_OFFSET, and the sum is ``partial_sum_o`` at t + LATENCY. A swap at
    cycle t counts for the activation_i of cycle t already. Free running, one operand a cycle. ``once``: exact sums of
    ``row_sum_widths`` bits. ``every_step``: each sum is rounded HALF_EVEN and saturated to the data type.
    Weights: :class:`ShadowWeight`. ``row`` counts from 0, the row below the bias.
    """

    ACTIVATION_LATENCY = 1
    PARTIAL_SUM_OFFSET = 2
    LATENCY = 3

    def __init__(self, arch: Arch, row: int) -> None:
        self._arch = arch
        width = arch.number.width
        sum_in, sum_out = row_sum_widths(arch, row)
        super().__init__({
            "activation_i": In(signed(width)), "activation_o": Out(signed(width)),
            "partial_sum_i": In(signed(sum_in)), "partial_sum_o": Out(signed(sum_out)),
            "shift": In(1), "swap": In(1), "link_i": In(signed(width)), "link_o": Out(signed(width)),
        })

    @staticmethod
    def reference(arch: Arch, weight: int, activation: int, partial_sum: int) -> int:
        if arch.mac_rounding == ONCE:
            return partial_sum + weight * activation
        point, width = arch.number.point, arch.number.width
        return saturate(round_half_even(weight * activation + (partial_sum << point), point), width)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        number = self._arch.number
        width, point = number.width, number.point
        m.submodules.weights = weights = ShadowWeight(width)
        # These three registers are the ones inside a DSP block.
        activation = Signal(signed(width), reset_less=True)
        product = Signal(signed(2 * width), reset_less=True)
        partial_sum = Signal(self.partial_sum_o.shape(), reset_less=True)
        m.d.sync += [activation.eq(self.activation_i), product.eq(activation * weights.weight)]
        if self._arch.mac_rounding == ONCE:
            total = (self.partial_sum_i + product)[:len(partial_sum)]
        else:
            total = fixed_point.saturate(fixed_point.round_half_even(
                product + Cat(Const(0, point), self.partial_sum_i).as_signed(), point), width)
        m.d.sync += partial_sum.eq(total)
        m.d.comb += [
            self.activation_o.eq(activation), self.partial_sum_o.eq(partial_sum),
            weights.shift.eq(self.shift), weights.swap.eq(self.swap),
            weights.link_i.eq(self.link_i), self.link_o.eq(weights.link_o),
        ]
        return m


class BiasElement(wiring.Component):
    """The place of the bias row above a column: what the column's sums start from.

    The active bias, entered by the ``enter_shift`` of cycle t + 1 (as it is with ``every_step``), is ``partial_sum_o``
    at t + LATENCY, for a swap at cycle t or before. Weights: :class:`ShadowWeight`.
    """

    LATENCY = 3

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        width = arch.number.width
        super().__init__({
            "enter_shift": In(unsigned(shift_width(arch))), "partial_sum_o": Out(signed(arch.accumulator_bits)),
            "shift": In(1), "swap": In(1), "link_i": In(signed(width)), "link_o": Out(signed(width)),
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        arch = self._arch
        m.submodules.weights = weights = ShadowWeight(arch.number.width)
        entered = Signal(signed(arch.accumulator_bits), reset_less=True)
        partial_sum = Signal(signed(arch.accumulator_bits), reset_less=True)  # the DSP block's C register
        if arch.mac_rounding == ONCE:
            m.d.sync += entered.eq(fixed_point.enter(weights.weight, self.enter_shift, arch.accumulator_bits))
        else:
            m.d.sync += entered.eq(weights.weight)
        m.d.sync += partial_sum.eq(entered)
        m.d.comb += [
            self.partial_sum_o.eq(partial_sum),
            weights.shift.eq(self.shift), weights.swap.eq(self.swap),
            weights.link_i.eq(self.link_i), self.link_o.eq(weights.link_o),
        ]
        return m
