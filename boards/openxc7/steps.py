# SPDX-License-Identifier: Apache-2.0
"""The steps of a build with openXC7, as commands: those that ``--dry-run`` shows are those that run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.boards.board import OPENXC7, Board
from weft.boards.openxc7.tools import BITS, FRAMES, NEXTPNR, Found
from weft.boards.shell import bitstream
from weft.boards.shell.families import SHELL, Family, Tell
from weft.hw.flow import nextpnr, synthesis
from weft.support.errors import WeftError, explain

NETLIST, LOG = "xc7.json", "pnr.log"
"""The files of yosys' netlist and of what nextpnr says."""
CLOCK = re.compile(r"Max frequency for clock +'([^']+)': ([\d.]+) MHz \(\w+ at ([\d.]+) MHz\)")
USED = re.compile(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of a build, run in the working folder. ``output``: the file that its standard output becomes."""

    what: str
    command: tuple[str, ...]
    output: str = ""

    def __str__(self) -> str:
        """Return the command as a shell takes it."""
        return shlex.join(self.command) + (f" > {self.output}" if self.output else "")


def steps(board: Board, found: Found, seed: int) -> list[Step]:
    """Return the steps of a build in the order in which they run, from the shell to the bitstream.

    ``found`` has the tools and files for the board's chip. ``seed`` is the one that nextpnr places and routes with."""
    return [Step("shell and constraints", tuple(bitstream.generate_command(board, OPENXC7))),
            Step("synthesis", tuple(synthesis.yosys_command("xc7"))),
            routing(found, seed, board.clock_hz / 1e6), *packing(found)]


def routing(found: Found, seed: int, mhz: float) -> Step:
    """Return the step that places and routes. ``mhz``: asked of the clocks that the constraints do not name."""
    return Step("place and route", (
        found.programs[NEXTPNR], "--chipdb", str(found.chipdb), "--xdc", f"{SHELL}.xdc", "--json", NETLIST,
        "--fasm", f"{SHELL}.fasm", "--freq", f"{mhz:g}", "--seed", str(seed), "--timing-allow-fail", "--log", LOG,
        "--quiet"))


def packing(found: Found) -> list[Step]:
    """Return the steps from the routed design to the bitstream."""
    return [Step("frames", (found.programs[FRAMES], "--part", found.part, "--db-root", str(found.database),
                            f"{SHELL}.fasm"), f"{SHELL}.frames"),
            Step("bitstream", (found.programs[BITS], "--part_file", str(found.part_file), "--part_name", found.part,
                               "--frm_file", f"{SHELL}.frames", "--output_file", f"{SHELL}.bit"))]


def family(board: Board, found: Found) -> Family:
    """Return the tools as those of a family of chips, for ``bitstream.build``."""
    return Family({board.chip: found}, {}, (f"{SHELL}.xdc",), ("bit",), place, pack, OPENXC7)


def place(work: Path, found: Found, seed: int, mhz: float, tell: Tell) -> dict[str, Any]:
    """Place and route; return clocks and what was used, in the form of nextpnr's report.

    Raise WeftError if nextpnr fails or names no clock."""
    step = routing(found, seed, mhz)
    nextpnr.run_logged(list(step.command), work / LOG, tell)
    return read_log(work / LOG)


def read_log(log: Path) -> dict[str, Any]:
    """Return the report that nextpnr's log holds: the last word on each clock, and the cells.

    nextpnr-xilinx has no report as a file. Raise WeftError if the log names no clock."""
    text = log.read_text(errors="replace")
    clocks = {name: {"achieved": float(reached), "constraint": float(asked)}
              for name, reached, asked in CLOCK.findall(text)}
    if not clocks:
        raise WeftError(explain(f"log {log}", "no clock", "a line Max frequency for clock", "read the log's end"))
    return {"fmax": clocks, "utilization": {cell: {"used": int(used), "available": int(there)}
                                            for cell, used, there in USED.findall(text)}}


def pack(work: Path, found: Found) -> None:
    """Write the bitstream. Raise WeftError if a tool fails, or leaves nothing."""
    for step in packing(found):
        run(step, work)
    if not (work / f"{SHELL}.bit").is_file() or not (work / f"{SHELL}.bit").stat().st_size:
        raise WeftError(explain(BITS, "no bitstream", f"a file {SHELL}.bit", f"look into {work}"))


def run(step: Step, work: Path) -> None:
    """Run a step. Raise WeftError if it fails."""
    try:
        with (work / step.output).open("wb") if step.output else Path(os.devnull).open("wb") as output:
            done = subprocess.run(step.command, cwd=work, stdout=output, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise WeftError(explain(step.command[0], error.strerror, "a program that runs", "install it again")) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise WeftError(explain(f"{step.what}: {step}", said or f"ended by {done.returncode}, without a word",
                                "an end without an error", f"look into {work}"))
