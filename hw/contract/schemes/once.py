# SPDX-License-Identifier: Apache-2.0
"""Fixed point, ``mac_rounding`` = ``once``: exact sums, rounded when they leave the accumulators."""

from __future__ import annotations

import numpy as np

from weft.hw.contract.numerics import DataType, Integers, multiply_exact, rescale_input
from weft.hw.contract.schemes.fixed_point import FixedPoint


class FixedPointOnce(FixedPoint):
    """Fixed point with exact sums; each tensor has its own binary point."""

    name, code = "once", 0
    meaning = "exact sums, rounded as they leave the accumulators"
    order_matters = False
    bias_cycles = 2

    @staticmethod
    def default_accumulator_width(scalar: DataType) -> int:
        """Return twice the width of the scalar."""
        return 2 * scalar.width

    def bias_interval(self, lanes: int) -> int:
        """Return ``lanes``: one unit rescales the biases of column after column."""
        return lanes

    def row_sum_width(self, row: int) -> int:
        """Return the bits of an exact sum of ``row`` + 1 products."""
        return 2 * self.scalar.width + row.bit_length()

    def partial_sum_width(self, lanes: int) -> int:
        """Return the bits of an exact sum of ``lanes`` products plus a rescaled bias."""
        return max(2 * self.scalar.width - 2 + (lanes - 1).bit_length(), self.accumulator_width - 1) + 2

    def rescale_input(self, scalars: Integers, shift: int) -> Integers:
        """Return scalars as accumulator values: shifted left, saturated."""
        return rescale_input(scalars, shift, self.accumulator_width)

    def mac(self, activations: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return the exact sums of the systolic array plus ``bias``."""
        return multiply_exact(activations, weights, self.scalar.width) + bias

    def add_product(self, partial_sum: int, weight: int, activation: int) -> int:
        """Return a partial sum with one exact product added."""
        return partial_sum + weight * activation

    def round_sums(self, sums: np.ndarray) -> np.ndarray:
        """Return the sums as they are."""
        return sums
