"""The execution units by name: which operation each takes and which ranges of which memories it touches.

The interlock, the core and the decoder's dispatch are built from this table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Opcode


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
class Depths:
    """``outstanding``: how many operations of a unit may be issued and not done; ``queue``: how many may wait."""

    outstanding: int
    queue: int


@dataclass(frozen=True)
class Unit:
    """``short``: its depths; ``deep``: those on a machine with ``deep_queues``."""

    accesses: tuple[Access, ...]
    short: Depths = Depths(2, 2)
    deep: Depths = Depths(4, 4)


def _reads(operand: int, memory: Memory) -> Access:
    return Access(operand, memory, False)


def _writes(operand: int, memory: Memory) -> Access:
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
}
"""Of every machine; one of them has those of ``unit_names``. SIMD's operand 0 is the accumulators it writes, or the
local memory that LoadLUT reads. Operand 1 of ``dram_read`` and ``dram_write`` is a range of one of the two windows."""

UNIT_NAMES = tuple(UNITS)
_SHARED = {"dram0_read": "dram_read", "dram1_read": "dram_read",
           "dram0_write": "dram_write", "dram1_write": "dram_write"}
"""Unit of a machine with separate ports -> the one that does its work where both windows share a port."""


def unit_names(arch: Arch) -> tuple[str, ...]:
    """The units of this machine, in the order of ``UNIT_NAMES``."""
    absent = _SHARED if arch.shared_dram else _SHARED.values()
    return tuple(name for name in UNIT_NAMES if name not in absent)


def dram_units(arch: Arch) -> tuple[str, ...]:
    """Those that are behind a DRAM port."""
    return tuple(name for name in unit_names(arch) if name.startswith("dram"))


def depths(arch: Arch, unit: str) -> Depths:
    """Those that a unit of this machine has."""
    return UNITS[unit].deep if arch.deep_queues else UNITS[unit].short


def blamed_depth(arch: Arch) -> int:
    """How many program counters the interlock keeps of each DRAM unit: as many for all of them."""
    return max(depths(arch, unit).outstanding for unit in dram_units(arch))


def accesses(arch: Arch, unit: str) -> tuple[Access, ...]:
    """Those that a unit of this machine has: only LoadLUT takes the SIMD unit to local memory."""
    return tuple(access for access in UNITS[unit].accesses
                 if arch.lut_count or unit != "simd" or access.memory is not Memory.LOCAL)


def clients(arch: Arch, memory: Memory, *, writes: bool) -> tuple[str, ...]:
    """The units of this machine that read a memory, or those that write it."""
    return tuple(unit for unit in unit_names(arch)
                 if any(access.memory is memory and access.writes == writes for access in accesses(arch, unit))
                 or (arch.parameter_loads and (unit, memory, writes) == LOADS_PARAMETERS))


UNIT_OF_FLOW = {
    DataFlow.DRAM0_TO_LOCAL: "dram0_read", DataFlow.LOCAL_TO_DRAM0: "dram0_write",
    DataFlow.DRAM1_TO_LOCAL: "dram1_read", DataFlow.LOCAL_TO_DRAM1: "dram1_write",
    DataFlow.ACCUMULATOR_TO_LOCAL: "move_out", DataFlow.ACCUMULATOR_TO_LOCAL_RELU: "move_out",
    DataFlow.LOCAL_TO_ACCUMULATOR: "move_in", DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE: "move_in",
}
"""Of a machine with separate DRAM ports."""
UNIT_OF_OPCODE = {
    Opcode.MAT_MUL: "mat_mul", Opcode.LOAD_WEIGHT: "load_weight", Opcode.SIMD: "simd", Opcode.LOAD_LUT: "simd",
    Opcode.SIMD_LOOP: "simd", Opcode.LOAD_SCALE: "move_out", Opcode.LOAD_ACTIVATION_TABLE: "move_out",
}
"""Of every machine; ``Isa.opcodes`` says which of them one has."""
LOADS_PARAMETERS = ("move_out", Memory.LOCAL, False)
"""Who reads which memory for ``Arch.parameter_loads``. The interlock treats their range as written, like operand 0 of a
DataMove of that unit: nobody else reads these parameters, so that nothing waits longer, and a comparison is spared."""


def unit_of_flow(arch: Arch) -> dict[DataFlow, str]:
    """Which unit of this machine a DataMove goes to."""
    return {flow: _SHARED[unit] if arch.shared_dram and unit in _SHARED else unit
            for flow, unit in UNIT_OF_FLOW.items()}


OPERATION = np.dtype([("program_counter", "<i8"), ("unit", "<i8"),
                      ("issue_cycle", "<i8"), ("start_cycle", "<i8"), ("finish_cycle", "<i8")])
"""When an operation ran: a row of the table that the trace and the estimator give. ``unit`` indexes ``UNIT_NAMES``;
cycles count as the machine's own counter does, 0 is the one in which it accepts the program's first instruction. Every
instruction but NoOp and Configure is one operation; of a SIMD loop the header and each instruction of the body, whose
work ends with the last one's finish."""

NEVER = -1
"""Instead of a cycle: the program was stopped before."""


def conflict(left: Access, right: Access) -> bool:
    """Whether two accesses must keep their order if their ranges overlap."""
    return left.memory is right.memory and (left.writes or right.writes)
