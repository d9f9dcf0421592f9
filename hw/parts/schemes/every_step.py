# SPDX-License-Identifier: Apache-2.0
"""Fixed point, rounded and saturated at every step: accumulators are scalars, and a column starts from its bias."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed

from weft.hw.contract.schemes import FixedPointEveryStep
from weft.hw.parts import fixed_point
from weft.hw.parts.schemes.fixed_point import FixedPointCircuits


class EveryStepCircuits(FixedPointCircuits):
    """The circuits of fixed point that is rounded at every step; they ignore the shifts."""

    name = FixedPointEveryStep.name

    def turn(self, scalar: Value, shift: Value, fits: Value) -> Value:
        """Return the scalar as it is."""
        return scalar

    def place(self, turned: Value, shift: Value, from_shift: Value) -> Value:
        """Return the scalar as it is."""
        return turned.as_signed()

    def output_shifts(self, shift: Value, fine_shift: Value, from_shift: Value) -> tuple[Value, Value, Value]:
        """Return shifts by 0."""
        return Const(0, 1), Const(0, 1), Const(-1, len(from_shift))

    def add_product(self, partial_sum: Value, product: Value, width: int) -> Value:
        """Return the sum, rounded HALF_EVEN and saturated."""
        point = self.arch.number.point
        return fixed_point.saturate(fixed_point.round_half_even(
            product + Cat(Const(0, point), partial_sum).as_signed(), point), width)

    def add_biases(self, m: Module, biases: list[Value], enter: Value, input_shift: Value,
                   columns: list[list[Any]]) -> list[Value]:
        """Return the columns' sums; each begins with its bias."""
        for j, (bias, column) in enumerate(zip(biases, columns, strict=True)):
            start = Signal(signed(self.arch.number.width), name=f"start_{j}", reset_less=True)
            m.d.sync += start.eq(bias)
            m.d.comb += column[0].partial_sum_i.eq(start)
        return [column[-1].partial_sum_o for column in columns]
