# SPDX-License-Identifier: Apache-2.0
"""The ranges of tensors that calibration finds: what a tensor took on samples, and the room that it gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.cycles.native import native

SUMS = ("Conv", "Product")
"""Operators whose partial sums are measured."""

BINADES = range(-40, 41)
"""Exponents of the magnitude histogram."""

LARGEST = 2.0 ** BINADES[-1]
"""The largest allowed magnitude: beside a larger number no other would keep bits behind the binary point."""

HEADROOM = 1.125
"""The least ratio of the magnitude that a computed tensor gets room for to the one that calibration saw."""

MOST_HEADROOM, ONE_SAMPLE = 2.0, 1.5
"""The largest ratio of the magnitude that a tensor gets room for to the one seen, and that for one sample.

With a single sample nothing is known of the tensor's spread."""

STUDENT = (318.0, 22.3, 10.2, 7.17, 5.89, 5.21, 4.79, 4.5, 4.3, 4.14)
"""Student's t that is exceeded with one chance in a thousand, for 1, 2, ... degrees of freedom.

A network has some hundred tensors, and none of them shall saturate."""

UNCLIPPED_SHARE = 0.25
"""The share of the magnitude that a ReLU reads for which its result gets room at least.

The ReLU may give 0 in all samples."""


def _student(freedom: int) -> float:
    """Return Student's t that is exceeded with one chance in a thousand, for ``freedom`` degrees of freedom."""
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else 3.09 + 10 / freedom


@dataclass(frozen=True)
class Range:
    """The values that a tensor took: extremes, and for k in BINADES how many had a magnitude of 2**k or more.

    ``count`` values, ``squares`` the sum of their squares; ``peaks``: the largest magnitude of each sample.
    ``unclipped``: for a ReLU's result, the largest magnitude that the ReLU read. ``bounded``: ``low`` and ``high`` are
    mathematical bounds (``bounds.py``) instead of what was seen."""

    low: float
    high: float
    at_least: tuple[int, ...]
    count: int = 0
    squares: float = 0.0
    peaks: tuple[float, ...] = ()
    unclipped: float = 0.0
    bounded: bool = False

    def expected(self, least: float) -> float:
        """Return the magnitude that the tensor gets room for: another sample exceeds it with a chance of 1/1000.

        Peaks are taken as normally distributed and are few, so Student's t is used. The result is at least ``least``
        and at most MOST_HEADROOM times what was seen. A bounded tensor gets exactly its bound."""
        if self.bounded:
            return self.magnitude
        if len(self.peaks) < 2:
            reached = self.magnitude * (ONE_SAMPLE if least > 1 else 1)
        else:
            count, spread = len(self.peaks), float(np.std(self.peaks, ddof=1))
            reached = float(np.mean(self.peaks)) + spread * math.sqrt(1 + 1 / count) * _student(count - 1)
        reached = min(max(reached, least * self.magnitude), MOST_HEADROOM * self.magnitude)
        return max(reached, UNCLIPPED_SHARE * self.unclipped)

    @property
    def root_mean_square(self) -> float:
        """The root of the values' mean square; 0 if there are none."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def magnitude(self) -> float:
        """The larger magnitude of the two extremes."""
        return max(abs(self.low), abs(self.high))

    def beyond(self, exponent: int) -> int:
        """Return the number of values whose magnitude was at least 2**exponent."""
        return self.at_least[min(max(exponent - BINADES[0], 0), len(BINADES) - 1)]


def sum_key(source: str, weights: str) -> str:
    """Return the key of a convolution in ``Calibration.sums``: its input and weights, as weights may serve several."""
    return f"{source} x {weights}"


def sum_key_of(node: Node) -> str:
    """Return the key of a node's partial sums in ``Calibration.sums``; the operator is one of SUMS."""
    return sum_key(node.input(0), node.input(1)) if node.op == "Conv" else node.output


@dataclass(frozen=True)
class Calibration:
    """The result of calibration on ``samples`` inputs; ``random``: they were random numbers.

    ``ranges``: tensor -> its range. ``sums``: :func:`sum_key_of` a node -> a limit of its partial sums, in whatever
    order. ``means``: tensor that a convolution reads -> the mean of every channel."""

    ranges: Mapping[str, Range]
    sums: Mapping[str, float]
    samples: int
    random: bool
    means: Mapping[str, np.ndarray] = field(default_factory=dict)

    def text(self) -> str:
        """Return the calibration as text, a line for each range and sum."""
        lines = [f"samples {self.samples}{' random' if self.random else ''}"]
        lines += [f"range {name}: {entry.low:.6g} .. {entry.high:.6g}" for name, entry in self.ranges.items()]
        lines += [f"sum {name}: {value:.6g}" for name, value in self.sums.items()]
        return "\n".join(lines) + "\n"


class Tally:
    """The values that a tensor took on the samples so far. :meth:`range` returns its range."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.count = 0
        self.exponents = np.zeros((4, 256), np.int64)
        self.squares = np.zeros(1)
        self.peaks: list[float] = []

    @property
    def magnitude(self) -> float:
        """The largest magnitude of all samples."""
        return max(self.peaks)

    def add(self, value: np.ndarray) -> None:
        """Add a further sample of the tensor. With NaN or infinity in it, ``peaks[-1]`` is not finite either."""
        low, high = float(value.min()), float(value.max())
        flat = np.ascontiguousarray(value, np.float32).ravel()
        _count(flat, flat.view(np.uint32), self.exponents, self.squares)
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += value.size
        self.peaks.append(max(-low, high))

    def range(self, unclipped: float = 0.0) -> Range:
        """Return the range of the samples; ``unclipped``: for a ReLU's result, the largest magnitude that it read."""
        counts = self.exponents.sum(axis=0)
        first, last = (end + 127 for end in (BINADES[0], BINADES[-1]))
        at_least = counts[::-1].cumsum()[::-1]  # of each exponent and those above
        return Range(self.low, self.high, tuple(at_least[first:last + 1].tolist()), self.count, float(self.squares[0]),
                     tuple(self.peaks), unclipped)


@native
def _count(values, words, exponents, squares):  # type: ignore
    """Add to ``exponents`` [4, 256] how many of float32 ``values`` have each exponent.

    Add the sum of their squares to ``squares[0]``. The exponent is 127 + e for 2**e <= |v| < 2**(e+1). ``words`` are
    the values as uint32. Four counts and four sums take turns, for one need not wait for the other."""
    first = second = third = fourth = 0.0
    whole = len(values) // 4 * 4
    for place in range(0, whole, 4):
        for lane in range(4):
            exponents[lane, words[place + lane] >> 23 & 0xFF] += 1
        a, b, c, d = (np.float64(values[place]), np.float64(values[place + 1]), np.float64(values[place + 2]),
                      np.float64(values[place + 3]))
        first, second, third, fourth = first + a * a, second + b * b, third + c * c, fourth + d * d
    for place in range(whole, len(values)):
        exponents[0, words[place] >> 23 & 0xFF] += 1
        a = np.float64(values[place])
        first += a * a
    squares[0] += first + second + third + fourth
