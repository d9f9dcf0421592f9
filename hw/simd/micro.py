# SPDX-License-Identifier: Apache-2.0
"""Micro-operations of the SIMD pipeline: one instruction of one iteration, with its addresses worked out."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.timing import SIMD_SLOTS
from weft.hw.parts.operations import shift_width


class Source(enum.Enum, shape=2):
    """The place an argument comes from."""

    INPUT = 0
    REGISTER = 1
    ZERO = 2
    ONE = 3


def slot_count(arch: Arch) -> int:
    """Return the number of slots. Slot 0 belongs to the program, the others to iterations of a loop."""
    return SIMD_SLOTS if arch.simd_loop_depth else 2


def register_width(arch: Arch) -> int:
    """Return the bits of a register's number; 0 is the input as a source, and nothing as a destination."""
    return max(bits_to_count(arch.simd_registers_depth + 1), 1)


def micro_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a micro-operation.

    ``left`` and ``right``: registers, 0 if their source is another. ``done``: the last part of an operation. One
    without read, write and destination has no effect but to carry ``done``."""
    register, slot, address = register_width(arch), bits_to_count(slot_count(arch)), arch.accumulator_address_width
    return data.StructLayout({
        "read": 1, "write": 1, "accumulate": 1, "done": 1,
        "read_address": unsigned(address), "write_address": unsigned(address),
        "opcode": unsigned(5), "left": unsigned(register), "right": unsigned(register),
        "destination": unsigned(register), "left_source": Source, "right_source": Source,
        "left_slot": unsigned(slot), "right_slot": unsigned(slot), "slot": unsigned(slot),
        "input_shift": unsigned(shift_width(arch)), "output_shift": unsigned(shift_width(arch)),
    })
