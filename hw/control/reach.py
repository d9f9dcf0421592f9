"""How far an operation reaches: the arithmetic of last addresses."""

from __future__ import annotations

from amaranth.hdl import Mux

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.parts.operations import size_width

FACTOR_WIDTH = 18
"""Bits of a pitch in one product: as many as a DSP block multiplies, of any family."""
FEW_TERMS = 4
"""A product of so few bits is a sum of rows instead, which needs no DSP block."""
TABLE_FACTOR_WIDTH = 6
"""Bits of a pitch in one product without DSP blocks: three sums follow each other there, and three of its parts."""


def size_m1_width(arch: Arch) -> int:
    """Bits of a legal operation's size - 1, and of a load's of tables or scales whether legal or not: what is wider
    overruns every on-chip memory."""
    return max(size_width(arch), bits_to_count(arch.lut_depth),
               *map(bits_to_count, arch.parameter_loads.values()))


def beyond_depth(last, depth: int):
    """Whether a last address is none of ``depth`` vectors."""
    return last.beyond | (last.address >= depth)


def factor_width(arch: Arch) -> int:
    """Bits of a pitch in one product."""
    return FACTOR_WIDTH if arch.decoder_multipliers else TABLE_FACTOR_WIDTH


def partial_products(arch: Arch, rows, pitch) -> list:
    """Unsigned product in parts, one for each ``factor_width`` bits of ``pitch``."""
    width = factor_width(arch)
    factors = [pitch[low:low + width] for low in range(0, len(pitch), width)]
    return [rows * factor if arch.decoder_multipliers and len(factor) > FEW_TERMS else sum_of_rows(rows, factor)
            for factor in factors]


def sum_of_rows(rows, factor):
    """Unsigned product without a multiplier, for synthesis of any kind."""
    product = sum_of([Mux(bit, rows, 0) << index for index, bit in enumerate(factor)])
    return product[:len(rows) + len(factor)]


def sum_of(terms: list):
    """As a tree, for speed."""
    while len(terms) > 1:
        terms = [sum(terms[index + 1:index + 2], terms[index]) for index in range(0, len(terms), 2)]
    return terms[0]
