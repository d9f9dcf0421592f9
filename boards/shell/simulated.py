# SPDX-License-Identifier: Apache-2.0
"""A board's shell for a simulator: the same bus, bridge and LiteDRAM controller, its chip as LiteDRAM's model.

    python -m weft.boards.shell.simulated BOARD FOLDER ARCH

In ``FOLDER`` itself: LiteX leaves the contents of memories where it runs.
Bytes of the UART come and go through ports of their own: a simulated serial line takes some hundred cycles a byte.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from litedram.phy.model import SDRAMPHYModel
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.gen import ClockDomain, LiteXModule
from litex.soc.cores.uart import RS232PHYModel
from litex.soc.integration.export import get_csr_json

from weft.boards import BOARDS
from weft.boards.board import Board, Memory
from weft.boards.shell.controller import settings_of
from weft.boards.shell.generate import SHELL, description, machine_of
from weft.boards.shell.soc import ShellSoC, chip_of
from weft.hw.contract.arch import Arch

IO = [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1)),
      ("serial", 0, *(Subsignal(f"{side}_{name}", Pins(8 if name == "data" else 1))
                      for side in ("source", "sink") for name in ("valid", "ready", "data")))]
ROW_BITS = 12
"""The most row bits of the simulated chip; less capacity is less memory of the simulator."""


class Clocks(LiteXModule):
    """The clock domain of the simulated shell."""

    def __init__(self, platform: Any) -> None:
        self.cd_sys = ClockDomain()
        self.comb += [self.cd_sys.clk.eq(platform.request("sys_clk")), self.cd_sys.rst.eq(platform.request("sys_rst"))]


class SimulatedShell(ShellSoC):
    """A board's shell for a simulator."""

    def make_memory(self, memory: Memory) -> tuple[Any, Any]:
        """Return LiteDRAM's model of PHY and chip, and the chip's timing.

        The PHY has the parameters of the board's own."""
        clock = int(self.sys_clk_freq)
        chip = chip_of(memory, clock)
        chip.geom_settings.rowbits = min(chip.geom_settings.rowbits, ROW_BITS)
        settings = settings_of(self.board)
        settings.bitslips = settings.delays = 0  # the model has nothing to level
        return SDRAMPHYModel(module=chip, settings=settings, clk_freq=clock), chip

    def add_links(self, board: Board) -> None:
        """Add the UART bridge, whose bytes come and go through ports of their own."""
        self.add_uart(RS232PHYModel(self.platform.request("serial")))


def generate(board: Board, arch: Arch, folder: Path) -> None:
    """Write ``shell.v`` with top module ``shell`` around ``weft_top``, which is not in it, and ``shell.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    platform = SimPlatform("SIM", IO)
    soc = SimulatedShell(board, arch, machine_of(board, arch, folder), platform, Clocks(platform))
    soc.finalize()
    platform.get_verilog(soc, name=SHELL).write(str(folder / f"{SHELL}.v"))
    registers = json.loads(get_csr_json(soc.csr_regions, soc.constants, soc.mem_regions))
    (folder / "shell.json").write_text(json.dumps(description(board, arch, soc, registers), indent=1) + "\n")


if __name__ == "__main__":
    generate(BOARDS[sys.argv[1]], Arch.load(sys.argv[3]), Path(sys.argv[2]))
