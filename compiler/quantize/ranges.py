# SPDX-License-Identifier: Apache-2.0
"""The ranges of tensors that calibration finds: what a tensor took on samples, and the room that it gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.cycles.native import native

PIECE = 1 << 20
"""The numbers of a tensor whose exponents are counted at once."""

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


def widened(before: Range | None, value: np.ndarray) -> Range:
    """Return the range ``before`` (None at first) extended by ``value``, a further sample of the tensor."""
    flat = value.ravel()
    pieces = [flat[start:start + PIECE] for start in range(0, flat.size, PIECE)]
    at_least = np.sum([_binades(piece) for piece in pieces], axis=0)[::-1].cumsum()[::-1][1:]
    squares = sum(map(_sum_of_squares, pieces))
    low, high = float(value.min()), float(value.max())
    peak = max(-low, high)
    if before is None:
        return Range(low, high, tuple(at_least.tolist()), value.size, squares, (peak,))
    return Range(min(before.low, low), max(before.high, high), tuple((at_least + before.at_least).tolist()),
                 before.count + value.size, before.squares + squares, (*before.peaks, peak))


def _sum_of_squares(values: np.ndarray) -> float:
    """Return the sum of the values' squares, in double precision."""
    exact = values.astype(np.float64)
    return float(np.square(exact, out=exact).sum())


def _binades(values: np.ndarray) -> np.ndarray:
    """Return how many of the values are below BINADES, and in each of them."""
    taken = np.zeros((2, 256), np.int64)
    _count_exponents(np.ascontiguousarray(values, np.float32).view(np.uint32), taken)
    counts = taken[0] + taken[1]
    first, last = (end + 127 for end in (BINADES[0], BINADES[-1]))
    return np.array([counts[:first].sum(), *counts[first:last], counts[last:].sum()])


@native
def _count_exponents(words, counts):  # type: ignore
    """Add to ``counts`` [2, 256] how many of float32 ``words``, given as uint32, have each exponent.

    It is 127 + e for 2**e <= |v| < 2**(e+1). Neighbours are alike, so two counts take turns, for one need not wait for
    the other."""
    for place in range(len(words)):
        counts[place & 1, words[place] >> 23 & 0xFF] += 1
