# SPDX-License-Identifier: Apache-2.0
"""Etherbone behind an Ethernet PHY: LiteEth in a slow clock domain of its own.

LiteEth's layers are 32 bits wide, so 31.25 MHz carry a gigabit. At the machine's clock their long paths would be late
(docs/decisions/boards.md); at ``ETHERNET_HZ`` none is, and the machine's clock has no part of them."""

from __future__ import annotations

from typing import Any

from liteeth.core import LiteEthUDPIPCore
from liteeth.frontend.etherbone import LiteEthEtherbone
from litex.gen import ClockDomain, ClockDomainsRenamer, ClockSignal, LiteXModule, ResetSignal

from weft.hw.contract.host_link import ETHERBONE_PORT

DOMAIN = "ethernet"
"""The clock domain of MAC, IP and UDP."""
ETHERNET_HZ, MARGIN = 37.5e6, 0.1
"""The domain's clock, and the share by which a PLL may miss it: a gigabit needs 31.25 MHz."""
LAYER_BITS = 32
MAC, IP = 0x10e2d5000000, "192.168.1.50"
"""The board's addresses, those of LiteX."""
BUFFER_WORDS = 256
"""The words of Etherbone's buffers; LiteX's 16 stall on bursts."""


class Ethernet(LiteXModule):
    """Etherbone on a PHY of LiteEth. ``bus``: its Wishbone master, in the domain ``sys``.

    The design has the domains ``ethernet``, and ``eth_rx`` and ``eth_tx`` of the PHY."""

    def __init__(self, phy: Any) -> None:
        layers = LiteEthUDPIPCore(phy, MAC, IP, ETHERNET_HZ, dw=LAYER_BITS, with_sys_datapath=True)
        self.layers = ClockDomainsRenamer({"sys": DOMAIN})(layers)
        # Within the layers "sys" is renamed: Etherbone's side of their crossing has the same clock by another name.
        self.cd_etherbone = ClockDomain("etherbone")
        self.etherbone = LiteEthEtherbone(layers.udp, ETHERBONE_PORT, buffer_depth=BUFFER_WORDS, cd="etherbone")
        self.bus = self.etherbone.wishbone.bus
        self.comb += [self.cd_etherbone.clk.eq(ClockSignal("sys")), self.cd_etherbone.rst.eq(ResetSignal("sys"))]
