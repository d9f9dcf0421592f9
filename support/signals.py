"""How good numbers are beside others."""

from __future__ import annotations

import math


def signal_to_noise(signal: float, noise: float) -> float | None:
    """Decibels, of sums of squares, to a tenth; None without noise, -inf without signal or with endless noise."""
    if not noise:
        return None
    return round(10 * math.log10(signal / noise), 1) if signal and math.isfinite(noise) else -math.inf
