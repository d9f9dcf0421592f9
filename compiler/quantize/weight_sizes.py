# SPDX-License-Identifier: Apache-2.0
"""Work out how large weights of a convolution are, which the choice of binary points asks again and again."""

from __future__ import annotations

from functools import cached_property

import numpy as np


class WeightSizes:
    """The sizes of weights [out, ...], each worked out once.

    ``sums`` [out]: the sum of the magnitudes for each output channel."""

    def __init__(self, weights: np.ndarray) -> None:
        self._weights = weights
        self.sums = np.abs(weights, dtype=np.float64).reshape(len(weights), -1).sum(1)

    @cached_property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(-float(self._weights.min()), float(self._weights.max()))

    @cached_property
    def root_mean_square(self) -> float:
        """The root of the mean square."""
        return _root_mean_square(self._weights)

    @cached_property
    def of_others(self) -> float:
        """The root of the mean square of those that are not 0; lanes of copies that are not read have zeros."""
        return _root_mean_square(self._weights[self._weights != 0])


def _root_mean_square(weights: np.ndarray) -> float:
    """Return the root of the mean square, 0 of no weights."""
    squares = weights.astype(np.float64)
    return float(np.sqrt(np.square(squares, out=squares).mean())) if weights.size else 0.0
