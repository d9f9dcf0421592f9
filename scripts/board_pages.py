# SPDX-License-Identifier: Apache-2.0
"""Make docs/boards/NAME.md, a page for each board, from boards/ and from its bitstream's report.

``scripts/docs.py`` writes them; ``take_over`` brings build/boards/*/report.json into the committed data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from weft.boards import BOARDS, Board, routing
from weft.boards.board import OPENXC7, Memory, OnChip
from weft.boards.shell.families import bitstream
from weft.boards.shell.machine import windows
from weft.boards.shell.soc import named
from weft.boards.vivado.zynq import KINDS
from weft.hw.contract.arch import Arch

ROOT = Path(__file__).resolve().parents[1]
FOLDER, DATA, BUILT = ROOT / "docs" / "boards", ROOT / "docs" / "data" / "boards.json", ROOT / "build" / "boards"
GROUPS = {"clk12": "oscillator, 12 MHz", "clk25": "oscillator, 25 MHz", "clk27": "oscillator, 27 MHz",
          "clk100": "oscillator, 100 MHz",
          "serial": "UART", "sdram_clock": "SDRAM, clock", "sdram": "SDRAM", "ddram": "DDR3",
          "eth_clocks": "Ethernet, clocks", "eth": "Ethernet"}
"""The parts of a platform that a shell uses: LiteX's name -> the reader's."""

OPEN = """\
    weft board build {key}                  # build/boards/{key}/{bitstream}
    weft board flash {key}{variants}
    weft board memory serial:auto
    weft run MODEL.tmodel --on serial:auto --input x.npz
"""
SHELL = """\
    weft board build {key}                  # build/boards/{key}/vivado/build.tcl and all that it needs
    (cd build/boards/{key}/vivado && vivado -mode batch -source build.tcl)
    weft board flash {key}{variants}
    weft board memory serial:auto
    weft run MODEL.tmodel --on serial:auto --input x.npz
"""
ZYNQ = """\
    weft board build {key}                  # build/boards/{key}/vivado/build.tcl and all that it needs
    (cd build/boards/{key}/vivado && vivado -mode batch -source build.tcl)

On the board, as root, with {key}.bit and {key}.hwh:

    python3 -c 'from pynq import Overlay; Overlay("{key}.bit")'
    insmod u-dma-buf.ko udmabuf0=67108864
    weft run MODEL.tmodel --on "mmio:{key}?registers={registers:#x}" --input x.npz

The last command needs the large wheel. With `weft-runtime` alone Python opens the machine (`docs/driver.md`).
"""
OPENXC7_SHELL = """
Without Vivado, with openXC7 installed, and CHIPDB and PRJXRAY_DB_DIR set to its databases:

    weft board build {key} --toolchain openxc7 --dry-run
    weft board build {key} --toolchain openxc7
    weft board flash {key}
"""
OPENXC7_ZYNQ = """
Without Vivado, with openXC7 installed, and CHIPDB and PRJXRAY_DB_DIR set to its databases:

    weft board build {key} --toolchain openxc7 --dry-run
    weft board build {key} --toolchain openxc7

On the board, as root, with {key}.bit; there is no .hwh, so the clock is set by hand:

    python3 -c 'from pynq import Bitstream, Clocks; Bitstream("{key}.bit").download(); Clocks.fclk0_mhz = {mhz:g}'
"""
BY_OPENXC7 = ("Of openXC7 nothing was run but LiteX and yosys: nextpnr-xilinx, fasm2frames and xc7frames2bit were "
              "stand-ins, so neither its clock nor its bits were seen.")
PURPOSE = "This page has the facts of this board's build, the commands up to a first run, and what was tested."
SILICON = "Nothing of it ran on silicon."
BY_OPEN = "Exercised: the bitstream, made by open tools, every clock met; the shell's inputs are all driven; "
NOT_MADE = "No bitstream of it was made yet. Exercised: the shell's inputs are all driven; "
START = "the driver's start of the memory against a model of the PHY. "
ON_CHIP = "a whole shell with such memory (`tang_nano_20k`) under Verilator, driven by the driver. "
BY_VIVADO = ("Exercised: every connection is between pins that are there, addresses do not overlap, yosys reads the "
             "Verilog. Vivado was never run on it. " + SILICON)


@cache
def reports() -> dict[str, dict[str, Any]]:
    """Return key -> report of the boards whose bitstream was made."""
    return json.loads(DATA.read_text())


def take_over() -> int:
    """Replace committed reports by those in build/boards/, board by board; return how many there were."""
    made = {path.parent.name: json.loads(path.read_text()) for path in sorted(BUILT.glob("*/report.json"))}
    taken = {key: found for key, found in made.items() if "sha256" in found}
    new = {**reports(), **taken}
    DATA.write_text(json.dumps(dict(sorted(new.items())), indent=1) + "\n")
    reports.cache_clear()
    return len(taken)


def pages() -> dict[Path, str]:
    """Return path -> text of all pages of boards."""
    return {FOLDER / f"{key}.md": page(board) for key, board in BOARDS.items()}


def page(board: Board) -> str:
    """Return the page of a board."""
    arch, lines = Arch.load(board.arch), [f"# {board.name}", "", PURPOSE, ""]
    facts = {"machine": f"`{board.arch}`: {arch.array_size} lanes", "chip": board.chip, **surroundings(board),
             "place and route": "; ".join(f"`{name}` {routing(name)}" for name in (board.arch, *board.others)),
             "plug in": board.plug, **measured(board)}
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items()), ""]
    registers = KINDS[board.processor.kind].registers if board.processor else 0
    commands = ZYNQ if board.processor else OPEN if board.built == "bitstream" else SHELL
    lines += [commands.format(key=board.key, registers=registers, bitstream=bitstream(board, Path()).name,
                              variants=variants(board))]
    if OPENXC7 in board.toolchains:
        lines += [(OPENXC7_ZYNQ if board.processor else OPENXC7_SHELL).lstrip("\n").format(
            key=board.key, mhz=board.clock_hz / 1e6)]
    lines += [exercised(board)]
    if board.shell:
        lines += ["", "| signals | pins |", "|---|---|", *(f"| {name} | {of} |" for name, of in pins(board))]
    return "\n".join(lines).rstrip() + "\n"


def variants(board: Board) -> str:
    """Return the text behind the command that loads a bitstream."""
    others = " or ".join(f"--variant {name}" for name in board.flash_variants)
    return f"                  # a revision with another cable: {others}" if others else ""


def exercised(board: Board) -> str:
    """Return in words how a board was tried."""
    if board.family == "xc7":
        return BY_VIVADO + (f" {BY_OPENXC7}" if OPENXC7 in board.toolchains else "")
    made = BY_OPEN if board.key in reports() else NOT_MADE
    return made + (START if board.shell and isinstance(board.shell.memory, Memory) else ON_CHIP) + SILICON


def surroundings(board: Board) -> dict[str, str]:
    """Return descriptions of what is around the machine on a board, by subject."""
    if board.shell is None:
        assert board.processor is not None
        return {"memory": f"{board.processor.memory_bytes >> 20} MiB of the processors, through their HP ports",
                "clock asked": f"{board.processor.clock_hz / 1e6:g} MHz, from the processors", "pins": "none"}
    links = f"UART at {board.shell.baud / 1e6:g} Mbaud" + (", Ethernet" if board.shell.ethernet else "")
    links += f" (beside `{'`, `'.join(board.uart_alone)}` the UART alone)" if board.uart_alone else ""
    return {"memory": memory(board), "clock asked": f"{board.shell.clock_hz / 1e6:g} MHz", "links": links}


def memory(board: Board) -> str:
    """Return a board's memory in words."""
    assert board.shell is not None
    found = board.shell.memory
    if not isinstance(found, OnChip):
        return f"{found.kind}, {found.module}"
    places = windows(Arch.load(board.arch), found.program_bytes)
    return "on the chip: " + ", ".join(f"{place.size >> 10} KiB {name}" for name, place in places.items())


def measured(board: Board) -> dict[str, str]:
    """Return measured properties of a board's bitstream, by subject."""
    found = reports().get(board.key)
    if found is None:
        return {}
    return {"clock reached": f"{found['fmax_mhz']} MHz (seed {found['seed']})",
            "used": f"{found['lut']} LUT4, {found['ff']} flip-flops, {found['dsp']} multipliers, "
                    f"{found['bram']} block RAMs",
            "bitstream": f"{found['bytes']} bytes, SHA-256 `{found['sha256'][:16]}`, {found['minutes']:g} minutes"}


def pins(board: Board) -> Iterator[tuple[str, str]]:
    """Yield name and pins of what the shell takes of the board, as the platform library has them."""
    assert board.shell is not None
    platform = named(board.shell.platform)(toolchain=board.toolchains[0], **board.shell.platform_options)
    resources = {resource[0]: resource[2:] for resource in reversed(platform.constraint_manager.available)
                 if resource[1] == 0}
    for group, meaning in GROUPS.items():
        if group in resources and (board.shell.ethernet or not group.startswith("eth")):
            for part in resources[group]:
                if hasattr(part, "constraints"):  # a signal within the group
                    for found in part.constraints:
                        if hasattr(found, "identifiers"):
                            yield f"{meaning}, {part.name}", " ".join(found.identifiers)
                elif hasattr(part, "identifiers"):
                    yield meaning, " ".join(part.identifiers)


def summary() -> list[tuple[object, ...]]:
    """Return the rows of docs/boards.md: the boards whose bitstream was made."""
    return [(f"[{key}](boards/{key}.md)", Arch.load(BOARDS[key].arch).array_size, found["lut"], found["dsp"],
             found["bram"], f"{found['mhz_asked']:g}", f"{found['fmax_mhz']:.1f}", found["seed"], found["bytes"],
             f"{found['minutes']:g}") for key, found in reports().items()]


HEAD = ("board", "lanes", "LUT4", "multipliers", "block RAMs", "MHz asked", "MHz reached", "seed", "bytes", "minutes")
