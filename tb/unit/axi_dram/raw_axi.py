# SPDX-License-Identifier: Apache-2.0
"""A master that drives the channels of axi_dram_tb by hand, for what cocotbext-axi hides: cycles and broken rules."""

import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBurstType


def bus_bytes(dut) -> int:
    return len(dut.s_axi_wdata) // 8


async def start(dut, *, stall: int = 0, read_latency: int = 2, write_latency: int = 2, jitter: int = 0) -> None:
    """Configures the memory and leaves reset."""
    for name in ("ar", "r", "aw", "w", "b"):
        getattr(dut, f"stall_{name}").value = stall
    dut.read_latency.value = read_latency
    dut.write_latency.value = write_latency
    dut.jitter.value = jitter
    dut.seed.value = random.getrandbits(64)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


def offer(dut, channel: str, address: int, beats: int, burst: int = AxiBurstType.INCR, size: int | None = None) -> None:
    """Puts a burst on AR or AW."""
    values = {"addr": address, "len": beats - 1, "burst": burst, "valid": 1}
    values["size"] = bus_bytes(dut).bit_length() - 1 if size is None else size
    for name, value in values.items():
        getattr(dut, f"s_axi_{channel}{name}").value = value


async def handshake(dut, channel: str) -> int:
    """Waits for the edge at which `channel` is handed over; returns its cycle."""
    valid, ready = getattr(dut, f"s_axi_{channel}valid"), getattr(dut, f"s_axi_{channel}ready")
    while True:
        await RisingEdge(dut.clk)
        if valid.value == 1 and ready.value == 1:
            return int(dut.cycle.value)


async def write_stream(dut, addresses: list[int], beats: int) -> int:
    """Writes bursts back to back; returns the cycles from the first AW to the last B, both counted."""
    first: list[int] = []

    async def addresses_out() -> None:
        for address in addresses:
            offer(dut, "aw", address, beats)
            first.append(await handshake(dut, "aw"))
        dut.s_axi_awvalid.value = 0

    async def data_out() -> None:
        dut.s_axi_wvalid.value, dut.s_axi_wstrb.value = 1, (1 << bus_bytes(dut)) - 1
        for beat in range(len(addresses) * beats):
            dut.s_axi_wlast.value = beat % beats == beats - 1
            await handshake(dut, "w")
        dut.s_axi_wvalid.value = 0

    dut.s_axi_bready.value = 1
    cocotb.start_soon(addresses_out())
    cocotb.start_soon(data_out())
    for _ in addresses:
        last = await handshake(dut, "b")
    dut.s_axi_bready.value = 0
    return last - first[0] + 1


async def read_stream(dut, addresses: list[int], beats: int) -> int:
    """Reads bursts back to back; returns the cycles from the first AR to the last R, both counted."""
    first: list[int] = []

    async def addresses_out() -> None:
        for address in addresses:
            offer(dut, "ar", address, beats)
            first.append(await handshake(dut, "ar"))
        dut.s_axi_arvalid.value = 0

    dut.s_axi_rready.value = 1
    cocotb.start_soon(addresses_out())
    for beat in range(len(addresses) * beats):
        last = await handshake(dut, "r")
        assert int(dut.s_axi_rlast.value) == (beat % beats == beats - 1)
    dut.s_axi_rready.value = 0
    return last - first[0] + 1


async def first_beat(dut) -> int:
    """Reads one beat at 0; returns its latency: edges from AR to R."""
    return await read_stream(dut, [0], 1) - 1


async def write_burst(dut, address: int, data: list[bytes], strobe: int | None = None) -> int:
    """Writes one burst; returns its latency: edges from the last W to B."""
    strobe = (1 << bus_bytes(dut)) - 1 if strobe is None else strobe
    offer(dut, "aw", address, len(data))
    await handshake(dut, "aw")
    dut.s_axi_awvalid.value = 0
    dut.s_axi_bready.value = 1
    dut.s_axi_wvalid.value, dut.s_axi_wstrb.value = 1, strobe
    for number, beat in enumerate(data):
        dut.s_axi_wdata.value = int.from_bytes(beat, "little")
        dut.s_axi_wlast.value = number == len(data) - 1
        sent = await handshake(dut, "w")
    dut.s_axi_wvalid.value = 0
    answered = await handshake(dut, "b")
    dut.s_axi_bready.value = 0
    return answered - sent
