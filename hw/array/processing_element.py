"""One processing element, its place of the weight column, and the adder of the bias below each column."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.multiplier import Multiplier
from weft.hw.contract.arch import ONCE, Arch, bits_to_count
from weft.hw.contract.numerics import round_half_even, saturate
from weft.hw.parts import fixed_point
from weft.hw.parts.operations import shift_width
from weft.hw.parts.ports import partial_sum_width


def row_sum_width(arch: Arch, row: int) -> int:
    """Bits of the sum of the products down to row ``row``, 0 the first: as many as they can need, and no more.

    A wider register would hold copies of its sign, and yosys 0.70 loses such copies when it packs the register into
    a DSP block.
    """
    width = arch.number.width
    return 2 * width + bits_to_count(row + 1) if arch.mac_rounding == ONCE else width


class ShadowWeight(wiring.Component):
    """One place of the column of weights on their way in.

    ``shift``: ``shadow`` takes ``link_i``, and ``link_o`` the shadow's old value, so that the next row may shift one
    cycle later (or, given ``shadow`` itself, in the same cycle). Both keep their values over a reset and are zero at
    power-up.
    """

    def __init__(self, width: int) -> None:
        super().__init__({
            "shift": In(1), "link_i": In(signed(width)), "link_o": Out(signed(width)), "shadow": Out(signed(width)),
        })
        self._width = width

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # The outputs of a component reset; registers behind them do not.
        shadow = Signal(signed(self._width), reset_less=True)
        link = Signal(signed(self._width), reset_less=True)
        with m.If(self.shift):
            m.d.sync += [shadow.eq(self.link_i), link.eq(shadow)]
        m.d.comb += [self.link_o.eq(link), self.shadow.eq(shadow)]
        return m


class ProcessingElement(wiring.Component):
    """Multiplies what passes from left to right by its weight and adds it to what passes from top to bottom.

    activation_i at cycle t appears at ``activation_o`` at t + ACTIVATION_LATENCY; its product is added to the
    ``partial_sum_i`` of cycle t + PARTIAL_SUM_OFFSET, and the sum is ``partial_sum_o`` at t + LATENCY. A ``swap`` at
    cycle t makes the shadow the weight, for the activation_i of cycle t already; with a shift in the same cycle it is
    the old shadow. Free running, one operand a cycle. ``once``: exact sums of
    ``row_sum_width`` bits; row 0 starts a DSP cascade, its partial_sum_i is left at zero. ``every_step``: each sum is
    rounded HALF_EVEN and saturated to the data type. Weights: :class:`ShadowWeight`.
    """

    ACTIVATION_LATENCY = 1
    PARTIAL_SUM_OFFSET = 2
    LATENCY = 3

    def __init__(self, arch: Arch, row: int) -> None:
        self._arch = arch
        width = arch.number.width
        sum_in, sum_out = (row_sum_width(arch, each) for each in (max(row - 1, 0), row))
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
        m.submodules.multiplier = multiplier = Multiplier(width)
        activation = Signal(signed(width), reset_less=True)  # the multiplier's own first register has it too
        partial_sum = Signal(self.partial_sum_o.shape(), reset_less=True)
        product = multiplier.product
        m.d.sync += activation.eq(self.activation_i)
        if self._arch.mac_rounding == ONCE:
            total = (self.partial_sum_i + product)[:len(partial_sum)]
        else:
            total = fixed_point.saturate(fixed_point.round_half_even(
                product + Cat(Const(0, point), self.partial_sum_i).as_signed(), point), width)
        m.d.sync += partial_sum.eq(total)
        m.d.comb += [
            self.activation_o.eq(activation), self.partial_sum_o.eq(partial_sum),
            multiplier.left.eq(self.activation_i), multiplier.right.eq(weights.shadow),
            multiplier.take_right.eq(self.swap), weights.shift.eq(self.shift),
            weights.link_i.eq(self.link_i), self.link_o.eq(weights.link_o),
        ]
        return m


class BiasAdder(wiring.Component):
    """Below a column with mac_rounding ``once``: adds the bias to the sum of its products.

    The sum_i of cycle t + 2 plus the ``bias`` of cycle t, entered by the ``enter_shift`` of cycle t, is ``sum_o`` at
    t + LATENCY.
    """

    LATENCY = 3

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "bias": In(signed(arch.number.width)), "enter_shift": In(unsigned(shift_width(arch))),
            "sum_i": In(signed(row_sum_width(arch, arch.array_size - 1))),
            "sum_o": Out(signed(partial_sum_width(arch))),
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        width = self._arch.accumulator_bits
        step = fixed_point.turn(self.bias, self.enter_shift, fixed_point.fitting(
            self.enter_shift, len(self.bias), width))
        turned, shift = Signal(len(step), reset_less=True), Signal.like(self.enter_shift, reset_less=True)
        from_shift, entered = Signal(width, reset_less=True), Signal(signed(width), reset_less=True)
        total = Signal(self.sum_o.shape(), reset_less=True)
        m.d.sync += [
            turned.eq(step), shift.eq(self.enter_shift), from_shift.eq(fixed_point.reached(self.enter_shift, width)),
            entered.eq(fixed_point.place(turned, shift, from_shift)), total.eq(self.sum_i + entered),
        ]
        m.d.comb += self.sum_o.eq(total)
        return m
