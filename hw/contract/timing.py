# SPDX-License-Identifier: Apache-2.0
"""Cycle counts and depths that blocks promise each other. Blocks, their tests and the estimator read them here."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.contract.packing import PAIR
from weft.hw.contract.schemes.fixed_point import ROUND_LATENCY

# -- memories ----------------------------------------------------------------------------------------------------------
LOCAL_READ_LATENCY = 4
"""Cycles from a local read request taken to its response.

They are the arbitration register, the block RAM, its output register, and the bank's register."""

ACCUMULATOR_READ_LATENCY = 5
"""Cycles from an accumulator read request taken to its response.

They are the arbitration register, the block RAM, its output register, the row with older writes, and with the
newest."""

ACCUMULATE_DATA_LATENCY = 3
"""Cycles from a write or a sum announced to the accumulators to the row that goes with it."""

INPUT_RESCALE_LATENCY = 1
"""From a unit's request to write scalars into the accumulators taken to the write offered to them."""

STARVATION_LIMIT = 16
"""Cycles in a row in which MatMul may keep other clients of a memory waiting.

Both memories serve MatMul first; after so many cycles it leaves a gap of one. The number is a power of two, and more
than any walk that goes round the banks comes to."""


# -- the array ---------------------------------------------------------------------------------------------------------
def column_groups(arch: Arch) -> int:
    """Return the array's columns, or its pairs of columns if these share multipliers.

    Each group acts a cycle behind the one before."""
    return arch.array_size // (PAIR if arch.packing else 1)


def weight_latency(arch: Arch) -> int:
    """Return the cycles from a weight row's request to the shift of the array's last place for it.

    They are the latency of local memory, then the wave to the last row of the last column."""
    return LOCAL_READ_LATENCY + arch.array_size + column_groups(arch) - 2


def upper_places(arch: Arch) -> int:
    """Return the places of the upper part of a column of weights, the bias row's among them.

    It counts on machines that load two rows of weights a cycle. A load of the whole column takes as many cycles. The
    lower part has as many places, or one less."""
    return arch.array_size // 2 + 1


ROWS_AHEAD = 32
"""Rows of either part of the column of weights that are read before their turn, at most.

It counts on machines that load two rows of weights a cycle. A model of 4 banks was asked about an array of 48 lanes and
a layer of 6 x 6 pixels. The array waits 3 % of the cycles with 8 rows, for banks that its own vectors use, and at most
0.5 % with 16. 32 rows take as much distributed RAM as 16 on Xilinx parts."""


def load_weight_cycles(arch: Arch, rows: int) -> int:
    """Return the cycles that a LoadWeight of ``rows`` takes, its row of zeros among them."""
    return upper_places(arch) if arch.weight_load_rows == 2 and rows == arch.array_size + 1 else rows


def array_latency(arch: Arch) -> int:
    """Return the cycles from an activation vector given to the systolic array to its result.

    They are skew, rows, deskew, the DSP's registers and the bias; if columns share multipliers, one more cycle for a
    register in which their sums lie apart."""
    return arch.array_size + column_groups(arch) + arch.scheme.bias_cycles + bool(arch.packing)


def product_latency(arch: Arch) -> int:
    """Return the cycles from MatMul's request of a vector to its sum announced to the accumulators."""
    return LOCAL_READ_LATENCY + array_latency(arch) - ACCUMULATE_DATA_LATENCY


def bias_interval(arch: Arch) -> int:
    """Return the cycles after a vector that uses a new bias, until another new bias may be used.

    A bias is new after weights were swapped or the input shift changed. One unit rescales column after column; it is 1
    if scalars need no rescaling."""
    return arch.scheme.bias_interval(arch.array_size)


# -- instructions ------------------------------------------------------------------------------------------------------
DECODE_LATENCY = 5
"""Cycles from an instruction accepted to the decoder's output, one for each of its stages."""

REPEAT_LATENCY = 4
"""Cycles from a Repeat taken to its first instruction offered to the decoder.

They are the place of the step, the memory, its output register, and the instruction. A word that is no Repeat takes
one of these cycles."""

ISSUE_LATENCY = 4
"""Cycles from an instruction given to the interlock to its unit's stream valid, if nothing conflicts."""

SIMD_ISSUE_LATENCY = 3
"""ISSUE_LATENCY of the SIMD unit, whose queue has a memory of its own."""

FETCH_LATENCY = 2
"""Cycles from a queue's wish for its next operation, the cycle after one was taken, to the unit's stream valid.

The SIMD unit's queue wishes in the cycle in which one is taken, and has the next one a cycle later."""

# -- pipelines ---------------------------------------------------------------------------------------------------------
ROUNDED_READ_LATENCY = ACCUMULATOR_READ_LATENCY + ROUND_LATENCY
"""Cycles from an accumulator read request taken to its row, rounded off."""

ACTIVATION_TABLE_LATENCY = 2
"""Cycles of looking up bytes in an activation table: the block RAM and its output register."""

SLOPE_LATENCY = 3
"""Cycles of multiplying what is below zero on its way out: the product, the DSP block's second register, rounding."""

MAXIMUM_LATENCY = 1
"""Cycles of limiting scalars on their way out."""


def output_latency(arch: Arch) -> int:
    """Return the cycles that functions on output take behind the requantizer."""
    return (ACTIVATION_TABLE_LATENCY * bool(arch.activation_tables) + SLOPE_LATENCY * arch.output_slope
            + MAXIMUM_LATENCY * arch.output_maximum)


def move_out_latency(arch: Arch) -> int:
    """Return the cycles from a move-out's accumulator read request to its row of scalars."""
    return ACCUMULATOR_READ_LATENCY + arch.scheme.requantize_latency + output_latency(arch)


READ_STREAM_LATENCY = 2
"""From a memory's response to the row on the stream."""

READ_STREAM_SPARE = 4
"""Rows that a read stream holds beyond those under way in the memory."""

ALU_LATENCY = 4
LOOKUP_LATENCY = 6


def execute_latency(arch: Arch) -> int:
    """Return the cycles from a SIMD operation's input to its result."""
    return LOOKUP_LATENCY if arch.lut_count else ALU_LATENCY


def register_latency(arch: Arch) -> int:
    """Return the cycles from a SIMD operation's issue to the issue of one that reads its result register."""
    return execute_latency(arch) + 1


SIMD_SLOTS = 32
"""Copies of each SIMD register on a machine with loops: one of the program's, the others of iterations in flight.

31 iterations are more than the pipeline is long, and 32 words fill one distributed RAM of the usual FPGAs.
"""

SIMD_IN_FLIGHT = 16
"""Micro-operations of the SIMD unit between issue and write, at most."""

# -- DRAM --------------------------------------------------------------------------------------------------------------
DRAM_REQUEST_LATENCY = 5
"""From an operation taken by a DRAM unit to its first address valid."""

SEGMENTS_WAITING = 2
"""Segments (contiguous runs of vectors) of a DRAM unit between its address arithmetic and the burst splitter."""

OUTSTANDING_BURSTS = 32
"""Bursts requested and not yet answered, at most, of one reader or writer."""

READER_OPERATIONS_AHEAD = 16
"""Operations of a DRAM reader that wait for their data while the addresses of later ones are requested."""

READER_BEATS_WAITING = 2
"""Beats of a DRAM reader between the bus and its gearbox."""

READER_VECTORS_WAITING = 2
"""Vectors of a DRAM reader between its gearbox and local memory."""

WRITER_OPERATIONS_AHEAD = 2
"""Operations of a DRAM writer whose DRAM addresses are made before the vectors of the one before are all requested."""

WRITER_BEATS_WAITING = 2
"""Beats of a DRAM writer between its gearbox and the bus."""

BURSTS_BEFORE_DATA = 16
"""Bursts of a DRAM writer whose address may be out before their data is."""

WRITER_VECTORS_AHEAD = LOCAL_READ_LATENCY + 4
"""Vectors requested from local memory by a DRAM writer and not yet in its gearbox: enough for one a cycle."""

# -- a memory port of several cores ------------------------------------------------------------------------------------
PORT_LATENCY = 1
"""Cycles from an address, or a beat to be written, taken by a port arbiter to the memory port.

Answers take none."""

PORT_ADDRESSES_WAITING = 2
"""Addresses, each way, between a port arbiter's choice and its memory port."""

PORT_BURSTS_AHEAD = 4
"""Bursts of each writer whose address a port arbiter holds before it has their data."""

PORT_BEATS_WAITING = 4
"""Beats to be written between a port arbiter's choice and its memory port: their address goes ahead of them."""


def program_burst(arch: Arch) -> int:
    """Return the beats of the longest burst that fetches a program; it stays within a page of 4 KiB."""
    return min(arch.axi_max_burst, 4096 // (arch.stream_width // 8))


def program_places(arch: Arch) -> int:
    """Return the beats of each core's program that a port arbiter has room for.

    They are two bursts: one comes while another is decoded."""
    return 2 * program_burst(arch)
