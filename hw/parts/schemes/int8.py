# SPDX-License-Identifier: Apache-2.0
"""INT8: exact sums without biases, and the input rescaler. The requantizer is ``hw/memory/scaler.py``."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed

from weft.hw.contract.schemes import Int8
from weft.hw.parts import fixed_point
from weft.hw.parts.delay import delayed
from weft.hw.parts.schemes.base import Circuits


class Int8Circuits(Circuits):
    """The circuits of INT8 machines, which have multipliers in place of shifts."""

    name = Int8.name

    def activation(self, scalar: Value, operation: Any) -> Value:
        """Return the byte minus its zero point."""
        return scalar - operation.activation_zero_point

    def chosen_activation(self, scalar: Value, operation: Any) -> Value:
        """Return the byte minus its zero point.

        The tables of an adder's carry chain have room for what chooses its second operand, not for its first one."""
        return -operation.activation_zero_point + scalar

    def rescale(self, m: Module, request: Any) -> list[Value]:
        """Return (byte - zero point) x multiplier, saturated, of each lane; each of the three steps has a register."""
        bits, difference_width = self.arch.accumulator_bits, self.arch.number.width + 1
        factor = delayed(m, request.input_multiplier, 1, name="factor")
        values: list[Value] = []
        for lane in range(self.arch.array_size):
            difference = Signal(signed(difference_width), reset_less=True, name=f"difference_{lane}")
            product = Signal(signed(difference_width + len(factor)), reset_less=True, name=f"product_{lane}")
            placed = Signal(signed(bits), reset_less=True, name=f"placed_{lane}")
            m.d.sync += [difference.eq(request.data[lane] - request.input_zero_point), product.eq(difference * factor),
                         placed.eq(fixed_point.saturate(product, bits))]
            values.append(placed)
        return values

    def output_shifts(self, shift: Value, fine_shift: Value, from_shift: Value) -> tuple[Value, Value, Value]:
        """Return shifts by 0: what the SIMD unit reads is saturated only."""
        return Const(0, 1), Const(0, 1), Const(-1, len(from_shift))

    def weight(self, scalar: Value) -> Value:
        """Return the weight; -128 becomes -127."""
        lowest = scalar[-1] & ~scalar[:-1].any()
        return Cat(scalar[0] | lowest, scalar[1:]).as_signed()

    def add_product(self, partial_sum: Value, product: Value, width: int) -> Value:
        """Return the exact sum."""
        return (partial_sum + product)[:width]

    def add_biases(self, m: Module, biases: list[Value], enter: Value, input_shift: Value,
                   columns: list[list[Any]]) -> list[Value]:
        """Return the columns' sums; the requantizer adds the biases."""
        return [column[-1].partial_sum_o for column in columns]
