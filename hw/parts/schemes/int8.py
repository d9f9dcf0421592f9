"""Bytes with scales: exact sums without biases, and the SIMD unit's way in and out; moves multiply, on their way out
in a block of its own (``hw/memory/scaler.py``)."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Value

from weft.hw.contract.schemes import Int8
from weft.hw.parts.schemes.base import Circuits


class Int8Circuits(Circuits):
    """There are no shifts to look at."""

    name = Int8.name

    def turn(self, scalar: Value, shift: Value, fits: Value) -> Value:
        return scalar

    def place(self, turned: Value, shift: Value, from_shift: Value) -> Value:
        return turned.as_signed()

    def leave_shifts(self, shift: Value, fine_shift: Value, from_shift: Value) -> tuple[Value, Value, Value]:
        return Const(0, 1), Const(0, 1), Const(-1, len(from_shift))

    def weight(self, scalar: Value) -> Value:
        """-128 becomes -127."""
        lowest = scalar[-1] & ~scalar[:-1].any()
        return Cat(scalar[0] | lowest, scalar[1:]).as_signed()

    def add_product(self, partial_sum: Value, product: Value, width: int) -> Value:
        return (partial_sum + product)[:width]

    def add_biases(self, m: Module, biases: list[Value], enter: Value, enter_shift: Value,
                   columns: list[list[Any]]) -> list[Value]:
        return [column[-1].partial_sum_o for column in columns]
