# SPDX-License-Identifier: Apache-2.0
"""The machines that proofs are about: `tiny`, smaller still where a width or depth does not matter."""

from __future__ import annotations

from weft.hw.contract.arch import Arch

TINY = Arch.load("tiny")
SMALL = TINY.replace(data_type="FP4BP2", local_depth=7, accumulator_depth=6, dram0_depth=8, dram1_depth=5,
                     stride0_depth=2, stride1_depth=2, axi_data_width=32, axi_max_burst=4, axi_address_width=17,
                     stream_width=32, local_banks=2, simd_loop_depth=2)
"""A machine of two lanes of 4 bits, with depths that are no powers of two and bursts of at most four beats."""
BYTES = SMALL.replace(data_type="INT8")
"""An INT8 machine of two lanes, whose LoadScale is as long as local memory."""
