# SPDX-License-Identifier: Apache-2.0
"""The parts that both fixed-point schemes have in common: parameters are binary points, and moves shift."""

from __future__ import annotations

from abc import ABC

import numpy as np

from weft.hw.contract.numerics import Integers, bits_to_count, requantize
from weft.hw.contract.registers import Register, RegisterSpec
from weft.hw.contract.schemes.base import OutputRescale, Scheme, SchemeKind

ROUND_LATENCY = 2
"""Cycles in which a row of accumulators is rounded off."""

SLOPE_WIDTH, SLOPE_POINT = 16, 14
"""Bits, and bits of fraction, of the factor by which scalars below zero are multiplied on their way out."""


class FixedPoint(Scheme, ABC):
    """A scheme in which moves into the accumulators shift left and moves out of them round off bits."""

    kind = SchemeKind.FIXED_POINT
    requantize_latency = ROUND_LATENCY
    register_fields = {
        "mat_mul": {"input_shift": Register.INPUT_SHIFT},
        "simd": {"input_shift": Register.INPUT_SHIFT, "output_shift": Register.OUTPUT_SHIFT},
        "move_out": {"output_shift": Register.OUTPUT_SHIFT, "output_maximum": Register.OUTPUT_MAXIMUM,
                     "output_slope": Register.OUTPUT_SLOPE},
        "move_in": {"input_shift": Register.INPUT_SHIFT},
    }

    def registers(self, activation_tables: int) -> dict[Register, RegisterSpec]:
        """Return the registers of the input and output shift."""
        def shift(meaning: str) -> RegisterSpec:
            width = bits_to_count(self.accumulator_width)
            return RegisterSpec(width, self.scalar.point, self.accumulator_width - 1, meaning)

        return {Register.INPUT_SHIFT: shift("bits shifted left on the way into the accumulators"),
                Register.OUTPUT_SHIFT: shift("bits rounded off when the accumulators are requantized")}

    def move_out(self, values: Integers, requantization: OutputRescale, relu: bool) -> Integers:
        """Return the scalars that a DataMove out of the accumulators makes of values [..., lanes].

        With ``relu`` what is below zero is multiplied by the slope (0: it becomes zero), then nothing is above the
        maximum."""
        scalars = self.requantize(values, requantization.shift)
        if not relu:
            return scalars
        below = requantize(np.minimum(scalars, 0) * requantization.slope, SLOPE_POINT, self.scalar.width)
        kept = np.where(scalars < 0, below, scalars)
        return kept if requantization.maximum is None else np.minimum(kept, requantization.maximum)
