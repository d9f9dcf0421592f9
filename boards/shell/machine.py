"""The machine as what surrounds it sees it: its ports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from amaranth.hdl._ir import PortDirection

from weft.hw.bus.axi import Ports
from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch

MACHINE = "weft_top"
"""Module of the machine."""
WORD_BITS = 32
"""Of on-chip memory: of the host's bus, too."""


@dataclass(frozen=True)
class Window:
    """Bytes of on-chip memory from ``start`` of the machine's addresses on."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


def windows(arch: Arch, program_bytes: int) -> dict[str, Window]:
    """On-chip memories, each as large as the machine can use it; a window of DRAM starts where its register can."""
    sizes = {"dram0": arch.dram0_depth * arch.vector_bytes, "dram1": arch.dram1_depth * arch.vector_bytes,
             "program": program_bytes}
    found, start = {}, 0
    for name, size in sizes.items():
        found[name] = Window(start, size)
        start += -(-size // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES
    return found


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
        return int(re.fullmatch(r"m_axis_sample\d*_tready", port) is not None)
