# SPDX-License-Identifier: Apache-2.0
"""Slopes of channels as constants of the SIMD unit: two factors each, and how many have room in the accumulators.

The instruction Multiply rounds by the data type's own point, at which a slope alone would have few bits. Of two factors
at that point the products are nearly as dense as weights are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.compiler.layers.stages import Slopes, SteepSlopes
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import DataType

FACTORS = 2
"""The vectors of constants of each output channel tile."""

SHARE = 8
"""The least ratio of the accumulators, and of local memory, to the constants of a layer.

Output tiles then lose at most an eighth of their pixels. The layers that they save read and write each pixel twice."""

BODY = 4
"""The most SIMD instructions for one vector; a loop must have room for them."""

TRIED = 256
"""The first factors that are tried at most, the largest ones."""


LOOSE = 1.25
"""The most by which a second factor may be larger than what both make."""


def most_slopes(arch: Arch) -> int:
    """Return the most channels of a layer for each of which a machine's SIMD unit may have a slope; 0 for none."""
    if not arch.simd_registers_depth or arch.simd_loop_depth < BODY:
        return 0
    return min(arch.accumulator_depth, arch.local_depth) // SHARE // FACTORS * arch.array_size


def largest_slope(number: DataType) -> float:
    """Return a magnitude that slopes, and slopes less 1, may have: half of the type's largest number."""
    return number.maximum / number.one / 2


def slope_factors(stage: Slopes, constants: Mapping[str, np.ndarray], number: DataType) -> np.ndarray:
    """Return integers [2, channels] whose products are nearest to the slopes, or for steep ones to slopes less 1.

    The first factor is positive and 1 at most. Of equally good ones it is the largest, for its product is rounded and
    then shrinks. Neither factor of a positive slope is above 1 where a maximum follows, so that no rounding makes the
    product larger than a positive number."""
    values = _values(stage, constants)
    largest = number.one * np.maximum(1, LOOSE * np.abs(values))
    if not isinstance(stage, SteepSlopes):
        largest = np.where(values > 0, number.one, largest)
    first = np.arange(number.one, max(number.one // 2, number.one - TRIED), -1)[:, None]
    wanted = values * float(number.one) ** 2
    second = np.rint(wanted / first)
    best = np.where(np.abs(second) <= largest, np.abs(first * second - wanted), np.inf).argmin(0)
    return np.stack([first[best, 0], number.saturate(second[best, np.arange(values.size)].astype(np.int64))])


def largest_factor(stage: Slopes, constants: Mapping[str, np.ndarray], number: DataType) -> float:
    """Return a magnitude that no factor of the slopes exceeds, in units of the type's own point."""
    return LOOSE * number.one * max(1.0, float(np.abs(_values(stage, constants)).max()))


def _values(stage: Slopes, constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return what numbers below zero are multiplied by, [channels]."""
    slopes = constants[stage.slopes].astype(np.float64).ravel()
    return slopes - 1 if isinstance(stage, SteepSlopes) else slopes
