# SPDX-License-Identifier: Apache-2.0
"""Masters that break a rule of AXI, for test_axi_dram.py; $RULE chooses one of BREAKS."""

import os

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBurstType
from raw_axi import bus_bytes, handshake, offer, start

PAGE = 4096


@cocotb.test()
async def broken_rule(dut):
    """Breaks the rule $RULE. The simulation must end by itself, with the rule in its last words."""
    await start(dut, stall=255)  # hardly ever ready
    await BREAKS[os.environ["RULE"]](dut)
    await ClockCycles(dut.clk, 2000)


async def _kept_waiting(dut, channel: str) -> None:
    """Offers on `channel` until an edge at which the memory is not ready."""
    if channel == "w":
        dut.s_axi_wvalid.value = 1
    else:
        offer(dut, channel, 0, 1)
    await RisingEdge(dut.clk)
    while True:
        await RisingEdge(dut.clk)
        if getattr(dut, f"s_axi_{channel}ready").value == 0:
            return


async def _withdraw(dut, channel: str) -> None:
    await _kept_waiting(dut, channel)
    getattr(dut, f"s_axi_{channel}valid").value = 0


async def _change(dut, channel: str, field: str) -> None:
    await _kept_waiting(dut, channel)
    signal = getattr(dut, f"s_axi_{channel}{field}")
    signal.value = int(signal.value) ^ 1


async def _last(dut, beats: int, last_at: int) -> None:
    offer(dut, "aw", 0, beats)
    await handshake(dut, "aw")
    dut.s_axi_awvalid.value = 0
    dut.s_axi_wvalid.value = 1
    for beat in range(beats):
        dut.s_axi_wlast.value = beat == last_at
        await handshake(dut, "w")


async def _unaligned_strobe(dut) -> None:
    offer(dut, "aw", 1, 1)
    dut.s_axi_wvalid.value, dut.s_axi_wlast.value, dut.s_axi_wstrb.value = 1, 1, 1


async def _offer(dut, channel: str, *args) -> None:
    offer(dut, channel, *args)


def _breaks() -> dict:
    both = {
        "crosses 4 KiB": lambda dut, c: _offer(dut, c, PAGE - bus_bytes(dut), 2),
        "outside": lambda dut, c: _offer(dut, c, int(os.environ["DRAM_BYTES"]), 1),
        "burst type": lambda dut, c: _offer(dut, c, 0, 1, AxiBurstType.FIXED),
        "size": lambda dut, c: _offer(dut, c, 0, 1, AxiBurstType.INCR, 0),
        "withdraw": _withdraw,
        "change addr": lambda dut, c: _change(dut, c, "addr"),
        "change len": lambda dut, c: _change(dut, c, "len"),
        "change cache": lambda dut, c: _change(dut, c, "cache"),
    }
    table = {
        f"{channel} {name}": (lambda dut, function=function, channel=channel: function(dut, channel))
        for name, function in both.items()
        for channel in ("ar", "aw")
    }
    return table | {
        "w withdraw": lambda dut: _withdraw(dut, "w"),
        "w change data": lambda dut: _change(dut, "w", "data"),
        "w change strb": lambda dut: _change(dut, "w", "strb"),
        "w change last": lambda dut: _change(dut, "w", "last"),
        "w last early": lambda dut: _last(dut, 4, 2),
        "w last missing": lambda dut: _last(dut, 4, 4),
        "w strobe below address": _unaligned_strobe,
    }


BREAKS = _breaks()
