# SPDX-License-Identifier: Apache-2.0
"""The number schemes: arithmetic of a machine's scalars, sums and accumulators, in numpy.

A machine's scheme is the object ``arch.scheme``; its hardware twin is in ``hw/parts/schemes``. A new scheme is a file
with a class here and one with circuits there, and a line in each of the two tables. Nothing else asks for the scheme by
name: whatever differs is a property or a method."""

from __future__ import annotations

from weft.hw.contract.numerics import DataType
from weft.hw.contract.schemes.base import InputRescale, OutputRescale, Scheme, SchemeKind
from weft.hw.contract.schemes.every_step import FixedPointEveryStep
from weft.hw.contract.schemes.int8 import MULTIPLIER_WIDTHS, SCALE_VECTORS, TABLE_ENTRIES, Int8
from weft.hw.contract.schemes.once import FixedPointOnce
from weft.support.errors import ArchError

FIXED_POINT_SCHEMES: dict[str, type[Scheme]] = {system.name: system for system in (FixedPointOnce, FixedPointEveryStep)}
"""Schemes of fixed-point types by the key ``mac_rounding``; the first is the default."""

INTEGER_SCHEMES: dict[str, type[Scheme]] = {"INT8": Int8}
"""Schemes of the types without a fraction by name; their ``mac_rounding`` is the default."""


def scheme_of(scalar: DataType, mac_rounding: str) -> type[Scheme]:
    """Return the class of the number scheme of a scalar type and a rounding.

    Raise ArchError if the rounding does not go with the type."""
    if scalar.name not in INTEGER_SCHEMES:
        return FIXED_POINT_SCHEMES[mac_rounding]
    if mac_rounding != FixedPointOnce.name:
        raise ArchError("mac_rounding", mac_rounding, f"{FixedPointOnce.name} with data_type {scalar.name}",
                        "leave mac_rounding out")
    return INTEGER_SCHEMES[scalar.name]


__all__ = ["FIXED_POINT_SCHEMES", "INTEGER_SCHEMES", "MULTIPLIER_WIDTHS", "SCALE_VECTORS", "TABLE_ENTRIES",
           "InputRescale", "FixedPointEveryStep", "FixedPointOnce", "Int8", "OutputRescale", "Scheme", "SchemeKind",
           "scheme_of"]
