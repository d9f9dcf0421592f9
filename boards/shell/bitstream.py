# SPDX-License-Identifier: Apache-2.0
"""Build a board's bitstream by Python packages alone: shell, netlist, place and route, packing, report.

Everything happens in a folder beside the result, which replaces the last one only when it is whole."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.boards.board import Board, OnChip
from weft.boards.shell.delivery import READY, building
from weft.boards.shell.delivery import deliver as replace_folder
from weft.boards.shell.families import FAMILIES, MACHINE, SHELL, Family, Tell
from weft.boards.shell.machine import WORD_BITS
from weft.hw.contract.arch import Arch
from weft.hw.flow import synthesis
from weft.hw.flow.cells import count_cells
from weft.hw.flow.parts import block_rams
from weft.support.errors import WeftError, explain
from weft.support.packages import need_package

KEPT = ("shell.v", "weft.tarch")
"""The files of the working folder that are kept, beside the bitstream, its report, constraints and description."""
KINDS = {False: ("generate", "shell.json"), True: ("standalone", "soc.json")}
"""Standalone or not -> the module that writes the shell, and its description."""
PACKAGES = {"litex": "the shell", "litedram": "the memory controller"}


def build(board: Board, arch: Arch, folder: Path, *, clock_hz: float | None = None, seeds: Sequence[int] = (1, 2, 3, 4),
          tell: Tell = lambda stage: None, family: Family | None = None, standalone: bool = False) -> dict[str, Any]:
    """Build the bitstream in ``folder`` and return its report. ``family``: other tools than the usual ones.

    It has ``fmax_mhz``, ``mhz_asked``, counts, ``seed``, ``sha256`` and all else in ``report.json``. Equal inputs give
    equal bytes. The first of ``seeds`` that meets every clock is taken. ``standalone``: with a processor in place
    of the host link. Raise WeftError if none does, if the board has
    no shell, if a tool is missing, and if ``folder`` holds files that no build left; it is then unchanged."""
    board = at(board, clock_hz) if family else prepared(board, clock_hz)
    check_ports(board, arch)
    family = family or FAMILIES[board.family]
    need_packages(family)
    with building(folder) as work:
        found = _build(board, arch, work, seeds, tell, family, standalone)
        deliver(work, folder, board, found, family, standalone)
    return found


def _build(board: Board, arch: Arch, work: Path, seeds: Sequence[int], tell: Tell, family: Family,
           standalone: bool) -> dict[str, Any]:
    """Make the bitstream in ``work``; return its report."""
    began = time.monotonic()
    tell("the shell")
    (work / "weft.tarch").write_text(json.dumps(arch.to_dict(), indent=2) + "\n")
    generate(board, work, family.toolchain, standalone)
    tell("synthesis, some minutes")
    synthesis.synthesize_shell(work, MACHINE, SHELL, arch.number.width, board.family, arch.packing)
    seed, report = first_in_time(board, work, seeds, tell, family)
    tell("packing")
    family.pack(work, family.chips[board.chip])
    bits = (work / f"{SHELL}.{family.results[0]}").read_bytes()
    return {**summary(board, report, seed), "toolchain": family.toolchain or board.toolchains[0],
            **counts(work, board.family),
            "minutes": round((time.monotonic() - began) / 60, 1), "sha256": hashlib.sha256(bits).hexdigest(),
            "bytes": len(bits)}


def prepared(board: Board, clock_hz: float | None) -> Board:
    """Return the board with the clock that is asked for. Raise WeftError if no bitstream can be made for it."""
    if board.shell is None or board.family not in FAMILIES:
        raise WeftError(explain(
            f"board {board.key}", "no shell" if board.family in FAMILIES else "no open place and route for its chip",
            f"a board with a shell and a chip of {' or '.join(FAMILIES)}",
            "choose a board to which weft board list gives a bitstream"))
    return at(board, clock_hz)


def check_ports(board: Board, arch: Arch) -> None:
    """Raise WeftError if the board's on-chip memory is no memory for the machine.

    It must have the width of the machine's ports, and it has one window for each port of a single core."""
    if board.shell and isinstance(board.shell.memory, OnChip) and arch.cores > 1:
        raise WeftError(explain(f"cores on board {board.key}", arch.cores,
                                "1: its on-chip memory has a window for each port of a single core",
                                "set cores to 1, or take a board with DRAM"))
    wrong = [key for key in ("axi_data_width", "stream_width") if getattr(arch, key) != WORD_BITS]
    if board.shell and isinstance(board.shell.memory, OnChip) and wrong:
        raise WeftError(explain(f"{wrong[0]} on board {board.key}", getattr(arch, wrong[0]),
                                f"{WORD_BITS}, the width of its on-chip memory", f"set {wrong[0]} to {WORD_BITS}"))


def at(board: Board, clock_hz: float | None) -> Board:
    """Return the board with another clock of its shell or processors."""
    if clock_hz is None:
        return board
    return replace(board, shell=board.shell and replace(board.shell, clock_hz=clock_hz),
                   processor=board.processor and replace(board.processor, clock_hz=clock_hz))


def need_packages(family: Family | None = None) -> None:
    """Raise WeftError if a package of the extra ``bitstream`` is missing that every shell or this family needs."""
    for package, purpose in {**PACKAGES, **(family.packages if family else {})}.items():
        need_package(purpose, package, "bitstream")


def generate_command(board: Board, toolchain: str, standalone: bool = False) -> list[str]:
    """Return the command that writes the shell's files for a toolchain into the folder that it runs in."""
    return [sys.executable, "-m", f"weft.boards.shell.{KINDS[standalone][0]}", board.key, ".", "weft.tarch",
            str(board.clock_hz), toolchain]


def generate(board: Board, work: Path, toolchain: str = "", standalone: bool = False) -> None:
    """Write the shell's files, by a process of its own (``generate.py`` says why)."""
    log = work / "shell.log"
    command = generate_command(board, toolchain or board.toolchains[0], standalone)
    with log.open("w") as output:
        code = subprocess.run(command, cwd=work, stdout=output, stderr=output, check=False).returncode
    if code:
        raise WeftError(explain(f"shell of {board.key}", "\n".join(log.read_text().splitlines()[-3:]),
                                "a shell that LiteX can generate", f"read {log}"))


def first_in_time(board: Board, work: Path, seeds: Sequence[int], tell: Tell, family: Family) -> tuple[int, dict]:
    """Return seed and report of the first run that meets its clocks. Raise WeftError with the best if none does."""
    mhz = board.clock_hz / 1e6
    best: tuple[float, int] = 0.0, 0
    for seed in seeds:
        report = family.place(work, family.chips[board.chip], seed, mhz, partial(_tell_of, tell, seed))
        if not late(report):
            return seed, report
        best = max(best, (reached(report, mhz), seed))
    raise WeftError(explain(f"clock of {board.key}", f"{best[0]:.1f} MHz at best (seed {best[1]} of {len(seeds)})",
                            f"{mhz:g} MHz", "ask for less (--mhz) or try other seeds (--seeds)"))


def _tell_of(tell: Tell, seed: int, line: str) -> None:
    """Report a line of place and route."""
    tell(f"seed {seed}: {line}")


def late(report: dict) -> list[str]:
    """Return the clocks that are slower than their constraint."""
    return [name for name, clock in report["fmax"].items() if clock["achieved"] < clock["constraint"]]


def reached(report: dict, mhz: float) -> float:
    """Return what the machine's clock reached in MHz, from the report of place and route for ``mhz``.

    It carries LiteX's name, or another that the design has for it: then it is the one for which so much was asked. Of
    several, as behind a PLL of Gowin, the slowest one is taken."""
    named = [clock for name, clock in report["fmax"].items() if "sys_clk" in name]
    clocks = named or report["fmax"].values()
    return min(clocks, key=lambda clock: (round(abs(clock["constraint"] - mhz), 1), clock["achieved"]))["achieved"]


def summary(board: Board, report: dict, seed: int) -> dict[str, Any]:
    """Return a bitstream's clocks and used cells for its report, from nextpnr's ``report``."""
    return {"schema": 1, "board": board.key, "name": board.name, "chip": board.chip, "seed": seed,
            "mhz_asked": board.clock_hz / 1e6, "fmax_mhz": round(reached(report, board.clock_hz / 1e6), 2),
            "clocks": {name: {"fmax_mhz": round(clock["achieved"], 2), "mhz_asked": clock["constraint"]}
                       for name, clock in report["fmax"].items()},
            "used": {cell: [each["used"], each["available"]] for cell, each in report["utilization"].items()
                     if each["used"]}}


def counts(work: Path, family: str) -> dict[str, int]:
    """Return ``lut`` (of 4 inputs, on Xilinx of 6), ``ff``, ``dsp``, ``bram`` of shell and machine together."""
    stat = json.loads((work / f"{family}.stat").read_text())
    found = count_cells(stat["design"]["num_cells_by_type"], family)
    return {"lut": found["lut"], "ff": found["ff"], "dsp": found["dsp"], "bram": block_rams(found, family)}


def deliver(work: Path, folder: Path, board: Board, report: dict[str, Any], family: Family,
            standalone: bool = False) -> None:
    """Deliver the result as a whole: bitstream, SVF, report, and the shell's description.

    A Zynq has no description: its driver runs beside the machine."""
    ready = work / READY
    for suffix in family.results:
        (work / f"{SHELL}.{suffix}").rename(ready / f"{board.key}.{suffix}")
    for file in (*KEPT, *([KINDS[standalone][1]] if board.shell else []), *family.kept):
        (work / file).rename(ready / file)
    replace_folder(work, folder, report)
