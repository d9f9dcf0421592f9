"""The number schemes: what a machine's scalars, sums and accumulators are, in numpy; one object, ``arch.scheme``.

Its hardware twin is ``hw/parts/schemes``. A new number scheme is a file here with a class and a file there with its
circuits, and a line in each of the two tables. Nobody else asks which one a machine has: what differs is a property or
a method.
"""

from __future__ import annotations

from weft.support.errors import ArchError

from weft.hw.contract.numerics import DataType
from weft.hw.contract.schemes.base import InputRescale, OutputRescale, Scheme, SchemeKind
from weft.hw.contract.schemes.every_step import FixedPointEveryStep
from weft.hw.contract.schemes.int8 import SCALE_VECTORS, TABLE_ENTRIES, Int8
from weft.hw.contract.schemes.once import FixedPointOnce

FIXED_POINT_SCHEMES: dict[str, type[Scheme]] = {system.name: system for system in (FixedPointOnce, FixedPointEveryStep)}
"""Of fixed-point types, by the architecture's key ``mac_rounding``; the first is the default."""

INTEGER_SCHEMES: dict[str, type[Scheme]] = {"INT8": Int8}
"""Of the types without a fraction, by their name; ``mac_rounding`` is the default's."""


def scheme_of(scalar: DataType, mac_rounding: str) -> type[Scheme]:
    """The class of a machine's numbers. Raises ArchError where the rounding does not go with the type."""
    if scalar.name not in INTEGER_SCHEMES:
        return FIXED_POINT_SCHEMES[mac_rounding]
    if mac_rounding != FixedPointOnce.name:
        raise ArchError("mac_rounding", mac_rounding, f"{FixedPointOnce.name} with data_type {scalar.name}",
                        "leave mac_rounding out")
    return INTEGER_SCHEMES[scalar.name]


__all__ = ["FIXED_POINT_SCHEMES", "INTEGER_SCHEMES", "SCALE_VECTORS", "TABLE_ENTRIES", "InputRescale",
           "FixedPointEveryStep", "FixedPointOnce", "Int8", "OutputRescale", "Scheme", "SchemeKind", "scheme_of"]
