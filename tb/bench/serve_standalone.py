# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that lets a shell without a host run until its last line, or for so many cycles."""

import os
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, First, RisingEdge


@cocotb.test()
async def serve(dut: Any) -> None:
    limit = ClockCycles(dut.clk, int(os.environ["WEFT_CYCLES"]))
    assert await First(RisingEdge(dut.ended), limit) is not limit, "no last line"
