"""The machine as what surrounds it sees it: its ports."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl._ir import PortDirection

from weft.hw.bus.axi import Ports

MACHINE = "weft_top"
"""Module of the machine."""


@dataclass(frozen=True)
class Machine:
    """``ports``: as ``with_ports`` names them."""

    ports: Ports

    def masters(self) -> list[str]:
        """Prefixes of its AXI4 masters, in order of their names."""
        return sorted({name.rpartition("_")[0] for name in self.ports if name.startswith("m_axi_")})

    def bits(self, port: str) -> int:
        return len(self.ports[port][0])

    def width(self, bus: str) -> int:
        """Bits of data of an AXI bus."""
        return self.bits(f"{bus}_rdata")

    def is_input(self, port: str) -> bool:
        return self.ports[port][1] is PortDirection.Input

    def unused(self, port: str) -> int:
        """What an input gets that nobody drives: what nobody takes must not fill up."""
        return int(port == "m_axis_sample_tready")
