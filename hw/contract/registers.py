"""The registers that Configure writes: number, width, value after reset, and what each is for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache

from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch, bits_to_count
from weft.hw.contract.schemes.int8 import MOST_LEAVE_SHIFT, MULTIPLIER_WIDTH


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
    LEAVE_TABLE = 0x1E


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
        **(scale_registers(arch) if arch.scheme.has_scales else _shift_registers(arch)),
    }


def _shift_registers(arch: Arch) -> dict[Register, RegisterSpec]:
    """Those of a machine whose numbers move by shifts."""
    def shift(meaning: str) -> RegisterSpec:
        width = bits_to_count(arch.accumulator_bits)
        return RegisterSpec(width, arch.number.point, arch.accumulator_bits - 1, meaning)

    return {Register.ENTER_SHIFT: shift("bits shifted left on the way into the accumulators"),
            Register.LEAVE_SHIFT: shift("bits rounded off on the way out of the accumulators")}


def scale_registers(arch: Arch) -> dict[Register, RegisterSpec]:
    """Those of a machine with scales."""
    def zero(meaning: str) -> RegisterSpec:
        width = arch.number.width
        return RegisterSpec(width, 0, (1 << width) - 1, meaning, signed=True)

    factor = (1 << MULTIPLIER_WIDTH) - 1
    table = RegisterSpec(bits_to_count(arch.leave_tables + 1), 0, arch.leave_tables,
                         "DataMove out: the table that bytes are looked up in at the end, 0 for none")
    return {Register.LEAVE_SHIFT: RegisterSpec(bits_to_count(MOST_LEAVE_SHIFT + 1), 0, MOST_LEAVE_SHIFT,
                                               "DataMove out: bits rounded off the product"),
            Register.ACTIVATION_ZERO: zero("MatMul: subtracted from each activation"),
            Register.ENTER_ZERO: zero("DataMove into the accumulators: subtracted first"),
            Register.ENTER_FACTOR: RegisterSpec(MULTIPLIER_WIDTH, 1, factor,
                                                "DataMove into the accumulators: multiplied by then"),
            Register.LEAVE_ZERO: zero("DataMove out: added last"),
            **({Register.LEAVE_TABLE: table} if arch.leave_tables else {})}


def illegal_register_value(arch: Arch, register: Register, value: int) -> bool:
    """Whether Configure must refuse the value. Where numbers have no points of their own, the two shifts are fixed."""
    if arch.scheme.fixed_shift is not None and register in (Register.ENTER_SHIFT, Register.LEAVE_SHIFT):
        return value != arch.number.point
    return value > register_table(arch)[register].maximum
