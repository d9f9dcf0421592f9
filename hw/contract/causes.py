# SPDX-License-Identifier: Apache-2.0
"""Causes of a machine's stop: the numbers that the status registers show, and their texts."""

from __future__ import annotations

import enum


class Cause(enum.IntEnum):
    """The cause of a machine's stop. If several apply to one instruction, the lowest number is reported."""

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
    REPEAT = 14
    SIGNAL = 15
    DRAM0_READ_RESPONSE = 16
    DRAM0_WRITE_RESPONSE = 17
    DRAM1_READ_RESPONSE = 18
    DRAM1_WRITE_RESPONSE = 19
    PROGRAM_READ_RESPONSE = 20
    COUNTER_OVERFLOW = 21
    OTHER_CORE = 22


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
    Cause.REPEAT: "a Repeat that reaches back further than repeat_depth, or to before the last reset",
    Cause.SIGNAL: "a counter, a core or an amount of a Signal that this machine does not have",
    Cause.DRAM0_READ_RESPONSE: "an error response to a DRAM0 read",
    Cause.DRAM0_WRITE_RESPONSE: "an error response to a DRAM0 write",
    Cause.DRAM1_READ_RESPONSE: "an error response to a DRAM1 read",
    Cause.DRAM1_WRITE_RESPONSE: "an error response to a DRAM1 write",
    Cause.PROGRAM_READ_RESPONSE: "an error response to a program read",
    Cause.COUNTER_OVERFLOW: "a post to a counter of this core that is full",
    Cause.OTHER_CORE: "an error of another core, of which this one may wait",
}

_MEMORY = "look at where the driver put the model in memory, and at what answers there"
WAYS_OUT: dict[Cause, str] = {
    **{cause: "compile the model for this machine's .tarch, or correct this instruction in a program of your own"
       for cause in Cause if Cause.NONE < cause < Cause.DRAM0_READ_RESPONSE},
    **{cause: _MEMORY for cause in Cause if Cause.DRAM0_READ_RESPONSE <= cause <= Cause.PROGRAM_READ_RESPONSE},
    Cause.COUNTER_OVERFLOW: "let this core wait for earlier posts before others post again",
    Cause.OTHER_CORE: "look at the cause that the other core reports",
}
"""The way out after a stop, by cause: an instruction can be corrected, an answer of memory or another core cannot."""
