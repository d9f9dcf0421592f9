# SPDX-License-Identifier: Apache-2.0
"""Fixed point with exact sums: scalars are shifted into the accumulators, and the bias is added below each column.

It is added there because yosys starts a DSP cascade only at a block that adds nothing."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import FixedPointOnce
from weft.hw.parts import fixed_point
from weft.hw.parts.delay import DelayLine
from weft.hw.parts.operations import shift_width
from weft.hw.parts.ports import accumulator_layout, partial_sum_width, vector_layout
from weft.hw.parts.schemes.fixed_point import FixedPointCircuits


class OnceCircuits(FixedPointCircuits):
    """The circuits of fixed point that is rounded once, when a sum is requantized."""

    name = FixedPointOnce.name

    def turn(self, scalar: Value, shift: Value, fits: Value) -> Value:
        """Return ``fixed_point.turn``."""
        return fixed_point.turn(scalar, shift, fits)

    def place(self, turned: Value, shift: Value, from_shift: Value) -> Value:
        """Return ``fixed_point.place``."""
        return fixed_point.place(turned, shift, from_shift)

    def output_shifts(self, shift: Value, fine_shift: Value, from_shift: Value) -> tuple[Value, Value, Value]:
        """Return the instruction's shifts."""
        return shift, fine_shift, from_shift

    def add_product(self, partial_sum: Value, product: Value, width: int) -> Value:
        """Return the exact sum."""
        return (partial_sum + product)[:width]

    def add_biases(self, m: Module, biases: list[Value], enter: Value, input_shift: Value,
                   columns: list[list[Any]]) -> list[Value]:
        """Return the columns' sums plus their rescaled biases, a register behind the last elements."""
        m.submodules.bias_rescaler = rescaler = BiasRescaler(self.arch)
        m.d.comb += [rescaler.enter.eq(enter), rescaler.input_shift.eq(input_shift),
                     rescaler.biases.as_value().eq(Cat(biases))]
        totals = [Signal(signed(partial_sum_width(self.arch)), name=f"total_{j}", reset_less=True)
                  for j in range(len(columns))]
        m.d.sync += [total.eq(column[-1].partial_sum_o + entered)
                     for total, column, entered in zip(totals, columns, rescaler.entered, strict=True)]
        return list(totals)


class BiasRescaler(wiring.Component):
    """Rescale the biases of all columns, one after another, as the wave of a vector given with ``enter`` passes them.

    Bias j, there from cycle j + 1 on, is ``entered[j]`` from cycle array_size + j + 2 on, when this vector's sum of
    products leaves column j. The next ``enter`` comes at least array_size cycles later."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "enter": In(1), "input_shift": In(unsigned(shift_width(arch))),
            "biases": In(vector_layout(arch)), "entered": Out(accumulator_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: each cycle the next column's bias is rotated, then masked, into the column's register."""
        m = Module()
        size, width, bits = self._arch.array_size, self._arch.number.width, self._arch.accumulator_bits
        passes = DelayLine(m, self.enter, 2 * size, name="passes", reset=True)  # tap k + size - 1: it takes bias k
        column = Signal(range(size))
        m.d.sync += column.eq(Mux(passes.tap(size - 1), 1, Mux(column == size - 1, 0, column + (column != 0))))
        given, shift, place_shift = (Signal.like(self.input_shift, reset_less=True, name=name)
                                     for name in ("given_shift", "shift", "place_shift"))
        fits, from_shift = (Signal(length, reset_less=True, name=name) for length, name in (
            (width - 1, "fits"), (bits, "from_shift")))
        with m.If(self.enter):
            m.d.sync += given.eq(self.input_shift)
        with m.If(passes.tap(size - 1)):
            m.d.sync += [shift.eq(given), fits.eq(fixed_point.fitting(given, width, bits))]
        bias = Signal(signed(width), reset_less=True)
        step = fixed_point.turn(bias, shift, fits)
        turned = Signal(len(step), reset_less=True)
        placed = fixed_point.place(turned, place_shift, from_shift)
        m.d.sync += [
            bias.eq(Array(self.biases[k] for k in range(size))[column]), turned.eq(step), place_shift.eq(shift),
            from_shift.eq(fixed_point.reached(shift, bits)),
        ]
        for k in range(size):
            entered = Signal(signed(bits), reset_less=True, name=f"entered_{k}")
            with m.If(passes.tap(size + k + 1)):
                m.d.sync += entered.eq(placed)
            m.d.comb += self.entered[k].eq(entered)
        return m
