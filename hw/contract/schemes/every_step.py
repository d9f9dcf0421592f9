# SPDX-License-Identifier: Apache-2.0
"""Fixed point, ``mac_rounding`` = ``every_step``: each multiply-accumulate rounds and saturates, as in the original."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.hw.contract.numerics import DataType, Integers, requantize, rescale_input, round_half_even, saturate
from weft.hw.contract.schemes.base import OutputRescale
from weft.hw.contract.schemes.fixed_point import FixedPoint
from weft.support.errors import ArchError

PART_VECTORS = 64
"""Vectors that ``mac`` takes at a time, so that their products stay in the cache."""


class FixedPointEveryStep(FixedPoint):
    """Fixed point whose sums and accumulators are scalars; all tensors have the scalar's binary point."""

    name, code = "every_step", 1
    meaning = "as the original machine"
    order_matters = True
    bias_cycles = 1

    @staticmethod
    def default_accumulator_width(scalar: DataType) -> int:
        """Return the width of the scalar."""
        return scalar.width

    def check(self) -> None:
        """Raise ArchError if the accumulators are not as wide as the scalars."""
        if self.accumulator_width != self.scalar.width:
            raise ArchError("accumulator_width", self.accumulator_width,
                            f"{self.scalar.width} (the data type's) with mac_rounding {self.name}",
                            "leave accumulator_width out")
        super().check()

    @property
    def fixed_shift(self) -> int | None:
        """The shift of all moves: the scalar's binary point."""
        return self.scalar.point

    def row_sum_width(self, row: int) -> int:
        """Return the width of the scalar, since each step saturates to it."""
        return self.scalar.width

    def partial_sum_width(self, lanes: int) -> int:
        """Return the width of the scalar, since each step saturates to it."""
        return self.scalar.width

    def rescale_input(self, scalars: Integers, shift: int) -> Integers:
        """Return scalars as accumulator values, without a shift."""
        return rescale_input(scalars, 0, self.accumulator_width)

    def requantize(self, values: Integers, shift: int) -> Integers:
        """Return accumulator values as scalars, without a shift."""
        return requantize(values, 0, self.scalar.width)

    def is_cut(self, values: Integers, requantization: OutputRescale, relu: bool = False) -> np.ndarray:
        """Return which accumulator values are changed by saturating, without a shift."""
        return super().is_cut(values, replace(requantization, shift=0), relu)

    def mac(self, activations: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return the sums of the systolic array, each step rounded and saturated."""
        parts = range(0, max(len(activations), 1), PART_VECTORS)
        return np.concatenate([self._mac(activations[k:k + PART_VECTORS], weights, bias) for k in parts])

    def _mac(self, activations: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return :meth:`mac` of at most PART_VECTORS vectors.

        HALF_EVEN of product + (total << point) is total + the product rounded half down, plus one if the product lies
        half way and that sum is odd. So all but this last step is done for all products at once."""
        width, point, one = self.scalar.width, self.scalar.point, self.scalar.one
        # |x*w| <= 2**(2*width-2), so a product and half of One fit 2*width bits.
        dtype = np.int32 if 2 * width <= 32 else np.int64
        activations, weights = activations.astype(dtype), weights.astype(dtype)
        half = one // 2
        products = activations.T[:, :, None] * weights[:, None, :]
        half_way = ((products & (one - 1)) == half).astype(dtype)
        half_down = (products + (half - 1)) >> point
        total = np.broadcast_to(bias.astype(dtype), products.shape[1:])
        for lane in range(len(weights)):
            total = total + half_down[lane]
            total += total & half_way[lane]
            total = saturate(total, width)
        return total.astype(np.int64)

    def add_product(self, partial_sum: int, weight: int, activation: int) -> int:
        """Return a partial sum with one product added, rounded and saturated."""
        return self.scalar.saturate(round_half_even(weight * activation + (partial_sum << self.scalar.point),
                                                    self.scalar.point))

    def round_sums(self, sums: np.ndarray) -> np.ndarray:
        """Return exact sums of products rounded to the scalar's point."""
        return np.asarray(round_half_even(sums, self.scalar.point))
