# SPDX-License-Identifier: Apache-2.0
"""Measures of how close numbers are to others: signal to noise."""

from __future__ import annotations

import math

NO_SIGNAL = -999.0
"""The decibels that stand for no signal at all: JSON has no infinity."""


def signal_to_noise(signal: float, noise: float) -> float | None:
    """Return the ratio of two sums of squares in decibels, to a tenth.

    It is None without noise, and NO_SIGNAL without signal or with infinite noise."""
    if not noise:
        return None
    return round(10 * math.log10(signal / noise), 1) if signal and math.isfinite(noise) else NO_SIGNAL
