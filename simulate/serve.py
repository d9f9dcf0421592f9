# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that serves a machine to another process (served.py): request and answer, until it hangs up."""

import json
import os
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, First, RisingEdge, Timer

from weft.simulate.axil import AxiLite, AxiLiteError
from weft.simulate.sim_top import MEMORIES

RESET_CYCLES = 4
PERIOD_NANOSECONDS = 10
"""The period of the clock that the main loop makes."""
NOTHING = 0xFFFF_FFFF


async def _reset(dut: Any, job: dict[str, Any]) -> None:
    """Set the memories up and reset the machine."""
    for memory in MEMORIES:
        for name, value in job["memory"].items():
            getattr(dut, f"{memory}_{name}").value = value
    dut.rst.value = 1
    dut.seed.value = job["seed"]
    await ClockCycles(dut.clk, RESET_CYCLES)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def _run(dut: Any, cycles: int) -> bool:
    """Run some cycles, or until the interrupt; tell whether it is there."""
    if dut.interrupt.value == 0:
        await First(RisingEdge(dut.interrupt), Timer(cycles * PERIOD_NANOSECONDS, "ns"))
        await RisingEdge(dut.clk)
    return bool(dut.interrupt.value == 1)


async def _answer(dut: Any, bus: AxiLite, what: str, *values: int) -> Any:
    """Return the answer to a request."""
    try:
        if what == "run":
            return await _run(dut, *values)
        return await (bus.read(*values) if what == "read" else bus.write(*values))
    except AxiLiteError:
        return NOTHING


@cocotb.test()
async def serve(dut: Any) -> None:
    """Answer requests until the other process hangs up."""
    bus = AxiLite(dut)
    await _reset(dut, json.loads(Path(os.environ["WEFT_JOB"]).read_text()))
    with Client(os.environ["WEFT_BUS"], "AF_UNIX") as connection:
        while True:
            try:
                request = connection.recv()
            except (EOFError, OSError):
                return
            connection.send(await _answer(dut, bus, *request))
