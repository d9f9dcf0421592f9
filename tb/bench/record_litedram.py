# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that lets ``litedram_sim`` record for so many cycles."""

import os
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge


@cocotb.test()
async def record(dut: Any) -> None:
    dut.rst.value, dut.seed.value = 1, int(os.environ["WEFT_SEED"])
    dut.cycles.value = int(os.environ["WEFT_CYCLES"])
    await ClockCycles(dut.clk, 8)
    dut.rst.value = 0
    await RisingEdge(dut.done)
