"""The number systems: what a machine's scalars, sums and accumulators are, in numpy; one object, ``arch.numbers``.

Its hardware twin is ``hw/parts/numbers``. A new number system is a file here with a class and a file there with its
circuits, and a line in each of the two tables. Nobody else asks which one a machine has: what differs is a property or
a method.
"""

from __future__ import annotations

from weft.hw.contract.errors import ArchError
from weft.hw.contract.numbers.base import Entering, Leaving, NumberSystem
from weft.hw.contract.numbers.every_step import FixedPointEveryStep
from weft.hw.contract.numbers.int8 import SCALE_VECTORS, TABLE_ENTRIES, Int8
from weft.hw.contract.numbers.once import FixedPointOnce
from weft.hw.contract.numerics import DataType

SYSTEMS: dict[str, type[NumberSystem]] = {system.name: system for system in (FixedPointOnce, FixedPointEveryStep)}
"""Of fixed-point types, by the architecture's key ``mac_rounding``; the first is the default."""

INTEGER_SYSTEMS: dict[str, type[NumberSystem]] = {"INT8": Int8}
"""Of the types without a fraction, by their name; ``mac_rounding`` is the default's."""


def system_of(scalar: DataType, mac_rounding: str) -> type[NumberSystem]:
    """The class of a machine's numbers. Raises ArchError where the rounding does not go with the type."""
    if scalar.name not in INTEGER_SYSTEMS:
        return SYSTEMS[mac_rounding]
    if mac_rounding != FixedPointOnce.name:
        raise ArchError("mac_rounding", mac_rounding, f"{FixedPointOnce.name} with data_type {scalar.name}",
                        "leave mac_rounding out")
    return INTEGER_SYSTEMS[scalar.name]


__all__ = ["INTEGER_SYSTEMS", "SCALE_VECTORS", "SYSTEMS", "TABLE_ENTRIES", "Entering", "FixedPointEveryStep",
           "FixedPointOnce", "Int8", "Leaving", "NumberSystem", "system_of"]
