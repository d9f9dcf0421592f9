# SPDX-License-Identifier: Apache-2.0
"""The scaler of INT8 machines: from accumulators to scalars by bias, multiplier, shift and zero point of every lane."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes.int8 import (
    BIAS_WIDTH,
    MULTIPLIER_BYTES,
    MULTIPLIER_WIDTH,
    SCALE_LATENCY,
    SCALE_VECTORS,
    SCALED_WIDTH,
    most_output_shift,
)
from weft.hw.parts import fixed_point
from weft.hw.parts.delay import DelayLine
from weft.hw.parts.operations import register_fields
from weft.hw.parts.ports import accumulator_layout, vector_layout

SUM, SATURATED, PRODUCT, PASSED, CUT, ROUNDED, CLIPPED = range(1, SCALE_LATENCY + 1)
"""The cycles after a row in which each step's register holds its value."""


class Scaler(wiring.Component):
    """``scalars`` are the requantized ``row``, SCALE_LATENCY cycles later; free running, a row a cycle.

    ``shift``, ``zero`` and ``relu`` come with their row. ``take`` shifts ``scale`` into every lane's scales:
    SCALE_VECTORS of them replace what was there. A row that comes in the cycle of the first one is still scaled as
    before, one that comes after the last one as these say. Scales are zero at power-up and stay over a reset.
    Meaning: ``Int8.move_out``."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        fields = register_fields(arch)
        super().__init__({
            "row": In(accumulator_layout(arch)), "scalars": Out(vector_layout(arch)),
            "shift": In(fields["scale_shift"]), "zero": In(fields["output_zero_point"]), "relu": In(1),
            "take": In(1), "scale": In(vector_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit.

        Flow: row + bias -> saturated -> x multiplier -> its second register -> cut -> rounded off -> clipped -> +
        zero."""
        m = Module()
        zero_of = DelayLine(m, self.zero, CLIPPED, name="zero_line")
        shifts = DelayLine(m, self.shift, CUT, name="shift_line")
        relus = DelayLine(m, self.relu, ROUNDED, name="relu_line")
        reached = Signal(most_output_shift(self._arch.multiplier_width) + 1, reset_less=True)
        m.d.sync += reached.eq(fixed_point.reached(shifts.tap(PASSED - 1), len(reached)))
        for lane in range(self._arch.array_size):
            product = self._product(m, lane)
            clipped = self._rounded(m, lane, product, (shifts.tap(PASSED), shifts.tap(CUT)), reached,
                                    relus.tap(ROUNDED))
            total = clipped + zero_of.tap(CLIPPED).as_signed()
            m.d.comb += self.scalars[lane].eq(fixed_point.saturate(total, self._arch.number.width))
        return m

    def _product(self, m: Module, lane: int) -> Signal:
        """Return (row + bias), saturated, x multiplier of one lane, exact."""
        width, multiplier_width = self._arch.number.width, self._arch.multiplier_width
        scale = Signal(SCALE_VECTORS * width, reset_less=True, name=f"scale_{lane}")
        with m.If(self.take):
            m.d.sync += scale.eq(Cat(scale[width:], self.scale[lane]))
        bias = scale[MULTIPLIER_BYTES * width:].as_signed()
        row_width = max(self._arch.accumulator_bits, BIAS_WIDTH)

        def register(name: str, shape: Any) -> Signal:
            return Signal(shape, reset_less=True, name=f"{name}_{lane}")

        total, saturated = register("total", signed(row_width + 1)), register("saturated", signed(SCALED_WIDTH))
        multipliers = [register(f"multiplier_{age}", unsigned(multiplier_width)) for age in (1, 2)]
        # A DSP block holds a part of MULTIPLIER_WIDTH bits. The second register adds the product with the bits above.
        low, high = multipliers[1][:MULTIPLIER_WIDTH], multipliers[1][MULTIPLIER_WIDTH:]
        product = register("product", signed(SCALED_WIDTH + MULTIPLIER_WIDTH + 1))
        passed = register("passed", signed(SCALED_WIDTH + multiplier_width + 1))
        total_product: Value = product
        if len(high):
            above = register("product_above", signed(SCALED_WIDTH + len(high) + 1))
            m.d.sync += above.eq(saturated * high)
            total_product = Cat(product[:MULTIPLIER_WIDTH],
                                (product[MULTIPLIER_WIDTH:].as_signed() + above)).as_signed()
        m.d.sync += [
            total.eq(self.row[lane] + bias), multipliers[0].eq(scale[:multiplier_width]),
            saturated.eq(fixed_point.saturate(total, SCALED_WIDTH)), multipliers[1].eq(multipliers[0]),
            product.eq(saturated * low), passed.eq(total_product),
        ]
        return passed

    def _rounded(self, m: Module, lane: int, product: Signal, shifts: tuple[Value, Value], reached: Value,
                 relu: Value) -> Signal:
        """Return the product of one lane, rounded off and clipped to one bit more than a scalar.

        No zero point brings anything beyond that back into a scalar's range."""
        width = self._arch.number.width + 1
        step = fixed_point.cut(product, shifts[0], reached, width)
        cut = Signal(len(step), reset_less=True, name=f"cut_{lane}")
        kept = Signal(width + 1, name=f"kept_{lane}")
        rounded, clipped = (Signal(signed(width), reset_less=True, name=f"{name}_{lane}")
                            for name in ("rounded", "clipped"))
        m.d.comb += kept.eq(fixed_point.round_off(cut, shifts[1], width))
        m.d.sync += [cut.eq(step), rounded.eq(fixed_point.add_up(kept)),
                     clipped.eq(Mux(relu & rounded[-1], 0, rounded))]
        return clipped
