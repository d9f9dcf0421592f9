"""The execution units by name: which operation each takes and which ranges of which memories it touches.

The interlock, the core and the decoder's dispatch are built from this table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Memory(enum.Enum):
    LOCAL = "local"
    ACCUMULATORS = "accumulators"
    DRAM0 = "dram0"
    DRAM1 = "dram1"


@dataclass(frozen=True)
class Access:
    """Operand ``operand`` (0 or 1) of an operation is a range of ``memory``, read or written."""

    operand: int
    memory: Memory
    writes: bool


@dataclass(frozen=True)
class Unit:
    """``outstanding``: how many of its operations may be issued and not done; ``queue``: how many may wait."""

    accesses: tuple[Access, ...]
    outstanding: int = 4
    queue: int = 4


def _reads(operand: int, memory: Memory) -> Access:
    return Access(operand, memory, False)


def _writes(operand: int, memory: Memory) -> Access:
    return Access(operand, memory, True)


UNITS: dict[str, Unit] = {
    "load_weight": Unit((_reads(0, Memory.LOCAL),)),
    "mat_mul": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.ACCUMULATORS)), 8),
    "simd": Unit((_writes(0, Memory.ACCUMULATORS), _reads(1, Memory.ACCUMULATORS), _reads(0, Memory.LOCAL)), 8),
    "move_out": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.ACCUMULATORS))),
    "move_in": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.ACCUMULATORS))),
    "dram0_read": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.DRAM0))),
    "dram0_write": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.DRAM0))),
    "dram1_read": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.DRAM1))),
    "dram1_write": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.DRAM1))),
}
"""SIMD's operand 0 is the accumulators it writes, or the local memory that LoadLUT reads."""


def conflict(left: Access, right: Access) -> bool:
    """Whether two accesses must keep their order if their ranges overlap."""
    return left.memory is right.memory and (left.writes or right.writes)
