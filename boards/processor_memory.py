# SPDX-License-Identifier: Apache-2.0
"""The DRAM of a Zynq's processors behind the ports of its logic, by parameters: what is published, and what is assumed.

Both ports end in one controller, which is the processors' too. Its efficiency is published (Zynq-7000 technical
reference manual, UG585, "DDR Efficiency": 87 % for sequential reads and writes of four ports, 79 % for random ones).
Latencies and what processors leave in the worst case are assumed, for they depend on what runs there."""

from __future__ import annotations

import math
from typing import NamedTuple

from weft.hw.contract.dram import IdealDram, Spread


class _Case(NamedTuple):
    """``efficiency``: the share of the chips' peak that the logic gets; ``latency``: until an answer, in seconds."""

    efficiency: float
    latency: float


BEST, TYPICAL, WORST = _Case(0.87, 150e-9), _Case(0.79, 250e-9), _Case(0.40, 600e-9)
BURSTS = 8
"""Reads, and writes, of a port that are under way at most."""


def behind_ports(data_bits: int, transfers_hz: float, clock_hz: float) -> Spread:
    """Return the memory in cycles of ``clock_hz``: chips of ``data_bits`` together, with so many transfers a second."""
    peak = data_bits / 8 * transfers_hz / clock_hz
    return Spread(*(IdealDram(cycles := math.ceil(case.latency * clock_hz), cycles, BURSTS, peak * case.efficiency)
                    for case in (BEST, TYPICAL, WORST)))
