"""The instruction set, once (docs/architecture.md, "Instructions").

One table, ``OPERATIONS``, says for each opcode its flags and which field lies in which operand. Encoder, decoder,
disassembler, golden machine, hardware decoder, documentation and C header all read it.

An instruction is a little-endian integer of whole bytes, from the top: opcode (4), flags (4), operand 2, operand 1,
operand 0. Field kinds: an ADDRESS has the address at the bottom of its operand and log2(stride) above it; a SIZE
is stored as n-1; a NUMBER as it is. Bits that no field names must be zero.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch, bits_to_count
from weft.hw.contract.errors import IsaError, explain
from weft.hw.contract.numbers.int8 import MOST_LEAVE_SHIFT, MULTIPLIER_WIDTH


class Opcode(enum.IntEnum):
    NO_OP = 0
    MAT_MUL = 1
    DATA_MOVE = 2
    LOAD_WEIGHT = 3
    SIMD = 4
    LOAD_LUT = 5
    SIMD_LOOP = 6
    LOAD_SCALE = 7
    CONFIGURE = 15


class DataFlow(enum.IntEnum):
    """The flags of DataMove, read as one number."""

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
"""How many sources an operation reads; 2 where it is not listed."""


def simd_argument_count(opcode: SimdOpcode) -> int:
    return SIMD_ARGUMENTS.get(opcode, 2)


class Register(enum.IntEnum):
    """Configure registers. 0x00..0x0B are those of the original machine, 0x10 and above are additions."""

    DRAM0_OFFSET = 0x00
    DRAM0_CACHE = 0x01
    DRAM1_OFFSET = 0x04
    DRAM1_CACHE = 0x05
    TIMEOUT = 0x08
    TRACEPOINT = 0x09
    PROGRAM_COUNTER = 0x0A
    SAMPLE_INTERVAL = 0x0B
    MAT_MUL_ROWS = 0x10
    MAT_MUL_LOCAL_PITCH = 0x11
    MAT_MUL_ACCUMULATOR_PITCH = 0x12
    MOVE_ROWS = 0x14
    MOVE_LOCAL_PITCH = 0x15
    MOVE_FAR_PITCH = 0x16
    ENTER_SHIFT = 0x18
    LEAVE_SHIFT = 0x19
    ACTIVATION_ZERO = 0x1A
    ENTER_ZERO = 0x1B
    ENTER_FACTOR = 0x1C
    LEAVE_ZERO = 0x1D


@dataclass(frozen=True)
class RegisterSpec:
    """Width in bits, value after reset, largest legal value as stored, and what it is. Where it is ``signed``, the
    stored value is the two's complement of ``width`` bits."""

    width: int
    reset: int
    maximum: int
    meaning: str
    signed: bool = False

    def value(self, stored: int) -> int:
        """What a stored value means."""
        return stored - (1 << self.width) if self.signed and stored >> self.width - 1 else stored


@cache
def register_table(arch: Arch) -> dict[Register, RegisterSpec]:
    """Every Configure register of this machine; rows registers hold rows-1, pitches count vectors."""
    def full(width: int, reset: int, meaning: str) -> RegisterSpec:
        return RegisterSpec(width, reset, (1 << width) - 1, meaning)

    def offset(depth: int, meaning: str) -> RegisterSpec:
        room = (1 << arch.axi_address_width) - depth * arch.vector_bytes
        return RegisterSpec(32, 0, min(room // DRAM_OFFSET_BYTES, (1 << 32) - 1), meaning)

    local, accumulator = arch.local_address_width, arch.accumulator_address_width
    far = max(accumulator, arch.dram_address_width)
    return {
        Register.DRAM0_OFFSET: offset(arch.dram0_depth, "DRAM0 window's start, in blocks of 64 KiB"),
        Register.DRAM0_CACHE: full(4, 0, "AxCACHE of the DRAM0 port"),
        Register.DRAM1_OFFSET: offset(arch.dram1_depth, "DRAM1 window's start, in blocks of 64 KiB"),
        Register.DRAM1_CACHE: full(4, 0, "AxCACHE of the DRAM1 port"),
        Register.TIMEOUT: full(16, 0x0064, "cycles without progress before the timeout flag, 0 for never"),
        Register.TRACEPOINT: full(32, 0xFFFF_FFFF, "program counter that raises the tracepoint flag"),
        Register.PROGRAM_COUNTER: full(32, 0, "number of the next instruction"),
        Register.SAMPLE_INTERVAL: full(16, 0, "cycles between performance samples, 0 for none"),
        Register.MAT_MUL_ROWS: full(local, 0, "MatMul: rows - 1"),
        Register.MAT_MUL_LOCAL_PITCH: full(local, 0, "MatMul: vectors from row to row in local memory"),
        Register.MAT_MUL_ACCUMULATOR_PITCH: full(accumulator, 0, "MatMul: vectors from row to row in accumulators"),
        Register.MOVE_ROWS: full(local, 0, "DataMove: rows - 1"),
        Register.MOVE_LOCAL_PITCH: full(local, 0, "DataMove: vectors from row to row in local memory"),
        Register.MOVE_FAR_PITCH: full(far, 0, "DataMove: vectors from row to row in accumulators or DRAM"),
        **(_scale_registers(arch) if arch.numbers.has_scales else _shift_registers(arch)),
    }


def _shift_registers(arch: Arch) -> dict[Register, RegisterSpec]:
    def shift(meaning: str) -> RegisterSpec:
        width = bits_to_count(arch.accumulator_bits)
        return RegisterSpec(width, arch.number.point, arch.accumulator_bits - 1, meaning)

    return {Register.ENTER_SHIFT: shift("bits shifted left on the way into the accumulators"),
            Register.LEAVE_SHIFT: shift("bits rounded off on the way out of the accumulators")}


def _scale_registers(arch: Arch) -> dict[Register, RegisterSpec]:
    def zero(meaning: str) -> RegisterSpec:
        width = arch.number.width
        return RegisterSpec(width, 0, (1 << width) - 1, meaning, signed=True)

    factor = (1 << MULTIPLIER_WIDTH) - 1
    return {Register.LEAVE_SHIFT: RegisterSpec(bits_to_count(MOST_LEAVE_SHIFT + 1), 0, MOST_LEAVE_SHIFT,
                                               "DataMove out: bits rounded off the product"),
            Register.ACTIVATION_ZERO: zero("MatMul: subtracted from each activation"),
            Register.ENTER_ZERO: zero("DataMove into the accumulators: subtracted first"),
            Register.ENTER_FACTOR: RegisterSpec(MULTIPLIER_WIDTH, 1, factor,
                                                "DataMove into the accumulators: multiplied by then"),
            Register.LEAVE_ZERO: zero("DataMove out: added last")}



def illegal_register_value(arch: Arch, register: Register, value: int) -> bool:
    """Whether Configure must refuse the value. Where numbers have no points of their own, the two shifts are fixed."""
    if arch.numbers.fixed_shift is not None and register in (Register.ENTER_SHIFT, Register.LEAVE_SHIFT):
        return value != arch.number.point
    return value > register_table(arch)[register].maximum


class Cause(enum.IntEnum):
    """Why the machine stopped. Where several apply to one instruction, the lowest number is reported."""

    NONE = 0
    OPCODE = 1
    FLAGS = 2
    RESERVED_BITS = 3
    LOCAL_RANGE = 4
    ACCUMULATOR_RANGE = 5
    DRAM0_RANGE = 6
    DRAM1_RANGE = 7
    REGISTER = 8
    REGISTER_VALUE = 9
    SIMD_OPCODE = 10
    SIMD_REGISTER = 11
    LUT_TABLE = 12
    LOOP_BODY = 13
    DRAM0_READ_RESPONSE = 16
    DRAM0_WRITE_RESPONSE = 17
    DRAM1_READ_RESPONSE = 18
    DRAM1_WRITE_RESPONSE = 19
    PROGRAM_READ_RESPONSE = 20


CAUSE_WIDTH = max(Cause).bit_length()

CAUSE_TEXTS: dict[Cause, str] = {
    Cause.NONE: "no error",
    Cause.OPCODE: "no such opcode on this machine",
    Cause.FLAGS: "flags that this instruction does not have",
    Cause.RESERVED_BITS: "a bit set that no field names",
    Cause.LOCAL_RANGE: "a local memory address beyond local_depth",
    Cause.ACCUMULATOR_RANGE: "an accumulator address beyond accumulator_depth",
    Cause.DRAM0_RANGE: "a DRAM0 address beyond dram0_depth",
    Cause.DRAM1_RANGE: "a DRAM1 address beyond dram1_depth",
    Cause.REGISTER: "no such Configure register",
    Cause.REGISTER_VALUE: "a value that the Configure register cannot take",
    Cause.SIMD_OPCODE: "no such SIMD operation on this machine",
    Cause.SIMD_REGISTER: "a SIMD register that this machine does not have",
    Cause.LUT_TABLE: "a lookup table that this machine does not have",
    Cause.LOOP_BODY: "a SIMDLoop body that is too long or holds something other than SIMD",
    Cause.DRAM0_READ_RESPONSE: "an error response to a DRAM0 read",
    Cause.DRAM0_WRITE_RESPONSE: "an error response to a DRAM0 write",
    Cause.DRAM1_READ_RESPONSE: "an error response to a DRAM1 read",
    Cause.DRAM1_WRITE_RESPONSE: "an error response to a DRAM1 write",
    Cause.PROGRAM_READ_RESPONSE: "an error response to a program read",
}


class Kind(enum.Enum):
    """How a field is stored: ADDRESS with stride, SIZE as n-1, NUMBER as it is, SUB the SIMD sub-instruction."""

    ADDRESS = "address"
    SIZE = "size"
    NUMBER = "number"
    SUB = "sub-instruction"


@dataclass(frozen=True)
class Field:
    """A named field filling operand ``operand`` (0, 1, 2) from bit 0 up."""

    name: str
    operand: int
    kind: Kind


@dataclass(frozen=True)
class InstructionSpec:
    """One row of the instruction table. ``flags`` from bit 0 up; DataMove's flags are a DataFlow instead."""

    name: str
    flags: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()


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
    Opcode.CONFIGURE: InstructionSpec("Configure", (), (
        Field("register", 0, Kind.NUMBER), Field("value", 1, Kind.NUMBER))),
}


@cache
def flag_bit(opcode: int, name: str) -> int:
    """The bit of a flag within the flags of an instruction. Raises ValueError where the table has no such flag."""
    return OPERATIONS[Opcode(opcode)].flags.index(name)


@cache
def operand_of(opcode: int, name: str) -> int:
    """The operand (0, 1, 2) that a field lies in. Raises ValueError where the table has no such field."""
    fields = OPERATIONS[Opcode(opcode)].fields
    return fields[[field.name for field in fields].index(name)].operand


RELU_BIT = (DataFlow.ACCUMULATOR_TO_LOCAL ^ DataFlow.ACCUMULATOR_TO_LOCAL_RELU).bit_length() - 1
"""The flag of a DataMove out of the accumulators that asks for max(0, x)."""
MOVE_ACCUMULATE_BIT = (DataFlow.LOCAL_TO_ACCUMULATOR ^ DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE).bit_length() - 1
"""The flag of a DataMove into the accumulators that adds instead of replacing."""

SUB_REGISTERS = ("destination", "right", "left")
"""Registers of a SIMD sub-instruction from bit 0 up, ``simd_register_width`` bits each; the SIMD opcode lies above."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction as raw numbers; the constructors of :class:`Isa` fill it with checked fields."""

    opcode: int
    flags: int = 0
    operand0: int = 0
    operand1: int = 0
    operand2: int = 0

    @property
    def operands(self) -> tuple[int, int, int]:
        return self.operand0, self.operand1, self.operand2

    def flag(self, name: str) -> bool:
        """Whether a flag of this opcode is set."""
        return bool(self.flags >> flag_bit(self.opcode, name) & 1)

    def raw(self, name: str) -> int:
        """The operand that a field of this opcode lies in."""
        return self.operands[operand_of(self.opcode, name)]


@dataclass(frozen=True, slots=True)
class SimdSub:
    """A SIMD sub-instruction. Sources: 0 the input, n register n. Destination: 0 output only, n register n too."""

    opcode: SimdOpcode
    left: int = 0
    right: int = 0
    destination: int = 0


def _round_up_to_byte(bits: int) -> int:
    return (bits + 7) // 8 * 8


class Isa:
    """The instruction set of one machine: widths, constructors, encode, decode, disassemble."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        local, accumulator = arch.local_address_width, arch.accumulator_address_width
        dram0, dram1 = bits_to_count(arch.dram0_depth), bits_to_count(arch.dram1_depth)
        self.simd_opcode_width = 5 if arch.lut_count else 4
        self.simd_register_width = bits_to_count(arch.simd_registers_depth + 1)
        self.sub_width = self.simd_opcode_width + 3 * self.simd_register_width
        self.address_widths = (max(local, accumulator), max(local, dram0, dram1, accumulator))
        self.stride_widths = (bits_to_count(arch.stride0_depth), bits_to_count(arch.stride1_depth))
        self.size_width = max(min(local, accumulator), min(local, dram0), min(local, dram1))
        self.operand_widths = (
            _round_up_to_byte(self.address_widths[0] + self.stride_widths[0]),
            _round_up_to_byte(max(self.address_widths[1] + self.stride_widths[1], self._scale_width())),
            _round_up_to_byte(max(self.size_width, self.sub_width)),
        )
        self.operand_offsets = (0, self.operand_widths[0], self.operand_widths[0] + self.operand_widths[1])
        self.flags_offset = sum(self.operand_widths)
        self.opcode_offset = self.flags_offset + 4
        self.instruction_bytes = (self.opcode_offset + 4) // 8

    def _scale_width(self) -> int:
        """Bits that the registers of a machine with scales ask of a Configure, whose value is operand 1."""
        return max(spec.width for spec in _scale_registers(self.arch).values()) if self.arch.numbers.has_scales else 0

    # -- fields ----------------------------------------------------------------------------------------------------
    @cached_property
    def registers(self) -> dict[Register, RegisterSpec]:
        return register_table(self.arch)

    def field_width(self, field: Field) -> int:
        """Bits of a field within its operand, stride included."""
        if field.kind is Kind.ADDRESS:
            return self.address_widths[field.operand] + self.stride_widths[field.operand]
        return self.sub_width if field.kind is Kind.SUB else self.operand_widths[field.operand]

    def used_mask(self, opcode: Opcode) -> int:
        """Bits of an instruction that this opcode's fields, flags and the opcode itself name."""
        mask = 0xFF << self.flags_offset
        for field in OPERATIONS[opcode].fields:
            mask |= ((1 << self.field_width(field)) - 1) << self.operand_offsets[field.operand]
        return mask

    def legal_flags(self, opcode: Opcode) -> frozenset[int]:
        """Flag values that a stand-alone instruction may have (``hold`` is legal only inside a loop body)."""
        if opcode is Opcode.DATA_MOVE:
            return frozenset(int(flow) for flow in DataFlow)
        names = OPERATIONS[opcode].flags
        return frozenset(range(1 << len([name for name in names if name != "hold"])))

    def opcodes(self) -> tuple[Opcode, ...]:
        """The opcodes that this machine has."""
        absent = {Opcode.LOAD_LUT} if not self.arch.lut_count else set()
        absent |= {Opcode.SIMD_LOOP} if not self.arch.simd_loop_depth else set()
        absent |= {Opcode.LOAD_SCALE} if not self.arch.numbers.has_scales else set()
        return tuple(opcode for opcode in Opcode if opcode not in absent)

    def simd_opcodes(self) -> tuple[SimdOpcode, ...]:
        """The SIMD operations that this machine has: those whose number fits its field."""
        return tuple(opcode for opcode in SimdOpcode if opcode < 1 << self.simd_opcode_width)

    def address(self, operand: int, raw: int) -> tuple[int, int]:
        """Raw operand (0 or 1) -> (address, stride in vectors)."""
        width = self.address_widths[operand]
        return raw & ((1 << width) - 1), 1 << (raw >> width & ((1 << self.stride_widths[operand]) - 1))

    # -- constructors ----------------------------------------------------------------------------------------------
    def _fit(self, what: str, value: int, width: int) -> int:
        if not 0 <= value < 1 << width:
            raise IsaError(explain(what, value, f"0..{(1 << width) - 1} ({width} bits)",
                                   "split the operation or enlarge the memory that sets this width"))
        return int(value)

    def _address(self, what: str, operand: int, address: int, stride: int) -> int:
        depth = (self.arch.stride0_depth, self.arch.stride1_depth)[operand]
        if stride < 1 or stride & (stride - 1) or stride.bit_length() > depth:
            raise IsaError(explain(f"stride of {what}", stride, f"a power of two, 1..{1 << (depth - 1)}",
                                   f"use another stride or raise stride{operand}_depth"))
        width = self.address_widths[operand]
        return self._fit(what, address, width) | (stride.bit_length() - 1) << width

    def _size(self, what: str, operand: int, size: int) -> int:
        width = self.operand_widths[operand]
        if not 1 <= size <= 1 << width:
            raise IsaError(explain(what, size, f"1..{1 << width}", "split the operation"))
        return size - 1

    @staticmethod
    def _flags(opcode: Opcode, **flags: bool) -> int:
        return sum(bool(value) << flag_bit(opcode, name) for name, value in flags.items())

    def no_op(self) -> Instruction:
        return Instruction(Opcode.NO_OP)

    def mat_mul(self, local: int, accumulator: int, size: int, *, accumulate: bool = False, zeroes: bool = False,
                local_stride: int = 1, accumulator_stride: int = 1) -> Instruction:
        return Instruction(Opcode.MAT_MUL, self._flags(Opcode.MAT_MUL, accumulate=accumulate, zeroes=zeroes),
                           self._address("MatMul local", 0, local, local_stride),
                           self._address("MatMul accumulator", 1, accumulator, accumulator_stride),
                           self._size("MatMul size", 2, size))

    def data_move(self, flow: DataFlow, local: int, far: int, size: int, *, local_stride: int = 1,
                  far_stride: int = 1) -> Instruction:
        """``far`` addresses DRAM0, DRAM1 or the accumulators, as the flow says."""
        return Instruction(Opcode.DATA_MOVE, int(flow),
                           self._address("DataMove local", 0, local, local_stride),
                           self._address("DataMove far", 1, far, far_stride),
                           self._size("DataMove size", 2, size))

    def load_weight(self, local: int, size: int, *, zeroes: bool = False, zero_bias: bool = False,
                    local_stride: int = 1) -> Instruction:
        """Shift ``size`` vectors in, last address first; the bias row comes from ``local`` itself."""
        return Instruction(Opcode.LOAD_WEIGHT, self._flags(Opcode.LOAD_WEIGHT, zeroes=zeroes, zero_bias=zero_bias),
                           self._address("LoadWeight local", 0, local, local_stride),
                           self._size("LoadWeight size", 1, size))

    def simd(self, sub: SimdSub, *, read: int | None = None, write: int | None = None, accumulate: bool = False,
             hold: bool = False, read_stride: int = 1, write_stride: int = 1) -> Instruction:
        """``read`` / ``write`` are accumulator addresses, None for no access; strides count only in a loop."""
        flags = self._flags(Opcode.SIMD, read=read is not None, write=write is not None, accumulate=accumulate,
                            hold=hold)
        return Instruction(Opcode.SIMD, flags,
                           self._address("SIMD write address", 0, write or 0, write_stride),
                           self._address("SIMD read address", 1, read or 0, read_stride),
                           self.pack_sub(sub))

    def load_lut(self, local: int, table: int, *, local_stride: int = 1) -> Instruction:
        return Instruction(Opcode.LOAD_LUT, 0, self._address("LoadLUT local", 0, local, local_stride),
                           self._fit("LoadLUT table", table, self.operand_widths[1]))

    def load_scale(self, local: int, *, local_stride: int = 1) -> Instruction:
        """Multipliers and biases of the DataMoves out of the accumulators behind it: ``SCALE_VECTORS`` vectors."""
        return Instruction(Opcode.LOAD_SCALE, 0, self._address("LoadScale local", 0, local, local_stride))

    def simd_loop(self, iterations: int, body: int) -> Instruction:
        return Instruction(Opcode.SIMD_LOOP, 0, self._size("SIMDLoop iterations", 0, iterations),
                           self._size("SIMDLoop body", 1, body))

    def configure(self, register: Register, value: int) -> Instruction:
        """``value`` as it is meant: a signed register takes negative ones."""
        spec = self.registers.get(register)
        if spec and spec.signed and -1 << spec.width - 1 <= value < 0:
            value += 1 << spec.width
        return Instruction(Opcode.CONFIGURE, 0, self._fit("Configure register", register, self.operand_widths[0]),
                           self._fit(f"Configure {Register(register).name}", value, self.operand_widths[1]))

    # -- SIMD sub-instruction --------------------------------------------------------------------------------------
    def pack_sub(self, sub: SimdSub) -> int:
        """From the top: opcode, left, right, destination."""
        width = self.simd_register_width
        value = self._fit("SIMD opcode", sub.opcode, self.simd_opcode_width)
        for name in reversed(SUB_REGISTERS):
            value = value << width | self._fit(f"SIMD {name}", getattr(sub, name), width)
        return value

    def unpack_sub(self, value: int) -> tuple[int, int, int, int]:
        """Raw (opcode, left, right, destination); not checked."""
        width = self.simd_register_width
        mask = (1 << width) - 1
        return (value >> 3 * width & ((1 << self.simd_opcode_width) - 1), value >> 2 * width & mask,
                value >> width & mask, value & mask)

    # -- integers and bytes ----------------------------------------------------------------------------------------
    def encode(self, instruction: Instruction) -> int:
        """Instruction -> integer of ``instruction_bytes`` bytes. Raises IsaError for an operand too wide."""
        value = self._fit("opcode", instruction.opcode, 4) << 4 | self._fit("flags", instruction.flags, 4)
        for operand in (2, 1, 0):
            width = self.operand_widths[operand]
            value = value << width | self._fit(f"operand {operand}", instruction.operands[operand], width)
        return value

    def decode(self, value: int) -> Instruction:
        """Integer -> raw instruction; legal or not."""
        operands = [value >> self.operand_offsets[i] & ((1 << self.operand_widths[i]) - 1) for i in range(3)]
        return Instruction(value >> self.opcode_offset & 15, value >> self.flags_offset & 15, *operands)

    def assemble(self, program: Iterable[Instruction]) -> bytes:
        """The ``.tprog`` bytes."""
        size = self.instruction_bytes
        return b"".join(self.encode(instruction).to_bytes(size, "little") for instruction in program)

    def split(self, program: bytes) -> np.ndarray:
        """``.tprog`` bytes -> uint64 array [5, n]: opcode, flags, operand 0, 1, 2. Raises IsaError when truncated."""
        size = self.instruction_bytes
        if len(program) % size:
            raise IsaError(explain("program", f"{len(program)} bytes", f"a multiple of {size}, the bytes of one "
                                   "instruction", "check that the file is whole and made for this architecture"))
        table = np.frombuffer(program, np.uint8).reshape(-1, size)

        def number(offset: int, width: int) -> np.ndarray:
            columns = range(offset // 8, (offset + width) // 8)
            return sum((table[:, c].astype(np.uint64) << np.uint64(8 * k) for k, c in enumerate(columns)),
                       np.zeros(len(table), np.uint64))

        head = number(self.flags_offset, 8)
        operands = [number(self.operand_offsets[i], self.operand_widths[i]) for i in range(3)]
        return np.stack([head >> np.uint64(4), head & np.uint64(15), *operands])

    def disassemble(self, program: bytes) -> Iterator[Instruction]:
        """``.tprog`` bytes -> instructions. Raises IsaError when truncated."""
        for row in self.split(program).T.tolist():
            yield Instruction(*row)

    # -- text ------------------------------------------------------------------------------------------------------
    def text(self, instruction: Instruction) -> str:
        """One line of assembly, such as ``MatMul accumulate local=3 accumulator=0:2 size=49`` (``:2`` the stride)."""
        if instruction.opcode not in list(Opcode):
            return f"illegal opcode={instruction.opcode} flags={instruction.flags} operands={instruction.operands}"
        opcode = Opcode(instruction.opcode)
        operation = OPERATIONS[opcode]
        words = [operation.name, *self._flag_words(opcode, instruction.flags)]
        words += [self._field_text(field, instruction.operands[field.operand]) for field in operation.fields]
        return " ".join(words)

    def _flag_words(self, opcode: Opcode, flags: int) -> list[str]:
        if opcode is Opcode.DATA_MOVE:
            known = {int(flow): flow.name.lower() for flow in DataFlow}
            return [known.get(flags, f"flow={flags}")]
        names = OPERATIONS[opcode].flags
        return [names[bit] if bit < len(names) else f"flag{bit}" for bit in range(4) if flags >> bit & 1]

    def _field_text(self, field: Field, raw: int) -> str:
        if field.kind is Kind.ADDRESS:
            address, stride = self.address(field.operand, raw)
            return f"{field.name}={address}" + (f":{stride}" if stride > 1 else "")
        if field.kind is Kind.SIZE:
            return f"{field.name}={raw + 1}"
        if field.kind is Kind.SUB:
            opcode, left, right, destination = self.unpack_sub(raw)
            name = SimdOpcode(opcode).name.lower() if opcode in list(SimdOpcode) else f"opcode{opcode}"
            return f"{name} left={left} right={right} destination={destination}"
        if field.name == "register" and raw in list(Register):
            return f"register={Register(raw).name.lower()}"
        return f"{field.name}={raw}"
