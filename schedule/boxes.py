# SPDX-License-Identifier: Apache-2.0
"""Boxes of a tensor's elements, and whether boxes cover another one exactly."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

CHANNEL = 1
"""The axis of channels in [batch, channels, rows, columns]."""

Point = tuple[int, ...]


class Box(NamedTuple):
    """Elements from ``lower`` to ``upper`` of each axis, both included: [batch, channels, rows, columns]."""

    lower: Point
    upper: Point

    def __str__(self) -> str:
        """Return the range as text."""
        return f"{list(self.lower)}..{list(self.upper)}"

    @property
    def sizes(self) -> Point:
        """Elements along each axis."""
        return tuple(high - low + 1 for low, high in zip(self.lower, self.upper, strict=True))

    @property
    def volume(self) -> int:
        """The number of elements in the box."""
        return math.prod(self.sizes)

    def within(self, other: Box) -> bool:
        """Tell whether every element of the box lies in ``other`` too."""
        return (all(low >= least for low, least in zip(self.lower, other.lower, strict=True))
                and all(high <= most for high, most in zip(self.upper, other.upper, strict=True)))

    def common(self, other: Box) -> Box | None:
        """Return the elements of both, None where there are none."""
        lower = tuple(map(max, self.lower, other.lower))
        upper = tuple(map(min, self.upper, other.upper))
        return Box(lower, upper) if all(map(int.__le__, lower, upper)) else None

    def shifted(self, channels: int) -> Box:
        """Return the box moved by so many channels."""
        return self.with_channels(self.lower[CHANNEL] + channels, self.upper[CHANNEL] + channels)

    def with_channels(self, low: int, high: int) -> Box:
        """Return the box with the channels ``low`` to ``high`` in place of its own."""
        return Box((self.lower[0], low, *self.lower[2:]), (self.upper[0], high, *self.upper[2:]))

    def holds(self, point: Point) -> bool:
        """Tell whether the box contains the element at ``point``."""
        return all(low <= at <= high for low, at, high in zip(self.lower, point, self.upper, strict=True))


def hull(boxes: Iterable[Box]) -> Box:
    """Return the smallest box that holds all of ``boxes``, of which there is at least one."""
    lowers, uppers = zip(*boxes, strict=True)
    return Box(tuple(map(min, zip(*lowers, strict=True))), tuple(map(max, zip(*uppers, strict=True))))


def fault_of_cover(boxes: Iterable[Box], whole: Box, times: int = 1) -> tuple[Point, int] | None:
    """Return the first element that ``boxes`` do not hold as often as they should, and how often they hold it.

    They should hold each element of ``whole`` ``times`` times and no other; None where they do. The work is linear in
    the number of boxes: each adds its corners, with alternating signs, to the differences of how often elements are
    held. Differences that are equal everywhere mean covers that are equal everywhere, and at the first point where they
    are not the covers differ by as much.
    """
    found: Counter[Point] = Counter()
    for box, count in itertools.chain(((box, 1) for box in boxes), [(whole, -times)]):
        ends = [((low, 1), (high + 1, -1)) for low, high in zip(box.lower, box.upper, strict=True)]
        for corner in itertools.product(*ends):
            found[tuple(at for at, _ in corner)] += count * math.prod(sign for _, sign in corner)
    wrong = min((point for point, difference in found.items() if difference), default=None)
    if wrong is None:
        return None
    return wrong, found[wrong] + (times if whole.holds(wrong) else 0)
