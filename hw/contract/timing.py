"""Cycle counts that the blocks keep and that the estimator and tests read: the one place for them."""

from __future__ import annotations

from weft.hw.contract.arch import Arch

LOCAL_READ_LATENCY = 4
"""From a local read request taken to its response: arbitration register, block RAM, output register, bank register."""

ACCUMULATOR_READ_LATENCY = 5
"""From an accumulator read request taken to its response: arbitration register, block RAM, output register, the row
with older writes, and with the newest."""


PATIENCE = 16
"""Cycles in a row in which MatMul, which both memories serve first, keeps others waiting before it leaves a gap of one.
A power of two, more than any walk that goes round the banks comes to."""


def weight_latency(arch: Arch) -> int:
    """From a weight row's request taken to the cycle in which the last place of the array shifts for it: local memory,
    then the wave to the last row of the last column."""
    return LOCAL_READ_LATENCY + 2 * arch.array_size - 2


def array_latency(arch: Arch) -> int:
    """From an activation vector given to the systolic array to its result: skew, rows, deskew, the DSP's registers, and
    the bias."""
    return 2 * arch.array_size + arch.numbers.bias_cycles


# -- instructions ------------------------------------------------------------------------------------------------------
DECODE_LATENCY = 5
"""From an instruction accepted to what the decoder gives the interlock."""

ISSUE_LATENCY = 4
"""From an instruction given to the interlock to its unit's stream valid, when nothing conflicts."""

SIMD_ISSUE_LATENCY = 3
"""The same for the SIMD unit, whose queue has a memory of its own."""

FETCH_LATENCY = 2
"""From a queue's wish for its next operation, the cycle after one was taken, to the unit's stream valid."""

# -- pipelines ---------------------------------------------------------------------------------------------------------
LEAVE_LATENCY = 2
"""Accumulators rounded off."""

READ_STREAM_LATENCY = 2
"""From a memory's response to the row on the stream."""

READ_STREAM_SPARE = 4
"""Rows that a read stream holds beyond those under way in the memory."""

ALU_LATENCY = 4
LOOKUP_LATENCY = 6

SIMD_SLOTS = 32
"""Copies of each SIMD register on a machine with loops: one of the program's, the others of iterations in flight.

31 iterations are more than the pipeline is long, and 32 words fill one distributed RAM of the usual FPGAs.
"""

SIMD_IN_FLIGHT = 16
"""Micro-operations of the SIMD unit between issue and write, at most."""

# -- DRAM --------------------------------------------------------------------------------------------------------------
DRAM_REQUEST_LATENCY = 5
"""From an operation taken by a DRAM unit to its first address valid."""

BURSTS_BEFORE_DATA = 16
"""Bursts of a DRAM writer whose address may be out before their data is."""

WRITER_VECTORS_AHEAD = LOCAL_READ_LATENCY + 4
"""Vectors requested from local memory by a DRAM writer and not yet in its gearbox: enough for one a cycle."""

SIMULATED_DRAM_LATENCY = 20
"""Of the simulated DRAM where nothing else is said: from an address taken to the first beat, and from a burst's last
beat to its response."""

SIMULATED_DRAM_BURSTS = 16
"""Bursts under way in the simulated DRAM at most, each way (tb/lib/sv/axi_dram.sv)."""
