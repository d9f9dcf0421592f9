# SPDX-License-Identifier: Apache-2.0
"""The machine's ports, as its surroundings see them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from amaranth.hdl._ir import PortDirection

from weft.hw.bus.axi import Ports
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES

MACHINE = "weft_top"
"""The module of the machine."""
WORD_BITS = 32
"""The word of on-chip memory and of the host's bus, in bits."""


@dataclass(frozen=True)
class Window:
    """Bytes of on-chip memory from ``start`` of the machine's addresses on."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.start + self.size


def windows(arch: Arch, program_bytes: int) -> dict[str, Window]:
    """Return on-chip memories, each as large as the machine can use it.

    A window of DRAM starts where its register can point to."""
    sizes = {"dram0": arch.dram0_depth * arch.vector_bytes, "dram1": arch.dram1_depth * arch.vector_bytes,
             "program": program_bytes}
    found, start = {}, 0
    for name, size in sizes.items():
        found[name] = Window(start, size)
        start += -(-size // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES
    return found


@dataclass(frozen=True)
class Machine:
    """The ports of the generated Verilog by name, with their widths and directions, for the shell that joins them."""

    ports: Ports

    def masters(self) -> list[str]:
        """Return the prefixes of its AXI4 masters, in order of their names."""
        return sorted({name.rpartition("_")[0] for name in self.ports if name.startswith("m_axi_")})

    def bits(self, port: str) -> int:
        """Return the width of a port in bits."""
        return len(self.ports[port][0])

    def width(self, bus: str) -> int:
        """Return the data width of an AXI bus in bits."""
        return self.bits(f"{bus}_rdata")

    def is_input(self, port: str) -> bool:
        """Tell whether a port is an input."""
        return self.ports[port][1] is PortDirection.Input

    def unused(self, port: str) -> int:
        """Return the value of an input that nobody drives: 1 if it lets outputs drain, else 0."""
        return int(re.fullmatch(r"m_axis_sample\d*_tready", port) is not None)
