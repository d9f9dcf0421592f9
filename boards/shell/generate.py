# SPDX-License-Identifier: Apache-2.0
"""Write a board's shell: Verilog, constraints, and ``shell.json``, which tells the host what is where.

    python -m weft.boards.shell.generate BOARD FOLDER ARCH CLOCK_HZ [TOOLCHAIN]

It runs in a process of its own: LiteX keeps state in modules, logs to standard error and names signals by the call
stack."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from litedram.init import get_sdram_phy_init_sequence
from litex.soc.integration.export import get_csr_json

from weft.boards import BOARDS
from weft.boards.board import OPENXC7, VIVADO, Board, Memory, OnChip
from weft.boards.openxc7.constraints import Constraints
from weft.boards.shell.bitstream import at
from weft.boards.shell.families import MACHINE, SHELL
from weft.boards.shell.machine import MACHINE as TOP
from weft.boards.shell.machine import Machine, windows
from weft.boards.shell.soc import MEMORY_BASE, REGISTERS_BASE, SAMPLES_BASE, WITNESS_BASE, ShellSoC, named
from weft.hw.contract.arch import Arch
from weft.hw.flow.verilog import verilog_text
from weft.hw.system import with_ports

CHECK = ("set slack [get_property SLACK [get_timing_paths]]; "
         'if {{$slack < 0}} {{error "a clock is missed by $slack ns: weft board build with --mhz LESS"}}')
"""The check before Vivado writes a bitstream; braces are doubled for LiteX."""

CONTROL = "DFII_CONTROL"
DFI_BITS = {"DFII_CONTROL_SEL": 1, "DFII_CONTROL_CKE": 2, "DFII_CONTROL_ODT": 4, "DFII_CONTROL_RESET_N": 8,
            "DFII_COMMAND_CS": 1, "DFII_COMMAND_WE": 2, "DFII_COMMAND_CAS": 4, "DFII_COMMAND_RAS": 8,
            "DFII_COMMAND_WRDATA": 16, "DFII_COMMAND_RDDATA": 32}
"""The bits of the controller's command and control registers, by LiteDRAM's names."""


def command_bits(text: str) -> int:
    """Return the bits of a text such as ``DFII_COMMAND_RAS|DFII_COMMAND_CS``."""
    return sum(DFI_BITS[name] for name in text.split("|"))


def machine_of(board: Board, arch: Arch, folder: Path) -> Machine:
    """Write the machine as RTLIL, which keeps what the flow looks for in it; return its ports."""
    module, ports = with_ports(arch, board=board.key)
    (folder / MACHINE).write_text(rtlil.convert(module, name=TOP, ports=ports, emit_src=False))
    return Machine(ports)


def description(board: Board, arch: Arch, soc: Any, registers: dict[str, Any]) -> dict[str, Any]:
    """Return the shell's description for the host's driver: clock, addresses, memory, registers and architecture."""
    assert board.shell is not None
    found = dram(soc, registers) if isinstance(board.shell.memory, Memory) else on_chip(board.shell.memory, arch)
    return {
        "board": board.key, "clock_hz": int(soc.sys_clk_freq), "machine_base": REGISTERS_BASE,
        "witness": WITNESS_BASE, "samples": SAMPLES_BASE if arch.sampler else None,
        "baud": board.shell.baud, **found,
        "registers": {name: {"address": each["addr"], "words": each["size"]}
                      for name, each in registers["csr_registers"].items()},
        "arch": arch.to_dict(),
    }


def on_chip(memory: OnChip, arch: Arch) -> dict[str, Any]:
    """Return the description of on-chip memory."""
    found = windows(arch, memory.program_bytes)
    return {"memory": {"base": MEMORY_BASE, "bytes": max(each.end for each in found.values())},
            "windows": {name: {"base": MEMORY_BASE + each.start, "bytes": each.size} for name, each in found.items()}}


def dram(soc: Any, registers: dict[str, Any]) -> dict[str, Any]:
    """Return the description of DRAM: place, start sequence and registers."""
    settings = soc.sdram.controller.settings
    sequence, _ = get_sdram_phy_init_sequence(settings.phy, settings.timing)
    memory = registers["memories"]["main_ram"]
    return {
        "memory": {"base": memory["base"], "bytes": memory["size"]},
        "dram": {"kind": settings.phy.memtype, "phases": settings.phy.nphases, "data_bits": settings.phy.databits,
                 "read_phase": phase(settings.phy.rdphase), "write_phase": phase(settings.phy.wrphase),
                 "bitslips": settings.phy.bitslips or 0, "delays": settings.phy.delays or 0,
                 "start": [{"what": what, "address": address, "bank": bank, "control": command.startswith(CONTROL),
                            "command": command_bits(command), "wait": wait}
                           for what, address, bank, command, wait in sequence]},
    }


def phase(value: Any) -> int | None:
    """Return a phase of the PHY; if it is a register, its value after reset."""
    return None if value is None else int(getattr(getattr(value, "reset", value), "value", value))


def generate(board: Board, arch: Arch, folder: Path, toolchain: str, kind: Callable[..., Any]
             ) -> tuple[Any, dict[str, Any]]:
    """Write the files of a shell of a ``kind`` into ``folder``; return it and LiteX's description of its registers."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = machine_of(board, arch, folder)
    assert board.shell is not None
    platform = named(board.shell.platform)(toolchain=toolchain, **board.shell.platform_options)
    if toolchain == VIVADO:
        (folder / f"{TOP}.v").write_text(verilog_text(arch, board=board.key))
        platform.toolchain.pre_synthesis_commands.add(f"read_verilog {TOP}.v")
        platform.toolchain.bitstream_commands.insert(0, CHECK)
        platform.toolchain.additional_commands = [f"file copy -force {{build_name}}.bit ../{board.key}.bit"]
    clocks = named(board.shell.clocks)(platform, int(board.shell.clock_hz), **board.shell.clock_options)
    if toolchain == OPENXC7:
        platform.toolchain = Constraints()
    soc = kind(board, arch, machine, platform, clocks)
    soc.build(build_dir=str(folder), build_name=SHELL, run=False)  # LiteX's Builder asks for a C library as well
    return soc, json.loads(get_csr_json(soc.csr_regions, soc.constants, soc.mem_regions))


def write_shell(board: Board, arch: Arch, folder: Path, toolchain: str) -> None:
    """Write the files of a board's shell into ``folder``, with the description for the host."""
    if board.processor is not None:
        generate_zynq(board, arch, folder)
        return
    soc, registers = generate(board, arch, folder, toolchain, ShellSoC)
    (folder / "shell.json").write_text(json.dumps(description(board, arch, soc, registers), indent=1) + "\n")


def generate_zynq(board: Board, arch: Arch, folder: Path) -> None:
    """Write the shell of a Zynq's processors, for openXC7."""
    from weft.boards.openxc7 import zynq

    folder.mkdir(parents=True, exist_ok=True)
    machine = machine_of(board, arch, folder)
    zynq.check_ports(board, arch, machine)
    platform = zynq.platform_of(board)
    platform.toolchain = Constraints()
    platform.build(zynq.ZynqShell(board, machine, platform), build_dir=str(folder), build_name=SHELL, run=False)


def main(name: str, folder: str, arch: str, clock_hz: str, toolchain: str = "") -> None:
    """Write the shell's files, as the command line asks."""
    board, place = at(BOARDS[name], float(clock_hz)), Path(folder)
    write_shell(board, Arch.load(arch), place, toolchain or board.toolchains[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
