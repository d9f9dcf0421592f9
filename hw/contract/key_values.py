# SPDX-License-Identifier: Apache-2.0
"""Values of architecture keys that have names, and the unit of DRAM windows."""

from __future__ import annotations

from weft.hw.contract.schemes import FixedPointEveryStep, FixedPointOnce

SEPARATE, SHARED = "separate", "shared"
"""Values of ``dram_ports``."""

ONCE, EVERY_STEP = FixedPointOnce.name, FixedPointEveryStep.name
"""Values of ``mac_rounding``, to describe machines with. What a machine's numbers do is asked of ``Arch.scheme``."""

ROW_TAPS, MOST_KERNEL_ROWS = 3, 3
"""Taps of a depthwise MatMul: neighbouring vectors of a row whose products meet in one sum, and the rows that they come
from."""

TAPS = (0, ROW_TAPS, ROW_TAPS * MOST_KERNEL_ROWS)
"""Values of ``depthwise_taps``."""

DRAM_OFFSET_BYTES = 1 << 16
"""A DRAM window starts at a multiple of this; its offset register counts blocks of so many bytes."""
