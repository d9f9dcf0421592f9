# SPDX-License-Identifier: Apache-2.0
"""The shell without a host: a RISC-V processor drives the machine, from a boot image in the board's flash.

    python -m weft.boards.shell.standalone BOARD FOLDER ARCH CLOCK_HZ [TOOLCHAIN]  # soc.json and generate.py's files
    python -m weft.boards.shell.standalone BOARD FOLDER ARCH simulated             # soc.json and a simulator's shell.v

::

    VexRiscv (caches of 4 KiB) -- Wishbone bus -+- flash, from where it runs    LiteDRAM controller -- PHY -- chip
                                                +- 8 KiB for its stack, UART         |     |     |
                                                +- DRAM (main_ram)              AXI4 masters of the machine
                                                +- registers of LiteDRAM, PHY and the machine

It runs in a process of its own, as ``generate.py``. Nothing keeps the data cache coherent with the machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pythondata_cpu_vexriscv
from litespi import LiteSPI, modules
from litespi.opcodes import SpiNorFlashOpCodes
from litespi.phy.generic import LiteSPIPHY
from litespi.phy.model import LiteSPIPHYModel
from litex.build.sim import SimPlatform
from litex.soc.cores import uart
from litex.soc.integration.export import get_csr_json
from litex.soc.integration.soc import SoCRegion

from weft.boards import BOARDS
from weft.boards.board import Board, Flash
from weft.boards.shell.bitstream import at
from weft.boards.shell.families import SHELL
from weft.boards.shell.generate import dram, generate, machine_of
from weft.boards.shell.machine import Machine
from weft.boards.shell.simulated import IO, Clocks, SimulatedShell
from weft.boards.shell.soc import REGISTERS_BASE, ShellSoC
from weft.hw.contract.arch import Arch

FLASH_BASE = 0x2000_0000
"""The place of the flash on the bus."""
VARIANT, PROCESSOR, STACK_BYTES = "standard", "VexRiscv.v", 8 << 10
"""The processor as LiteX names it, its file, and the memory on the chip that it has."""
BAUD = 115_200
"""The rate of answers, as terminals have it."""
DIVISOR = 1
"""The flash's clock is the machine's by 2 * (DIVISOR + 1)."""
MEMORIES = {"dram": "main_ram", "stack": "sram", "flash": "flash"}
"""The processor's memories, and LiteX's names of them."""


def flash_of(board: Board) -> Flash:
    """Return the flash that a board boots from, which it must have."""
    assert board.shell is not None and board.shell.flash is not None
    return board.shell.flash


class Standalone(ShellSoC):
    """A shell with a processor in place of a host."""

    def core_options(self, board: Board) -> Mapping[str, Any]:
        """Return the processor, which begins with the boot image in the flash."""
        return {"cpu_type": "vexriscv", "cpu_variant": VARIANT, "integrated_sram_size": STACK_BYTES,
                "cpu_reset_address": FLASH_BASE + flash_of(board).image_offset}

    def add_links(self, board: Board) -> None:
        """Add the UART, for answers, and the flash."""
        self.uart_phy = self.make_uart()
        self.uart = uart.UART(self.uart_phy)
        self.irq.add("uart")  # LiteX wants one interrupt at least; the firmware asks for none
        module = getattr(modules, flash_of(board).module)(SpiNorFlashOpCodes.READ_1_1_1)
        self.flash_phy = self.make_flash(module)
        self.flash = LiteSPI(self.flash_phy, mmap_endianness="little", with_master=False)
        self.comb += self.flash.mmap.offset.eq(FLASH_BASE)
        self.bus.add_slave("flash", self.flash.bus, SoCRegion(origin=FLASH_BASE, size=module.total_size, mode="rx"))

    def make_uart(self) -> Any:
        """Return the PHY of the UART on the board's pins."""
        return uart.RS232PHY(self.platform.request("serial"), int(self.sys_clk_freq), BAUD)

    def make_flash(self, module: Any) -> Any:
        """Return the PHY of the flash on the board's pins."""
        return LiteSPIPHY(self.platform.request("spiflash"), module, device=self.platform.device,
                          default_divisor=DIVISOR)

    def add_witness(self) -> None:
        """Add no witness, the check sums of what links read and write: there is no link."""

    def ring_pins(self, machine: Machine) -> dict[str, Any]:
        """Return no pins of a sample ring: samples are dropped, for nobody reads them."""
        return {}


class SimulatedStandalone(Standalone, SimulatedShell):
    """A standalone shell for a simulator. LiteSPI's model of the flash reads its content from a file as it starts."""

    def make_uart(self) -> Any:
        """Return a UART whose bytes come and go through ports of their own."""
        return uart.RS232PHYModel(self.platform.request("serial"))

    def make_flash(self, module: Any) -> Any:
        """Return LiteSPI's model of PHY and flash."""
        return LiteSPIPHYModel(module, init=[0])


def description(board: Board, arch: Arch, soc: Any, registers: dict[str, Any]) -> dict[str, Any]:
    """Return what a boot image has to know: places, and the start of the DRAM."""
    found = dram(soc, registers)
    return {
        "board": board.key, "arch": arch.to_dict(), "clock_hz": int(soc.sys_clk_freq), "baud": BAUD,
        "machine_base": REGISTERS_BASE, "dram": found["dram"],
        "image": {"base": FLASH_BASE + flash_of(board).image_offset, "flash_offset": flash_of(board).image_offset},
        "memories": {name: {"base": each["base"], "bytes": each["size"]}
                     for name, each in ((name, registers["memories"][key]) for name, key in MEMORIES.items())},
        "registers": {name: each["addr"] for name, each in registers["csr_registers"].items()},
    }


def simulated(board: Board, arch: Arch, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Write ``shell.v`` with top module ``shell``, without machine and processor; return as ``generate``."""
    platform = SimPlatform("SIM", IO)
    soc = SimulatedStandalone(board, arch, machine_of(board, arch, folder), platform, Clocks(platform))
    soc.finalize()
    platform.get_verilog(soc, name=SHELL).write(str(folder / f"{SHELL}.v"))
    return soc, json.loads(get_csr_json(soc.csr_regions, soc.constants, soc.mem_regions))


def for_board(board: Board, arch: Arch, folder: Path, toolchain: str) -> tuple[Any, dict[str, Any]]:
    """Write what ``generate.py`` writes, with the processor in ``shell.v``."""
    made = generate(board, arch, folder, toolchain, Standalone)
    shell = folder / f"{SHELL}.v"
    shell.write_text(shell.read_text() + (Path(pythondata_cpu_vexriscv.data_location) / PROCESSOR).read_text())
    return made


def main(name: str, folder: str, arch: str, how: str, toolchain: str = "") -> None:
    """Write the shell's files and ``soc.json``, as the command line asks."""
    board, machine, place = BOARDS[name], Arch.load(arch), Path(folder)
    if how == "simulated":
        soc, registers = simulated(board, machine, place)
    else:
        soc, registers = for_board(at(board, float(how)), machine, place, toolchain or board.toolchains[0])
    (place / "soc.json").write_text(json.dumps(description(board, machine, soc, registers), indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
