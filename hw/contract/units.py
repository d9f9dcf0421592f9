# SPDX-License-Identifier: Apache-2.0
"""The table of execution units: the operations that each takes and the ranges of memories that it touches.

The interlock, the core and the decoder's dispatch are built from it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Opcode


class Memory(enum.Enum):
    """The memories of a machine."""

    LOCAL = "local"
    ACCUMULATORS = "accumulators"
    DRAM0 = "dram0"
    DRAM1 = "dram1"


@dataclass(frozen=True)
class Access:
    """A range of ``memory`` that operand ``operand`` (0 or 1) of an operation names, read or written."""

    operand: int
    memory: Memory
    writes: bool


@dataclass(frozen=True)
class Depths:
    """The depths of a unit's queues.

    ``outstanding``: how many operations may be issued and not done. ``queue``: how many may wait to be issued."""

    outstanding: int
    queue: int


@dataclass(frozen=True)
class Unit:
    """An execution unit: the ranges that its operations access, and the depths of its queues.

    ``short``: its depths; ``deep``: its depths on a machine with ``deep_queues``."""

    accesses: tuple[Access, ...]
    short: Depths = Depths(2, 2)
    deep: Depths = Depths(4, 4)


def _reads(operand: int, memory: Memory) -> Access:
    """Return the access of an operand that reads ``memory``."""
    return Access(operand, memory, False)


def _writes(operand: int, memory: Memory) -> Access:
    """Return the access of an operand that writes ``memory``."""
    return Access(operand, memory, True)


UNITS: dict[str, Unit] = {
    "load_weight": Unit((_reads(0, Memory.LOCAL),)),
    "mat_mul": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.ACCUMULATORS)), Depths(4, 2), Depths(8, 4)),
    "simd": Unit((_writes(0, Memory.ACCUMULATORS), _reads(1, Memory.ACCUMULATORS), _reads(0, Memory.LOCAL)),
                 Depths(4, 4), Depths(8, 4)),
    "move_out": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.ACCUMULATORS))),
    "move_in": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.ACCUMULATORS))),
    "dram0_read": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.DRAM0))),
    "dram0_write": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.DRAM0))),
    "dram1_read": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.DRAM1))),
    "dram1_write": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.DRAM1))),
    "dram_read": Unit((_writes(0, Memory.LOCAL), _reads(1, Memory.DRAM0), _reads(1, Memory.DRAM1)), Depths(4, 2)),
    "dram_write": Unit((_reads(0, Memory.LOCAL), _writes(1, Memory.DRAM0), _writes(1, Memory.DRAM1))),
    "sync": Unit((_writes(1, Memory.DRAM0), _writes(1, Memory.DRAM1))),
}
"""The units of all machines; ``unit_names`` says which of them one machine has.

SIMD's operand 0 is the accumulators it writes, or the local memory that LoadLUT reads. Operand 1 of ``dram_read``,
``dram_write`` and ``sync`` is a range of one of the two windows. A Signal writes nothing, but what comes before it and
behind it in its range may be ordered with other cores, so that it counts as a write."""

UNIT_NAMES = tuple(UNITS)
_SHARED = {"dram0_read": "dram_read", "dram1_read": "dram_read",
           "dram0_write": "dram_write", "dram1_write": "dram_write"}
"""Unit of a machine with separate ports -> the one that does its work where both windows share a port."""


def unit_names(arch: Arch) -> tuple[str, ...]:
    """Return the names of this machine's units, in the order of ``UNIT_NAMES``."""
    absent = {*(_SHARED if arch.shared_dram else _SHARED.values()), *(() if arch.sync_counters else ("sync",))}
    return tuple(name for name in UNIT_NAMES if name not in absent)


def number_width(arch: Arch) -> int:
    """Return the bits of signals that have one for each unit of ``UNIT_NAMES``, up to the last that a machine may have.

    The unit ``sync``, which came last, counts only where it is there."""
    return len(UNIT_NAMES) - (not arch.sync_counters)


def dram_units(arch: Arch) -> tuple[str, ...]:
    """Return the names of this machine's units that are behind a DRAM port."""
    return tuple(name for name in unit_names(arch) if name.startswith("dram"))


def depths(arch: Arch, unit: str) -> Depths:
    """Return the depths of the queues of a unit on this machine."""
    return UNITS[unit].deep if arch.deep_queues else UNITS[unit].short


def faulting_depth(arch: Arch) -> int:
    """Return how many program counters the interlock keeps of each DRAM unit: the same for all of them."""
    return max(depths(arch, unit).outstanding for unit in dram_units(arch))


def accesses(arch: Arch, unit: str) -> tuple[Access, ...]:
    """Return the accesses of a unit on this machine.

    The SIMD unit reads local memory only for LoadLUT, so not on machines without lookup tables."""
    return tuple(access for access in UNITS[unit].accesses
                 if arch.lut_count or unit != "simd" or access.memory is not Memory.LOCAL)


def clients(arch: Arch, memory: Memory, *, writes: bool) -> tuple[str, ...]:
    """Return the names of this machine's units that read ``memory``, or with ``writes`` those that write it."""
    return tuple(unit for unit in unit_names(arch)
                 if any(access.memory is memory and access.writes == writes for access in accesses(arch, unit))
                 or (arch.parameter_loads and (unit, memory, writes) == LOADS_PARAMETERS))


UNIT_OF_FLOW = {
    DataFlow.DRAM0_TO_LOCAL: "dram0_read", DataFlow.LOCAL_TO_DRAM0: "dram0_write",
    DataFlow.DRAM1_TO_LOCAL: "dram1_read", DataFlow.LOCAL_TO_DRAM1: "dram1_write",
    DataFlow.ACCUMULATOR_TO_LOCAL: "move_out", DataFlow.ACCUMULATOR_TO_LOCAL_RELU: "move_out",
    DataFlow.LOCAL_TO_ACCUMULATOR: "move_in", DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE: "move_in",
}
"""The unit that does each DataFlow on a machine with separate DRAM ports."""
UNIT_OF_OPCODE = {
    Opcode.MAT_MUL: "mat_mul", Opcode.LOAD_WEIGHT: "load_weight", Opcode.SIMD: "simd", Opcode.LOAD_LUT: "simd",
    Opcode.SIMD_LOOP: "simd", Opcode.LOAD_SCALE: "move_out", Opcode.LOAD_ACTIVATION_TABLE: "move_out",
    Opcode.SIGNAL: "sync",
}
"""The unit that does each opcode, for all machines; ``Isa.opcodes`` says which of them one has."""
LOADS_PARAMETERS = ("move_out", Memory.LOCAL, False)
"""The access by which ``Arch.parameter_loads`` are read: unit, memory, and that it does not write.

The interlock treats their range as written, like operand 0 of a DataMove of that unit. Nobody else reads these
parameters, so that nothing waits longer, and a comparison is spared."""


def unit_of_flow(arch: Arch) -> dict[DataFlow, str]:
    """Return the unit of this machine that does each DataFlow."""
    return {flow: _SHARED[unit] if arch.shared_dram and unit in _SHARED else unit
            for flow, unit in UNIT_OF_FLOW.items()}


OPERATION = np.dtype([("program_counter", "<i8"), ("unit", "<i8"),
                      ("issue_cycle", "<i8"), ("start_cycle", "<i8"), ("finish_cycle", "<i8")])
"""A row of the table that trace and estimator give: when an operation ran.

``unit`` indexes ``UNIT_NAMES``; cycles count as the machine's own counter does, 0 is the one in which it accepts the
program's first instruction. Every instruction but NoOp and Configure is one operation. A SIMD loop has one for its
header and one for each instruction of the body, whose work ends with the last one's finish."""

NEVER = -1
"""The number instead of a cycle that was not reached because the program was stopped before."""


def conflict(left: Access, right: Access) -> bool:
    """Tell whether two accesses must keep their order if their ranges overlap."""
    return left.memory is right.memory and (left.writes or right.writes)
