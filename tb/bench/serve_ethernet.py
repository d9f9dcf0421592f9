# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that puts the driver's Etherbone on LiteEth's RTL, frame by frame (ethernet_board.py)."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.queue import Queue
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, RisingEdge, SimTimeoutError, with_timeout

from weft.boards.shell.ethernet import DOMAIN
from weft.runtime.driver.etherbone import Etherbone
from weft.tb.bench.ethernet_board import DOMAINS, MEMORY_WORDS
from weft.tb.bench.ethernet_frames import arp_reply, asks_for_host, body_of, datagram, payload_of

PERIOD_PS = {DOMAIN: 29_600, "eth_rx": 8_000, "eth_tx": 8_000}
"""The clocks beside the main loop's ``sys`` of 100 MHz: the link's 125 MHz, and 10 % less than that of the layers."""
GAP_CYCLES = 12
PATIENCE_US = 100


class Wire:
    """The host's UDP socket for a driver in a thread of its own; it answers ARP."""

    def __init__(self, dut: Any) -> None:
        self._dut, self.asked = dut, 0
        self._waiting: Queue[bytes] = Queue()
        self._came: Queue[bytes] = Queue()
        for run in (self._to_board(), self._from_board()):
            cocotb.start_soon(run)

    @resume
    async def send(self, content: bytes) -> int:
        """Send a datagram."""
        await self._waiting.put(datagram(content))
        return len(content)

    @resume
    async def recv(self, size: int) -> bytes:
        """Return the next datagram. Raise TimeoutError if none comes in simulated time."""
        try:
            return (await with_timeout(self._came.get(), PATIENCE_US, "us"))[:size]
        except SimTimeoutError:
            raise TimeoutError from None

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing: ``recv`` has its own time."""

    def close(self) -> None:
        """Do nothing: the simulation ends with its test."""

    async def _to_board(self) -> None:
        """Give the board a byte a cycle, as a PHY does, which cannot wait."""
        dut = self._dut
        while True:
            sent = await self._waiting.get()
            for at, byte in enumerate(sent):
                dut.rx_valid.value, dut.rx_data.value, dut.rx_last.value = 1, byte, at == len(sent) - 1
                await RisingEdge(dut.eth_rx_clk)
            dut.rx_valid.value = 0
            await ClockCycles(dut.eth_rx_clk, GAP_CYCLES)

    async def _from_board(self) -> None:
        """Take frames from the board, which must not leave a hole in one."""
        dut, taken = self._dut, bytearray()
        while True:
            await RisingEdge(dut.eth_tx_clk)
            assert int(dut.tx_valid.value) or not taken, "a frame with a hole"
            if not int(dut.tx_valid.value):
                continue
            taken.append(int(dut.tx_data.value))
            if int(dut.tx_last.value):
                body = body_of(bytes(taken))
                taken.clear()
                if asks_for_host(body):
                    self.asked += 1
                    await self._waiting.put(arp_reply())
                else:
                    await self._came.put(payload_of(body))


async def begun(dut: Any) -> Wire:
    """Start the clocks, reset, and return the wire."""
    dut.rx_valid.value, dut.tx_ready.value = 0, 1
    for name in DOMAINS:
        getattr(dut, f"{name}_rst").value = 1
    for name, period in PERIOD_PS.items():
        Clock(getattr(dut, f"{name}_clk"), period, "ps").start()
    await ClockCycles(dut.clk, 8)
    for name in DOMAINS:
        getattr(dut, f"{name}_rst").value = 0
    await ClockCycles(dut.clk, 8)
    return Wire(dut)


def words_go_there_and_back(link: Etherbone) -> None:
    """Write and read one word up to a whole packet, then write and read in one exchange."""
    words = np.random.default_rng(7).integers(0, 1 << 32, MEMORY_WORDS, np.uint32)
    for at, count in ((0, 1), (1, 2), (3, 5), (8, 8), (16, 255), (300, 64)):
        link.write(4 * at, words[at:at + count])
        assert link.read(4 * at, count).tolist() == words[at:at + count].tolist(), (at, count)
    found, again = link.exchange([(4 * 600, words[600:640])], [(4 * 600, 40), (4 * 16, 255)])
    assert found.tolist() == words[600:640].tolist() and again.tolist() == words[16:271].tolist()


@cocotb.test()
async def words(dut: Any) -> None:
    wire = await begun(dut)
    await bridge(words_go_there_and_back)(Etherbone("wire", wire, sleep=lambda seconds: None))
    assert wire.asked == 1
