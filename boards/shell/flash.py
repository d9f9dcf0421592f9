"""A bitstream into a board, by openFPGALoader."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from weft.boards.board import Board
from weft.boards.shell.families import bitstream
from weft.hw.contract.errors import WeftError, explain
from weft.hw.contract.packages import no_package

LOADER, PACKAGED = "openFPGALoader", "openfpgaloader-cli"
"""The program, and its name in the Python package, which needs libusb of the system."""
TIMEOUT_SECONDS = 300


def flash(board: Board, folder: Path, *, permanent: bool = False) -> str:
    """Loads ``folder``'s bitstream: what the loader said. ``permanent``: into the flash chip, not only until the board
    loses power. Raises WeftError when there is no bitstream, no loader, or no board answers."""
    if board.flash_name is None:
        raise WeftError(explain(f"board {board.key}", f"{LOADER} does not know it", "a board that it knows",
                                "load the bitstream with the maker's tools"))
    made = bitstream(board, folder)
    if not made.is_file():
        raise WeftError(explain(f"bitstream {made}", "nothing", "a bitstream",
                                f"make it: weft board build {board.key}"))
    command = [loader(), "-b", board.flash_name, *(["-f"] if permanent else []), str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise WeftError(explain(f"board {board.key}", f"no end after {TIMEOUT_SECONDS} s", "a board that answers",
                                "plug it in again")) from None
    said = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise WeftError(explain(f"board {board.key}", said.splitlines()[-1] if said else "no answer",
                                "a board on USB that this user may open",
                                "plug it in and switch it on; on Linux install openFPGALoader's udev rules"))
    return said


def loader() -> str:
    """The program: of the system, else of the Python package beside this interpreter. Raises WeftError."""
    beside = Path(sys.executable).with_name(PACKAGED)
    found = shutil.which(LOADER) or (str(beside) if beside.is_file() else None)
    if found is None:
        raise WeftError(no_package(LOADER, "openfpgaloader", "bitstream"))
    return found
