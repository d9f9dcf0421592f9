"""Cycle counts that the blocks keep and that the estimator and tests read: the one place for them."""

from __future__ import annotations

from weft.hw.arch import ONCE, Arch

LOCAL_READ_LATENCY = 4
"""From a local read request taken to its response: arbitration register, block RAM, output register, bank register."""

ACCUMULATOR_READ_LATENCY = 5
"""From an accumulator read request taken to its response: arbitration register, block RAM, output register, the row
with older writes, and with the newest."""


def weight_latency(arch: Arch) -> int:
    """From a weight row's request taken to the cycle in which the last place of the array shifts for it: local memory,
    then the wave to the last row of the last column."""
    return LOCAL_READ_LATENCY + 2 * arch.array_size - 2


def array_latency(arch: Arch) -> int:
    """From an activation vector given to the systolic array to its result: skew, rows, deskew, the DSP's registers, and
    with mac_rounding ``once`` the bias added below."""
    return 2 * arch.array_size + (2 if arch.mac_rounding == ONCE else 1)
