# SPDX-License-Identifier: Apache-2.0
"""The table of instructions (docs/machine/instructions.md).

``OPERATIONS`` says for each opcode its flags and which field lies in which operand. Encoder, decoder, disassembler,
golden machine, hardware decoder, documentation and C header all read it. ``isa.py`` says how wide the operands of one
machine are, and its bytes.

Field kinds: an ADDRESS has the address at the bottom of its operand and log2(stride) above it; a SIZE is stored as n-1;
a NUMBER as it is. Bits that no field names must be zero."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class Opcode(enum.IntEnum):
    """Opcodes of the instructions, 4 bits each."""

    NO_OP = 0
    MAT_MUL = 1
    DATA_MOVE = 2
    LOAD_WEIGHT = 3
    SIMD = 4
    LOAD_LUT = 5
    SIMD_LOOP = 6
    LOAD_SCALE = 7
    LOAD_ACTIVATION_TABLE = 8
    REPEAT = 9
    SIGNAL = 10
    CONFIGURE = 15


PARAMETER_LOADS = frozenset({Opcode.LOAD_SCALE, Opcode.LOAD_ACTIVATION_TABLE})
"""Opcodes of all machines that load the move-out unit's requantization parameters.

``Arch.parameter_loads`` has those of one machine."""


class DataFlow(enum.IntEnum):
    """Directions of a DataMove: its four flags, read as one number."""

    DRAM0_TO_LOCAL = 0
    LOCAL_TO_DRAM0 = 1
    DRAM1_TO_LOCAL = 2
    LOCAL_TO_DRAM1 = 3
    ACCUMULATOR_TO_LOCAL = 12
    LOCAL_TO_ACCUMULATOR = 13
    ACCUMULATOR_TO_LOCAL_RELU = 14
    LOCAL_TO_ACCUMULATOR_ACCUMULATE = 15

    @property
    def far_memory(self) -> str:
        """The memory that operand 1 addresses: dram0, dram1 or accumulator."""
        return {0: "dram0", 1: "dram1"}.get(self >> 1, "accumulator")


class SimdOpcode(enum.IntEnum):
    """Numbers of the SIMD unit's operations."""

    NO_OP = 0
    ZERO = 1
    MOVE = 2
    NOT = 3
    AND = 4
    OR = 5
    INCREMENT = 6
    DECREMENT = 7
    ADD = 8
    SUBTRACT = 9
    MULTIPLY = 10
    ABS = 11
    GREATER_THAN = 12
    GREATER_THAN_EQUAL = 13
    MIN = 14
    MAX = 15
    LOOKUP = 16


SIMD_ARGUMENTS: dict[SimdOpcode, int] = {
    SimdOpcode.NO_OP: 0, SimdOpcode.ZERO: 0, SimdOpcode.MOVE: 1, SimdOpcode.NOT: 1, SimdOpcode.INCREMENT: 1,
    SimdOpcode.DECREMENT: 1, SimdOpcode.ABS: 1, SimdOpcode.LOOKUP: 1,
}
"""The number of sources that an operation reads; 2 where it is not listed."""


def simd_argument_count(opcode: SimdOpcode) -> int:
    """Return how many sources a SIMD operation reads: 0, 1 or 2."""
    return SIMD_ARGUMENTS.get(opcode, 2)


class Kind(enum.Enum):
    """The way a field is stored: ADDRESS with its stride, SIZE as n-1, NUMBER as it is, SUB for SimdSub.

    TARGET: a counter in ``COUNTER_WIDTH`` bits, above it the cores of a post, a bit each, or the amount of a wait."""

    ADDRESS = "address"
    SIZE = "size"
    NUMBER = "number"
    SUB = "sub-instruction"
    TARGET = "target"


@dataclass(frozen=True)
class Field:
    """A named field filling operand ``operand`` (0, 1, 2) from bit 0 up."""

    name: str
    operand: int
    kind: Kind


@dataclass(frozen=True)
class InstructionSpec:
    """One row of the instruction table: name, flags from bit 0 up, fields.

    DataMove has no flags here, since its flags are one DataFlow."""

    name: str
    flags: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()


KEY_ENTRIES = 2
"""The entries of table 0 that count: the first key, and the next one, which tells the spacing. LoadLUT reads no others,
though its range in local memory is that of any table."""

OPERATIONS: dict[Opcode, InstructionSpec] = {
    Opcode.NO_OP: InstructionSpec("NoOp"),
    Opcode.MAT_MUL: InstructionSpec("MatMul", ("accumulate", "zeroes"), (
        Field("local", 0, Kind.ADDRESS), Field("accumulator", 1, Kind.ADDRESS), Field("size", 2, Kind.SIZE))),
    Opcode.DATA_MOVE: InstructionSpec("DataMove", (), (
        Field("local", 0, Kind.ADDRESS), Field("far", 1, Kind.ADDRESS), Field("size", 2, Kind.SIZE))),
    Opcode.LOAD_WEIGHT: InstructionSpec("LoadWeight", ("zeroes", "zero_bias"), (
        Field("local", 0, Kind.ADDRESS), Field("size", 1, Kind.SIZE))),
    Opcode.SIMD: InstructionSpec("SIMD", ("read", "write", "accumulate", "hold"), (
        Field("write_address", 0, Kind.ADDRESS), Field("read_address", 1, Kind.ADDRESS), Field("sub", 2, Kind.SUB))),
    Opcode.LOAD_LUT: InstructionSpec("LoadLUT", (), (Field("local", 0, Kind.ADDRESS), Field("table", 1, Kind.NUMBER))),
    Opcode.SIMD_LOOP: InstructionSpec("SIMDLoop", (), (Field("iterations", 0, Kind.SIZE), Field("body", 1, Kind.SIZE))),
    Opcode.LOAD_SCALE: InstructionSpec("LoadScale", (), (Field("local", 0, Kind.ADDRESS),)),
    Opcode.LOAD_ACTIVATION_TABLE: InstructionSpec("LoadActivationTable", (), (
        Field("local", 0, Kind.ADDRESS), Field("table", 1, Kind.NUMBER))),
    Opcode.REPEAT: InstructionSpec("Repeat", (), (Field("distance", 0, Kind.SIZE), Field("count", 1, Kind.SIZE))),
    Opcode.SIGNAL: InstructionSpec("Signal", ("wait", "dram1"), (
        Field("target", 0, Kind.TARGET), Field("range", 1, Kind.ADDRESS), Field("size", 2, Kind.SIZE))),
    Opcode.CONFIGURE: InstructionSpec("Configure", (), (
        Field("register", 0, Kind.NUMBER), Field("value", 1, Kind.NUMBER))),
}


@cache
def flag_bit(opcode: int, name: str) -> int:
    """Return the bit of a flag among the flags of an opcode. Raise ValueError if the opcode has no such flag."""
    return OPERATIONS[Opcode(opcode)].flags.index(name)


@cache
def operand_of(opcode: int, name: str) -> int:
    """Return the operand (0, 1, 2) that holds a field of an opcode.

    Raise ValueError if the opcode has no such field."""
    fields = OPERATIONS[Opcode(opcode)].fields
    return fields[[field.name for field in fields].index(name)].operand


RELU_BIT = (DataFlow.ACCUMULATOR_TO_LOCAL ^ DataFlow.ACCUMULATOR_TO_LOCAL_RELU).bit_length() - 1
"""The flag of a DataMove out of the accumulators that asks for max(0, x)."""
MOVE_ACCUMULATE_BIT = (DataFlow.LOCAL_TO_ACCUMULATOR ^ DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE).bit_length() - 1
"""The flag of a DataMove into the accumulators that adds instead of replacing."""

COUNTER_WIDTH = 4
"""The bits of a counter's number in a Signal."""
TARGET_WIDTH = COUNTER_WIDTH + 16
"""The bits of a Signal's target: a counter, and 16 bits of cores or of an amount."""
COUNT_WIDTH = 8
"""The bits of a counter, and so of the largest amount of a wait."""

SUB_REGISTERS = ("destination", "right", "left")
"""Registers of a SIMD sub-instruction from bit 0 up, ``simd_register_width`` bits each; the SIMD opcode lies above."""


class Instruction(NamedTuple):
    """One instruction as raw numbers; the constructors of :class:`Isa` fill it with checked fields."""

    opcode: int
    flags: int = 0
    operand0: int = 0
    operand1: int = 0
    operand2: int = 0

    @property
    def operands(self) -> tuple[int, int, int]:
        """The three operands as raw numbers."""
        return self.operand0, self.operand1, self.operand2

    def flag(self, name: str) -> bool:
        """Tell whether the flag ``name`` of this instruction's opcode is set."""
        return bool(self.flags >> flag_bit(self.opcode, name) & 1)

    def raw(self, name: str) -> int:
        """Return the raw operand that holds the field ``name`` of this instruction's opcode."""
        return self.operands[operand_of(self.opcode, name)]


@dataclass(frozen=True, slots=True)
class SimdSub:
    """A SIMD sub-instruction: what the ALU does, with which registers.

    Sources ``left`` and ``right``: 0 is the input, n register n. ``destination``: 0 is the output alone, n writes
    register n too."""

    opcode: SimdOpcode
    left: int = 0
    right: int = 0
    destination: int = 0
