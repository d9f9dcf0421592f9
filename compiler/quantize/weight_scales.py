# SPDX-License-Identifier: Apache-2.0
"""Choose a scale for each output channel's weights on an INT8 machine, and say which weights are inexact.

Weights that are whole multiples of a scale already, as in a quantised file, an average or a copy, keep it exactly. Of
all such scales the coarsest is taken that the bias is a multiple of too. So an average has weights of 1, and ratios of
powers of two stay such. Otherwise weights get the finest scale that the accumulators have room for."""

from __future__ import annotations

import math

import numpy as np

from weft.compiler.quantize.scales import MOST_STEPS, MOST_WEIGHT, Beyond, RoundedAgain, rounded_weights
from weft.compiler.quantize.var_scales import STEPS

MOST_SUM = 1 << 24
"""The magnitude at which requantization saturates accumulators; those of 24 bits end at half of it."""

MOST_BIAS = MOST_SUM // 2
NEAR = 1e-4
"""The share of a step within which a weight counts as a whole number; single precision cannot tell less."""

NEAR_BIAS = 1e-2
"""The share of a step within which a bias, which has more steps than a weight, counts as a whole number."""

FIRST_WEIGHTS = 24
"""The number of a channel's weights that rule out most scales before all are tested."""

SPREAD = 4
"""The largest ratio of a layer's multipliers, which share a shift; smaller multipliers keep 15 bits."""

COPY_STEP = 2.0 ** -8
"""The step, as a share of the output's, to which a channel without weights rounds its bias."""


def weight_scales(weights: np.ndarray, bias: np.ndarray, source: float, output: float,
                  most: int = MOST_WEIGHT, room: int = MOST_SUM) -> np.ndarray:
    """Return the scale [channels] of every channel of ``weights`` [channels, n].

    It is exact if the weights are multiples of one scale, up to ``most`` steps; else the largest weight is 127 steps.
    The ``bias`` fits, and no sum passes ``room`` unless it saturates in the output too. ``source`` and ``output`` are
    the scales of the input and the output."""
    magnitude, total = np.abs(weights).max(1), np.abs(weights).sum(1)
    reach = STEPS * total + np.abs(bias) / source  # of sums, in units of a weight's scale
    seen = np.minimum(reach, STEPS * output / source)
    least = np.maximum(seen / room, np.abs(bias) / (source * MOST_BIAS))
    found = np.where(magnitude > 0, np.maximum(magnitude / MOST_WEIGHT, least), np.maximum(
        COPY_STEP * output / source, least))
    left, exact = np.flatnonzero(magnitude > 0), np.zeros(len(weights), bool)
    for steps in range(1, most + 1):
        if steps == MOST_WEIGHT + 1:  # what takes more than one weight, only where nothing less is exact
            left = left[~exact[left]]
        fits = left[magnitude[left] / steps >= least[left]]
        for count in (FIRST_WEIGHTS, weights.shape[1]):
            fits = fits[_whole(weights[fits, :count] * (steps / magnitude[fits, None]), NEAR).all(1)]
        found[fits], exact[fits] = magnitude[fits] / steps, True
        if steps > MOST_WEIGHT:
            left = np.setdiff1d(left, fits, assume_unique=True)
        left = np.setdiff1d(left, fits[_whole(bias[fits] / (source * found[fits]), NEAR_BIAS)], assume_unique=True)
    return found / _finer(found, magnitude, least)


def single_precision_scales(weights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return ``scales`` [channels], where possible as numbers of single precision that give exactly ``weights``.

    A file's scale is such a number, and its ``weights`` [channels, n], float32, are rounded products with it. So what
    :func:`weight_scales` finds is off by a rounding."""
    steps, near, found = np.rint(weights / scales[:, None]).astype(np.float32), scales.astype(np.float32), scales
    for candidate in (np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf)), near):
        exact = (steps * candidate[:, None] == weights).all(1)
        found = np.where(exact, candidate.astype(np.float64), found)
    return found


def _finer(scales: np.ndarray, magnitude: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return the powers of two [channels] by which scales are divided, so that small channels keep multiplier bits.

    Weights still fit the machine's range after the division."""
    if scales.max() <= SPREAD * scales.min():
        return np.ones(len(scales))
    steps = np.maximum(np.rint(magnitude / scales), 1)
    room = np.maximum(np.minimum(MOST_WEIGHT // steps, scales // np.maximum(least, np.finfo(float).tiny)), 1)
    wanted = scales / (scales / room).max()
    return np.asarray(2.0 ** np.floor(np.log2(np.clip(2 * wanted, 1, room))))


def rounded_again(weights: np.ndarray, scales: np.ndarray) -> RoundedAgain | None:
    """Return which of a quantised file's ``weights`` [channels, n] are not exact on ``scales`` [channels].

    Return None if all are exact. Return None too if they are multiples of no scale that a byte with a zero point can
    have, for then the file has them as real numbers."""
    error = rounded_weights(weights, scales) * scales[:, None] - weights
    inexact = np.abs(error) > 2 * NEAR * scales[:, None]
    lost = np.zeros(len(weights), bool)
    for candidate in range(1, MOST_STEPS + 1):
        left = np.flatnonzero(inexact.any(1) & ~lost)
        ratio = candidate / np.abs(weights[left]).max(1, initial=0)
        for count in (FIRST_WEIGHTS, weights.shape[1]):
            fits = _whole(weights[left, :count] * ratio[:, None], NEAR).all(1)
            left, ratio = left[fits], ratio[fits]
        lost[left] = True
    if not lost.any():
        return None
    decibels = 10 * math.log10((weights[lost] ** 2).sum() / (error[lost] ** 2).sum())
    return RoundedAgain(int(inexact[lost].sum()), weights[lost].size, int(lost.sum()), decibels)


def beyond_one(weights: np.ndarray, scales: np.ndarray) -> Beyond | None:
    """Return how many of ``weights`` [channels, n] exceed the machine's largest weight at ``scales``.

    None: no weight does."""
    steps = np.abs(rounded_weights(weights, scales))
    more = steps > MOST_WEIGHT
    return Beyond(int(more.sum()), int(more.any(1).sum()), int(steps.max())) if more.any() else None


def _whole(values: np.ndarray, near: float) -> np.ndarray:
    """Return which values are within ``near`` of a whole number."""
    return np.abs(values - np.rint(values)) < near
