# SPDX-License-Identifier: Apache-2.0
"""The control and status registers behind the AXI4-Lite slave (docs/machine/registers.md, "Control registers").

This table is the one register map: drivers, test bench, C header and ``hw/bus/csr_slave.py`` read it. Offsets are in
bytes, and registers have 32 bits."""

from __future__ import annotations

import enum
import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

from weft.hw.contract.arch import FORMER_NAMES, KEYS, Arch
from weft.hw.contract.keys import Compatibility
from weft.hw.contract.schemes import FIXED_POINT_SCHEMES

IDENTITY = 0x5745_4654
"""ASCII "WEFT"."""
VERSION = 0x0001_0001
ADDRESS_WIDTH = 12
"""Bits of the byte address of ``s_axil`` of one core: a page of 4 KiB."""
SYSTEM_PAGE = 16
"""The page of a system's own registers, behind those of as many cores as there can be."""
SYSTEM_ADDRESS_WIDTH = ADDRESS_WIDTH + SYSTEM_PAGE.bit_length()
"""Bits of the byte address of ``s_axil`` of a system of several cores: page k is core k's."""


class Access(enum.Enum):
    """The way in which a host may use a register.

    READ_ONLY registers are read; READ_WRITE ones keep what is written. COMMAND: writing 1 to a bit acts, reading gives
    0. CLEAR: writing 1 to a bit clears it."""

    READ_ONLY = "read only"
    READ_WRITE = "read/write"
    COMMAND = "command"
    CLEAR = "write 1 to clear"


@dataclass(frozen=True)
class ControlRegister:
    """One row of the register map: ``offset`` in bytes, access, and the meaning for the documentation."""

    offset: int
    access: Access
    meaning: str


class Command(enum.IntEnum):
    """Bits of the register CONTROL, which a host writes."""

    START = 0
    SOFT_RESET = 1


class Status(enum.IntEnum):
    """Bits of STATUS; bits DONE..TRACEPOINT are also those of INTERRUPT_ENABLE and INTERRUPT_STATUS."""

    DONE = 0
    ERROR = 1
    TIMEOUT = 2
    TRACEPOINT = 3
    RUNNING = 4
    IDLE = 5


INTERRUPT_COUNT = 4

CONTROL_REGISTERS: dict[str, ControlRegister] = {
    "IDENTITY": ControlRegister(0x000, Access.READ_ONLY, "0x57454654, ASCII WEFT"),
    "VERSION": ControlRegister(0x004, Access.READ_ONLY, "major in the high half, minor in the low half"),
    "CONTROL": ControlRegister(0x008, Access.COMMAND,
                               "bit 0 start: fetch and run PROGRAM_BYTES from PROGRAM_ADDRESS; bit 1 soft reset"),
    "STATUS": ControlRegister(0x00C, Access.READ_ONLY,
                              "bit 0 done, 1 error, 2 timeout, 3 tracepoint, 4 running, 5 idle (drained, and no reset "
                              "under way)"),
    "ERROR_CAUSE": ControlRegister(0x010, Access.READ_ONLY, "Cause of the error, 0 for none"),
    "ERROR_PROGRAM_COUNTER": ControlRegister(0x014, Access.READ_ONLY, "number of the faulty instruction"),
    "PROGRAM_COUNTER": ControlRegister(0x018, Access.READ_ONLY, "number of the next instruction"),
    "INTERRUPT_ENABLE": ControlRegister(0x01C, Access.READ_WRITE, "bits as STATUS 3:0"),
    "INTERRUPT_STATUS": ControlRegister(0x020, Access.CLEAR, "bits as STATUS 3:0, kept until cleared"),
    "CYCLES_LOW": ControlRegister(0x024, Access.READ_ONLY,
                                  "cycles from the first instruction accepted to the last write response"),
    "CYCLES_HIGH": ControlRegister(0x028, Access.READ_ONLY, "high half of the cycle counter"),
    "INSTRUCTIONS_LOW": ControlRegister(0x02C, Access.READ_ONLY, "instructions accepted since reset"),
    "INSTRUCTIONS_HIGH": ControlRegister(0x030, Access.READ_ONLY, "high half of the instruction counter"),
    "PROGRAM_ADDRESS_LOW": ControlRegister(0x034, Access.READ_WRITE,
                                           "byte address of the program, a multiple of stream_width / 8"),
    "PROGRAM_ADDRESS_HIGH": ControlRegister(0x038, Access.READ_WRITE, "high half of the program's address"),
    "PROGRAM_BYTES": ControlRegister(0x03C, Access.READ_WRITE, "length of the program in bytes"),
    "SCRATCH": ControlRegister(0x040, Access.READ_WRITE, "whatever the host likes; the machine does not look at it"),
    "ARRAY_SIZE": ControlRegister(0x080, Access.READ_ONLY, "array_size"),
    "DATA_TYPE": ControlRegister(0x084, Access.READ_ONLY,
                                 "width 7:0, point 15:8, accumulator width 23:16, number scheme 31:24 ("
                                 + ", ".join(f"{each.code}: {name}" for name, each in FIXED_POINT_SCHEMES.items())
                                 + ")"),
    "LOCAL_DEPTH": ControlRegister(0x088, Access.READ_ONLY, "vectors"),
    "ACCUMULATOR_DEPTH": ControlRegister(0x08C, Access.READ_ONLY, "vectors"),
    "DRAM0_DEPTH_M1": ControlRegister(0x090, Access.READ_ONLY, "vectors - 1"),
    "DRAM1_DEPTH_M1": ControlRegister(0x094, Access.READ_ONLY, "vectors - 1"),
    "SIMD": ControlRegister(0x098, Access.READ_ONLY, "registers 7:0, lookup tables 15:8, loop depth 23:16"),
    "STRIDES": ControlRegister(0x09C, Access.READ_ONLY, "stride0_depth 7:0, stride1_depth 15:8"),
    "ARCH_HASH": ControlRegister(0x0A0, Access.READ_ONLY, "of all keys of the machine that programs depend on"),
    "BOARD": ControlRegister(0x0A4, Access.READ_ONLY, "CRC-32 of the name of the bitstream's board, 0 for none"),
}

SYSTEM_REGISTERS: dict[str, ControlRegister] = {
    "CORES": ControlRegister(0x000, Access.READ_ONLY, "how many cores there are; page k has the registers of core k"),
    "MEMORY_PORTS": ControlRegister(0x004, Access.READ_ONLY, "memory ports that the cores share"),
    "GROUP_START": ControlRegister(0x008, Access.COMMAND, "bit k: core k starts, all of them in the same cycle"),
    "GROUP_RESET": ControlRegister(0x00C, Access.COMMAND, "bit k: soft reset of core k"),
    "GROUP_DONE": ControlRegister(0x010, Access.READ_ONLY, "bit k: STATUS of core k says done"),
    "GROUP_ERROR": ControlRegister(0x014, Access.READ_ONLY,
                                   "bit k: core k stopped with an error; its own page says which and where"),
    "GROUP_IDLE": ControlRegister(0x018, Access.READ_ONLY, "bit k: core k is idle (drained)"),
}
"""Registers of a system of several cores, in page ``SYSTEM_PAGE``; offsets within that page."""


def identity(arch: Arch) -> dict[str, Any]:
    """Return the architecture keys with values by which machines are told apart, for a hash.

    Keys have their first name, and keys of later file formats are left out at their default. So a machine that is older
    than a key or a name keeps its identity."""
    return {KEYS[name].former or name: value for name, value in arch.to_dict().items()
            if KEYS[name].since == 1 or value != KEYS[name].default}


def arch_hash(arch: Arch) -> int:
    """Return the value of ARCH_HASH [32 bits], equal for machines on which every program means the same."""
    seen = {name: value for name, value in identity(arch).items()
            if KEYS[FORMER_NAMES.get(name, name)].compatibility is not Compatibility.SAME}
    return int.from_bytes(hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).digest()[:4], "big")


def board_code(board: str) -> int:
    """Return the value of the register BOARD for a board's name; 0 for the empty name, without a board."""
    return zlib.crc32(board.encode())


def stored_widths(arch: Arch) -> dict[str, int]:
    """Return the bits that each READ_WRITE register keeps; bits above are ignored and read 0."""
    return {"INTERRUPT_ENABLE": INTERRUPT_COUNT, "PROGRAM_ADDRESS_LOW": min(arch.axi_address_width, 32),
            "PROGRAM_ADDRESS_HIGH": max(arch.axi_address_width - 32, 0), "PROGRAM_BYTES": 32,
            "SCRATCH": 32}


def parameter_values(arch: Arch) -> dict[str, int]:
    """Return the values of the registers that describe the machine to a host: name -> value."""
    number = arch.number
    return {
        "IDENTITY": IDENTITY,
        "VERSION": VERSION,
        "ARRAY_SIZE": arch.array_size,
        "DATA_TYPE": number.width | number.point << 8 | arch.accumulator_bits << 16
                     | arch.scheme.code << 24,
        "LOCAL_DEPTH": arch.local_depth,
        "ACCUMULATOR_DEPTH": arch.accumulator_depth,
        "DRAM0_DEPTH_M1": arch.dram0_depth - 1,
        "DRAM1_DEPTH_M1": arch.dram1_depth - 1,
        "SIMD": arch.simd_registers_depth | arch.lut_count << 8 | arch.simd_loop_depth << 16,
        "STRIDES": arch.stride0_depth | arch.stride1_depth << 8,
        "ARCH_HASH": arch_hash(arch),
    }
