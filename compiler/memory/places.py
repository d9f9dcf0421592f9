"""First-fit placement of objects that live for a range of layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """``size`` vectors at ``base``, live from layer ``first`` to ``last``, both included."""

    name: str
    base: int
    size: int
    first: int
    last: int

    def meets(self, first: int, last: int) -> bool:
        """Whether it is live at any layer of first..last."""
        return self.first <= last and first <= self.last

    def overlaps(self, other: Place) -> bool:
        """Whether both hold the same vector at the same time."""
        return (self.meets(other.first, other.last) and self.base < other.base + other.size
                and other.base < self.base + self.size)


def first_fit(placed: Iterable[Place], size: int, first: int, last: int) -> int:
    """The lowest base at which ``size`` vectors are free for all of layers first..last."""
    base = 0
    for place in sorted((place for place in placed if place.meets(first, last)), key=lambda place: place.base):
        if base + size <= place.base:
            break
        base = max(base, place.base + place.size)
    return base
