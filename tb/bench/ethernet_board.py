# SPDX-License-Identifier: Apache-2.0
"""Write LiteEth with Etherbone as Verilog, as LiteX's ``add_etherbone`` adds it, with a memory on its bus.

    python -m weft.tb.bench.ethernet_board FOLDER

Its pins are the streams of a PHY of 8 bits: ``rx_*`` goes to the board, ``tx_*`` comes from it. It runs in a process of
its own, as ``boards/shell/generate.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from liteeth.common import eth_phy_description
from liteeth.core import LiteEthUDPIPCore
from liteeth.frontend.etherbone import LiteEthEtherbone
from litex.gen import LiteXModule
from litex.gen.fhdl.verilog import convert
from litex.soc.interconnect import stream, wishbone
from migen import ClockDomain, ClockDomainsRenamer

from weft.boards.shell.soc import ETHERBONE_DEPTH
from weft.tb.bench.ethernet_frames import BOARD_IP, BOARD_MAC, PORT

BOARD = "ethernet_board"
DOMAINS = ("sys", "eth_rx", "eth_tx")
MEMORY_WORDS = 1024
LINK_HZ = 125_000_000


class Phy(LiteXModule):
    """The streams of a PHY of 8 bits, without pins."""

    dw = 8

    def __init__(self) -> None:
        self.sink, self.source = (stream.Endpoint(eth_phy_description(self.dw)) for _ in range(2))


class Board(LiteXModule):
    """The board's end: PHY, UDP, Etherbone, and a memory of 32-bit words at address 0 of the bus."""

    def __init__(self) -> None:
        for name in DOMAINS:
            setattr(self, f"cd_{name}", ClockDomain(name))
        self.phy = Phy()
        core = LiteEthUDPIPCore(self.phy, int.from_bytes(BOARD_MAC, "big"), ".".join(map(str, BOARD_IP)), LINK_HZ)
        self.core = ClockDomainsRenamer({"sys": "eth_rx"})(core)
        self.cd_etherbone = ClockDomain("etherbone")
        self.etherbone = LiteEthEtherbone(self.core.udp, PORT, buffer_depth=ETHERBONE_DEPTH, cd="etherbone")
        self.memory = wishbone.SRAM(4 * MEMORY_WORDS)
        self.comb += [
            self.cd_etherbone.clk.eq(self.cd_sys.clk), self.cd_etherbone.rst.eq(self.cd_sys.rst),
            self.etherbone.wishbone.bus.connect(self.memory.bus),
        ]

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
