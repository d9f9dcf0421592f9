# SPDX-License-Identifier: Apache-2.0
"""A prediction of block RAM: which memories take how many blocks, as yosys maps a memory with a read and a write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import TABLE_ENTRIES
from weft.hw.flow.parts import Part


class Ram(NamedTuple):
    """``copies`` memories of ``rows`` words of ``width`` bits, in ``block`` of the machine."""

    block: str
    copies: int
    rows: int
    width: int


class Shape(NamedTuple):
    """The ways to cut a primitive: (rows, bits of a word).

    ``cost``: what yosys compares; ``column``: what is counted, "" for look-up tables."""

    cost: float
    column: str
    cuts: tuple[tuple[int, int], ...]


def _cuts(address_bits: int, widths: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the cuts of a primitive of so many address bits: half the rows with each next width."""
    return tuple((1 << (address_bits - index), width) for index, width in enumerate(widths))


SHAPES = {
    "xc7": (Shape(129, "bram18", _cuts(14, (1, 2, 4, 9, 18, 36))),
            Shape(257, "bram36", _cuts(15, (1, 2, 4, 9, 18, 36, 72))), Shape(8, "", ((32, 6), (64, 3)))),
    "ecp5": (Shape(128, "bram18", _cuts(14, (1, 2, 4, 9, 18, 36))), Shape(4, "", ((16, 4),))),
    "gowin": (Shape(128, "bram18", _cuts(14, (1, 2, 4, 9, 18, 36))), Shape(4, "", ((16, 4),))),
    "nexus": (Shape(128, "bram18", _cuts(14, (1, 2, 4, 9, 18, 36))), Shape(4, "", ((16, 4),))),
}
"""Family -> its primitives with a read and a write port."""


def rams(arch: Arch) -> Iterator[Ram]:
    """Yield the memories of all cores that may become block RAM; queues and registers never do."""
    cores, lanes = arch.cores, arch.array_size
    yield Ram("local", cores * arch.local_banks, -(-arch.local_depth // arch.local_banks), lanes * arch.number.width)
    yield Ram("accumulators", cores * arch.accumulator_banks, -(-arch.accumulator_depth // arch.accumulator_banks),
              lanes * (arch.accumulator_bits + 1))  # with a mark for each scalar at the top of its range
    yield Ram("move_out", cores * lanes * bool(arch.activation_tables), arch.activation_tables * TABLE_ENTRIES,
              arch.number.width)
    yield Ram("simd", cores * lanes * arch.lut_count, arch.lut_depth, arch.number.width)


def block_rams(ram: Ram, family: str) -> dict[str, int]:
    """Return column (``bram18``, ``bram36``) -> blocks that these memories take; empty if look-up tables cost less.

    Of equal cost yosys takes blocks."""
    def primitives(cut: tuple[int, int]) -> int:
        return -(-ram.rows // cut[0]) * -(-ram.width // cut[1])

    choices = [(shape.cost * primitives(cut), not shape.column, shape.column, primitives(cut))
               for shape in SHAPES[family] for cut in shape.cuts]
    _, _, column, number = min(choices)
    return {column: ram.copies * number} if column and ram.copies else {}


ULTRA_ROWS, ULTRA_BITS = 4096, 72
"""The rows and bits of an UltraRAM block, which is cut in no other way."""


def ultra_rams(arch: Arch, part: Part) -> int:
    """Return the UltraRAM blocks that hold the local memory of all cores.

    It is 0 if the part has too few of them; then local memory lies in block RAM."""
    local = next(ram for ram in rams(arch) if ram.block == "local")
    number = local.copies * -(-local.rows // ULTRA_ROWS) * -(-local.width // ULTRA_BITS)
    return number if number <= part.uram else 0
