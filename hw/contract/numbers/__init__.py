"""The number systems: what a machine's scalars, sums and accumulators are, in numpy; one object, ``arch.numbers``.

Its hardware twin is ``hw/parts/numbers``. A new number system is a file here with a class and a file there with its
circuits, and a line in each of the two tables. Nobody else asks which one a machine has: what differs is a property or
a method.
"""

from __future__ import annotations

from weft.hw.contract.numbers.base import NumberSystem
from weft.hw.contract.numbers.every_step import FixedPointEveryStep
from weft.hw.contract.numbers.once import FixedPointOnce

SYSTEMS: dict[str, type[NumberSystem]] = {system.name: system for system in (FixedPointOnce, FixedPointEveryStep)}
"""By the architecture's key ``mac_rounding``; the first is the default."""

__all__ = ["SYSTEMS", "FixedPointEveryStep", "FixedPointOnce", "NumberSystem"]
