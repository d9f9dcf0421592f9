# SPDX-License-Identifier: Apache-2.0
"""How large the weights of a convolution are, which the choice of binary points asks again and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class WeightSizes(NamedTuple):
    """The sizes of weights: the sum of the magnitudes for each output channel, the largest, the root mean square.

    ``of_others``: the root mean square of those that are not 0, for lanes of copies that are not read have zeros."""

    sums: np.ndarray
    largest: float
    root_mean_square: float
    of_others: float

    @classmethod
    def of(cls, weights: np.ndarray) -> WeightSizes:
        """Return the sizes of weights [out, ...]."""
        magnitudes = np.abs(weights.astype(np.float64))
        sums, largest = magnitudes.reshape(len(magnitudes), -1).sum(1), float(magnitudes.max())
        others = magnitudes if magnitudes.all() else magnitudes[magnitudes != 0]
        mean = float((magnitudes ** 2).mean())
        return cls(sums, largest, float(np.sqrt(mean)), float(np.sqrt((others ** 2).mean())) if others.size else 0.0)
