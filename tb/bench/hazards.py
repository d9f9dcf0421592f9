# SPDX-License-Identifier: Apache-2.0
"""Which operations must keep their order, written out by hand: nothing of the machine is read here.

The hardware takes the same from ``units.py``. Tests, the interlock's model and the proofs take it from here, so that a
hazard forgotten there is found.
"""

from __future__ import annotations

from typing import NamedTuple

LOCAL, ACCUMULATORS, DRAM0, DRAM1 = "L", "A", "0", "1"

TABLE = """
access      operands load_weight mat_mul load_lut simd_write simd_read move_out move_in dram0_read dram0_write dram1_read dram1_write dram_read0 dram_write0 dram_read1 dram_write1 sync0 sync1
load_weight L.       .           .       .        .          .         L        .       L          .           L          .           L          .           L          .           .     .
mat_mul     LA       .           A       .        A          A         LA       A       L          .           L          .           L          .           L          .           .     .
load_lut    L.       .           .       .        .          .         L        .       L          .           L          .           L          .           L          .           .     .
simd_write  A.       .           A       .        A          A         A        A       .          .           .          .           .          .           .          .           .     .
simd_read   .A       .           A       .        A          .         .        A       .          .           .          .           .          .           .          .           .     .
move_out    LA       L           LA      L        A          .         L        LA      L          L           L          L           L          L           L          L           .     .
move_in     LA       .           A       .        A          A         LA       A       L          .           L          .           L          .           L          .           .     .
dram0_read  L0       L           L       L        .          .         L        L       L          L0          L          L           L          L0          L          L           0     .
dram0_write L0       .           .       .        .          .         L        .       L0         0           L          .           L0         0           L          .           0     .
dram1_read  L1       L           L       L        .          .         L        L       L          L           L          L1          L          L           L          L1          .     1
dram1_write L1       .           .       .        .          .         L        .       L          .           L1         1           L          .           L1         1           .     1
dram_read0  L0       L           L       L        .          .         L        L       L          L0          L          L           L          L0          L          L           0     .
dram_write0 L0       .           .       .        .          .         L        .       L0         0           L          .           L0         0           L          .           0     .
dram_read1  L1       L           L       L        .          .         L        L       L          L           L          L1          L          L           L          L1          .     1
dram_write1 L1       .           .       .        .          .         L        .       L          .           L1         1           L          .           L1         1           .     1
sync0       .0       .           .       .        .          .         .        .       0          0           .          .           0          0           .          .           0     .
sync1       .1       .           .       .        .          .         .        .       .          .           1          1           .          .           1          1           .     1
"""  # noqa: E501
"""A row and a column for each kind of access, named by its unit. The SIMD unit has three: a table loaded, accumulators
written, accumulators read. Units behind a shared DRAM port, and that of Signals, have one for each window.
``operands``: the memory of operand 0 and of operand 1. A cell: the memories in which an operation of the row and one of
the column must keep their order where they share an address, because one writes it."""

UNIT_OF_ACCESS = {"load_lut": "simd", "simd_write": "simd", "simd_read": "simd", "dram_read0": "dram_read",
                  "dram_read1": "dram_read", "dram_write0": "dram_write", "dram_write1": "dram_write",
                  "sync0": "sync", "sync1": "sync"}
"""Access -> its unit; an access that is not here has the unit's name."""

SEPARATE = ("dram0_read", "dram0_write", "dram1_read", "dram1_write")
SHARED = ("dram_read", "dram_write")
"""The units of machines whose DRAM windows share a port; no machine has them and those of separate ports."""

class Touch(NamedTuple):
    """Operand 0 or 1 of an operation of ``unit``, which is a range of ``memory``."""

    unit: str
    operand: int
    memory: str


def _read(text: str) -> tuple[dict[str, tuple[Touch, ...]], dict[tuple[str, str], str]]:
    """Return the accesses of each row, and the cells."""
    head, *rows = (line.split() for line in text.strip().splitlines())
    touches = {name: tuple(Touch(UNIT_OF_ACCESS.get(name, name), operand, memory)
                           for operand, memory in enumerate(operands) if memory != ".")
               for name, operands, *_ in rows}
    cells = {(name, other): cell.strip(".") for name, _, *line in rows
             for other, cell in zip(head[2:], line, strict=True)}
    return touches, cells


TOUCHES, CELLS = _read(TABLE)
CONFLICTS = frozenset((ours, theirs) for (row, column), cell in CELLS.items() for memory in cell
                      for ours in TOUCHES[row] for theirs in TOUCHES[column]
                      if ours.memory == theirs.memory == memory)
"""The pairs of accesses that must keep their order if they share an address."""


def touches_of(unit: str, *, tables: bool = True) -> tuple[Touch, ...]:
    """Return every access that an operation of ``unit`` may make; without ``tables`` the machine has no LoadLUT."""
    return tuple(dict.fromkeys(touch for name, touches in TOUCHES.items() for touch in touches
                               if touch.unit == unit and (tables or name != "load_lut")))


def conflicts(unit: str, other: str, *, tables: bool = True) -> list[tuple[Touch, Touch]]:
    """Return the pairs of accesses of two units that must keep their order."""
    return [(ours, theirs) for ours in touches_of(unit, tables=tables) for theirs in touches_of(other, tables=tables)
            if (ours, theirs) in CONFLICTS]


def waits_for(unit: str, *, tables: bool = True, shared: bool = False, signals: bool = False) -> tuple[str, ...]:
    """Return the other units with which ``unit`` can conflict over a memory.

    ``shared``: DRAM windows share a port. ``signals``: the machine has Signals."""
    others = dict.fromkeys(touch.unit for touches in TOUCHES.values() for touch in touches)
    absent = (*(SEPARATE if shared else SHARED), *(() if signals else ("sync",)))
    return tuple(other for other in others
                 if other not in (unit, *absent) and conflicts(unit, other, tables=tables))
