# SPDX-License-Identifier: Apache-2.0
"""The registers that Configure writes: their numbers, and the row that describes one.

``register_table.py`` says which of them a machine has, and how wide they are."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Register(enum.IntEnum):
    """Configure registers. 0x00..0x0B are those of the original machine, those above are additions.

    0x13 was TAP_ORIGIN while the oldest tap came first in the weights. It stays free, so that a program of then is
    refused instead of computing something else."""

    DRAM0_OFFSET = 0x00
    DRAM0_CACHE = 0x01
    DRAM1_OFFSET = 0x04
    DRAM1_CACHE = 0x05
    TIMEOUT = 0x08
    TRACEPOINT = 0x09
    PROGRAM_COUNTER = 0x0A
    SAMPLE_INTERVAL = 0x0B
    TAP_ORIGIN = 0x0C
    OUTPUT_MAXIMUM = 0x0D
    OUTPUT_SLOPE = 0x0E
    TAP_ROWS = 0x0F
    MAT_MUL_ROWS = 0x10
    MAT_MUL_LOCAL_PITCH = 0x11
    MAT_MUL_ACCUMULATOR_PITCH = 0x12
    MOVE_ROWS = 0x14
    MOVE_LOCAL_PITCH = 0x15
    MOVE_FAR_PITCH = 0x16
    TAP_DROPPED = 0x17
    INPUT_SHIFT = 0x18
    OUTPUT_SHIFT = 0x19
    ACTIVATION_ZERO_POINT = 0x1A
    INPUT_ZERO_POINT = 0x1B
    INPUT_MULTIPLIER = 0x1C
    OUTPUT_ZERO_POINT = 0x1D
    ACTIVATION_TABLE = 0x1E
    TAP_PITCH = 0x1F


MODIFIABLE = 0b0010
"""The bit of AxCACHE by which bursts may be merged with others."""


@dataclass(frozen=True)
class RegisterSpec:
    """The description of a register: width in bits, value after reset, largest stored value, meaning.

    The stored value of a ``signed`` register is a two's complement of ``width`` bits."""

    width: int
    reset: int
    maximum: int
    meaning: str
    signed: bool = False

    def value(self, stored: int) -> int:
        """Return the number that a stored value means: negative values of a signed register are decoded."""
        return stored - (1 << self.width) if self.signed and stored >> self.width - 1 else stored

    @classmethod
    def unsigned(cls, width: int, reset: int, meaning: str) -> RegisterSpec:
        """Return the row of a register that may hold every value of its width."""
        return cls(width, reset, (1 << width) - 1, meaning)
