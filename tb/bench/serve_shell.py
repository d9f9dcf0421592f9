# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that carries bytes between a simulated shell's UART and another process (simulated_shell.py)."""

import os
from multiprocessing.connection import Client
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

RESET_CYCLES = 8
WORD = 8
"""The bytes that go at a time."""


async def _send(dut: Any, content: bytes) -> None:
    for first in range(0, len(content), WORD):
        piece = content[first:first + WORD]
        dut.send_bytes.value, dut.send_count.value = int.from_bytes(piece, "little"), len(piece)
        dut.send_turn.value = 1 - int(dut.send_turn.value)
        await RisingEdge(dut.send_done)


async def _take(dut: Any, size: int, cycles: int) -> bytes:
    """Return up to ``size`` bytes, fewer if no more come for so many cycles."""
    content = b""
    dut.wait_cycles.value = cycles
    while len(content) < size:
        count = min(WORD, size - len(content))
        dut.take_count.value = count
        dut.take_turn.value = 1 - int(dut.take_turn.value)
        await RisingEdge(dut.take_done)
        taken = int(dut.taken.value)
        content += int(dut.take_bytes.value).to_bytes(WORD, "little")[:taken]
        if taken < count:
            break
    return content


async def _wait(dut: Any, cycles: int) -> None:
    dut.wait_cycles.value = cycles
    dut.wait_turn.value = 1 - int(dut.wait_turn.value)
    await RisingEdge(dut.wait_done)


@cocotb.test()
async def serve(dut: Any) -> None:
    dut.rst.value = 1
    await ClockCycles(dut.clk, RESET_CYCLES)
    dut.rst.value = 0
    with Client(os.environ["WEFT_BUS"], "AF_UNIX") as connection:
        while True:
            try:
                what, *values = connection.recv()
            except (EOFError, OSError):
                return
            if what == "send":
                await _send(dut, *values)
            elif what == "watch":
                connection.send(int(dut.watched.value))
                dut.watch_turn.value = 1 - int(dut.watch_turn.value)
            elif what == "take":
                connection.send(await _take(dut, *values))
            else:
                await _wait(dut, *values)
