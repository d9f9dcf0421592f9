# SPDX-License-Identifier: Apache-2.0
"""Write a board's Etherbone (``boards/shell/ethernet.py``) as Verilog, with a memory on its bus.

    python -m weft.tb.bench.ethernet_board FOLDER

Its pins are the streams of a PHY of 8 bits: ``rx_*`` goes to the board, ``tx_*`` comes from it. It runs in a process of
its own, as ``boards/shell/generate.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from liteeth.common import eth_phy_description
from litex.gen import LiteXModule
from litex.gen.fhdl.verilog import convert
from litex.soc.interconnect import stream, wishbone
from migen import ClockDomain

from weft.boards.shell.ethernet import DOMAIN, Ethernet

BOARD = "ethernet_board"
DOMAINS = ("sys", DOMAIN, "eth_rx", "eth_tx")
MEMORY_WORDS = 1024


class Phy(LiteXModule):
    """The streams of a PHY of 8 bits, without pins."""

    dw = 8

    def __init__(self) -> None:
        self.sink, self.source = (stream.Endpoint(eth_phy_description(self.dw)) for _ in range(2))


class Board(LiteXModule):
    """The board's end: PHY, Etherbone, and a memory of 32-bit words at address 0 of the bus."""

    def __init__(self) -> None:
        for name in DOMAINS:
            setattr(self, f"cd_{name}", ClockDomain(name))
        self.phy = Phy()
        self.ethernet = Ethernet(self.phy)
        self.memory = wishbone.SRAM(4 * MEMORY_WORDS)
        self.comb += self.ethernet.bus.connect(self.memory.bus)

    def pins(self) -> set[Any]:
        """Return the module's ports."""
        self.cd_sys.clk.name_override = "clk"
        found = {getattr(getattr(self, f"cd_{name}"), kind) for name in DOMAINS for kind in ("clk", "rst")}
        for prefix, endpoint in (("rx", self.phy.source), ("tx", self.phy.sink)):
            for field in ("valid", "ready", "data", "last"):
                signal = getattr(endpoint, field)
                signal.name_override = f"{prefix}_{field}"
                found.add(signal)
        return found


if __name__ == "__main__":
    board = Board()
    convert(board, board.pins(), name=BOARD).write(str(Path(sys.argv[1]) / f"{BOARD}.v"))
