# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of an operation's last addresses."""

from __future__ import annotations

from amaranth.hdl import Mux

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Opcode, operand_of
from weft.hw.contract.isa import Isa
from weft.hw.contract.numerics import bits_to_count
from weft.hw.parts.operations import size_width

FACTOR_WIDTH = 18
"""The bits of a pitch in one product: as many as a DSP block of any family multiplies."""
FEW_TERMS = 4
"""A factor of at most so many bits is multiplied by a sum of rows, which needs no DSP block."""
TABLE_FACTOR_WIDTH = 6
"""The bits of a pitch in one product without DSP blocks.

Three sums in a row make such a product, and three sums in a row add up a pitch's three products."""


def size_m1_width(arch: Arch) -> int:
    """Return the bits of a legal operation's size - 1, and of any load of tables or scales.

    A size that needs more bits overruns every on-chip memory. That of a Signal's range of DRAM may fill its operand."""
    return max(size_width(arch), bits_to_count(arch.lut_depth), *map(bits_to_count, arch.parameter_loads.values()),
               Isa(arch).operand_widths[operand_of(Opcode.SIGNAL, "size")] if arch.sync_counters else 0)


def beyond_depth(last, depth: int):
    """Return whether a last address lies outside a memory of ``depth`` vectors."""
    return last.beyond | (last.address >= depth)


def factor_width(arch: Arch) -> int:
    """Return the bits of a pitch in one partial product."""
    return FACTOR_WIDTH if arch.decoder_multipliers else TABLE_FACTOR_WIDTH


def partial_products(arch: Arch, rows, pitch) -> list:
    """Return the unsigned product ``rows`` x ``pitch`` in parts, one for each ``factor_width`` bits of ``pitch``."""
    width = factor_width(arch)
    factors = [pitch[low:low + width] for low in range(0, len(pitch), width)]
    return [rows * factor if arch.decoder_multipliers and len(factor) > FEW_TERMS else sum_of_rows(rows, factor)
            for factor in factors]


def sum_of_rows(rows, factor):
    """Return an unsigned product, computed without a multiplier."""
    product = sum_of([Mux(bit, rows, 0) << index for index, bit in enumerate(factor)])
    return product[:len(rows) + len(factor)]


def sum_of(terms: list):
    """Return the sum of the terms, added as a tree for speed."""
    while len(terms) > 1:
        terms = [sum(terms[index + 1:index + 2], terms[index]) for index in range(0, len(terms), 2)]
    return terms[0]
