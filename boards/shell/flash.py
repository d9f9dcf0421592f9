# SPDX-License-Identifier: Apache-2.0
"""Load a bitstream into a board, by openFPGALoader."""

from __future__ import annotations

import subprocess
from pathlib import Path

from weft.boards.board import Board
from weft.boards.shell.families import bitstream
from weft.boards.shell.loader import LOADER, RIGHTS, check_libraries, loader, may_open
from weft.support.errors import WeftError, explain

TIMEOUT_SECONDS = 300


def flash(board: Board, folder: Path, *, permanent: bool = False, variant: str | None = None) -> str:
    """Load ``folder``'s bitstream and return what the loader said.

    ``permanent``: into the flash chip, not only until the board loses power. ``variant``: a revision with another
    cable. Raise WeftError if there is no bitstream, no loader that runs, or no board answers."""
    name = cable(board, variant)
    made = bitstream(board, folder)
    if not made.is_file():
        raise WeftError(explain(f"bitstream {made}", "nothing", "a bitstream", make_it(board)))
    return _load(board, name, variant, [*(["-f"] if permanent else []), str(made)])


def flash_image(board: Board, image: Path, variant: str | None = None) -> str:
    """Write a boot image into the board's flash chip, behind the bitstream, and return what the loader said.

    Raise WeftError if the board boots from no flash, there is no image, no loader that runs, or no board answers."""
    name, place = cable(board, variant), board.shell.flash if board.shell else None
    if place is None:
        raise WeftError(explain(f"--image of board {board.key}", "no flash that is known", "a board that boots without "
                                "a host", "leave --image out, and drive the board from a host"))
    if not image.is_file():
        raise WeftError(explain(f"boot image {image}", "nothing", "a boot image",
                                f"weft board standalone MODEL.tmodel --board {board.key} --input FILE -o DIR"))
    return _load(board, name, variant, ["-f", "-o", str(place.image_offset), str(image)])


def _load(board: Board, name: str, variant: str | None, options: list[str]) -> str:
    """Return what the loader said for the board that it calls ``name``.

    Raise WeftError if the loader cannot run, or no board answers."""
    program = loader()
    check_libraries(program)
    command = [str(program), "-b", name, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                              timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise WeftError(explain(f"board {board.key}", f"no end after {TIMEOUT_SECONDS} s", "a board that answers",
                                "plug it in again")) from None
    except OSError as error:
        raise WeftError(explain(LOADER, f"{program}: {error.strerror}", "a program that runs",
                                "install it again, or remove it to use the Python package's")) from None
    said = (done.stdout + done.stderr).strip()
    if done.returncode:
        others = [f"--variant {each}" for each in board.flash_variants if each != variant]
        hint = f"; a revision with another cable: {' or '.join(others)}" if others else ""
        raise WeftError(explain(f"board {board.key}", said.splitlines()[-1] if said else "no answer",
                                "a board on USB that this user may open",
                                f"plug it in and switch it on{hint}" + ("" if may_open() else f"; {RIGHTS}")))
    return said


def cable(board: Board, variant: str | None) -> str:
    """Return the name that openFPGALoader has for a board or its variant. Raises WeftError."""
    if variant is not None and variant not in board.flash_variants:
        raise WeftError(explain(f"--variant of board {board.key}", variant,
                                ", ".join(board.flash_variants) or "none: all its revisions are loaded alike",
                                "leave --variant out, or name one of them"))
    name = board.flash_name if variant is None else board.flash_variants[variant]
    if name is None:
        raise WeftError(explain(f"board {board.key}", f"{LOADER} does not know it", "a board that it knows",
                                "load the bitstream with the maker's tools"))
    return name


def make_it(board: Board) -> str:
    """Return in words how the bitstream of a board is made."""
    if board.built == "bitstream":
        return f"make it: weft board build {board.key}"
    return f"weft board build {board.key} writes a Vivado project; run its build.tcl with Vivado"
