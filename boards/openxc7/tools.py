# SPDX-License-Identifier: Apache-2.0
"""The tools of openXC7: where they are on this system, and what is missing.

No Python package has them. The environment variables are those that LiteX and openXC7's own projects read."""

from __future__ import annotations

import mmap
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from weft.boards.board import OPENXC7, Board
from weft.support.errors import WeftError, explain

NEXTPNR, FRAMES, BITS = "nextpnr-xilinx", "fasm2frames", "xc7frames2bit"
PROGRAMS = (NEXTPNR, FRAMES, BITS)
CHIPDB, DATABASE = "CHIPDB", "PRJXRAY_DB_DIR"
"""The environment variables: the folder of nextpnr's chip databases, and the folder of Project X-Ray's."""
SNAP = Path("/snap/openxc7/current/opt/nextpnr-xilinx/external/prjxray-db")
"""The place of Project X-Ray's database in openXC7's snap package."""
FAMILIES = {"xc7a": "artix7", "xc7k": "kintex7", "xc7s": "spartan7", "xc7z": "zynq7"}
INSTALL = "install openXC7 (https://github.com/openXC7/toolchain-installer or its toolchain-nix)"


@dataclass(frozen=True)
class Found:
    """The tools for a chip, ``part`` in Project X-Ray's words.

    ``programs``: by name, as they are called. ``chipdb``, ``database``: the file and the folder, there or not.
    ``missing``: what is not there, in words, with what brings it."""

    part: str
    programs: dict[str, str]
    chipdb: Path
    database: Path
    missing: tuple[tuple[str, str], ...]

    @property
    def part_file(self) -> Path:
        """The file of the database that lists the chip's frames."""
        return self.database / self.part / "part.yaml"

    def check(self, board: str) -> None:
        """Raise WeftError if something is missing, all of it in one message."""
        if self.missing:
            ways = dict.fromkeys(way for _, way in self.missing)
            raise WeftError(explain(
                f"board {board} with --toolchain {OPENXC7}", "; ".join(what for what, _ in self.missing),
                f"{', '.join(PROGRAMS)} on PATH, a chip database and Project X-Ray's",
                f"{'; '.join(ways)}; --dry-run shows every command; --toolchain vivado writes a project instead"))


def find(board: Board) -> Found:
    """Return the tools for a board's chip. Raise WeftError if openXC7 does not know the chip."""
    part = board.xray
    if part is None:
        raise WeftError(explain(f"--toolchain of board {board.key}", OPENXC7, ", ".join(board.toolchains),
                                "leave --toolchain out, or choose a board with a chip of the 7 series"))
    found = {name: shutil.which(name) for name in PROGRAMS}
    absent = [name for name, path in found.items() if path is None]
    missing = [(f"no {', no '.join(absent)}", INSTALL)] if absent else []
    chipdb, lacks = _chipdb(part)
    root = Path(os.environ.get(DATABASE) or SNAP)
    database = root / FAMILIES[part[:4]]
    if not (database / part / "part.yaml").is_file():
        lacks.append((f"no {database / part / 'part.yaml'}",
                      f"set {DATABASE} to the folder prjxray-db of nextpnr-xilinx"))
    return Found(part, {name: path or name for name, path in found.items()}, chipdb, database,
                 (*missing, *lacks))


def names(part: str) -> list[str]:
    """Return the names that a chip's database may have: of die and package, with the speed grade, of the die."""
    packaged = part.rpartition("-")[0]
    return [f"{name}.bin" for name in (packaged, part, die(part))]


def die(part: str) -> str:
    """Return the name of a chip without package and speed grade, such as ``xc7a35t``."""
    digits = len(part[:4]) + next(at for at, letter in enumerate(part[4:]) if not letter.isdigit())
    return part[:digits + (part[digits] == "t")]


def _chipdb(part: str) -> tuple[Path, list[tuple[str, str]]]:
    """Return the chip database and what is wrong with it, in words, with the way out."""
    folder = Path(os.environ.get(CHIPDB) or f"${CHIPDB}")
    there = [folder / name for name in names(part) if (folder / name).is_file()]
    path = there[0] if there else folder / names(part)[0]
    export = (f"set {CHIPDB} to the folder of chip databases, and make this one: python3 "
              f".../nextpnr-xilinx/xilinx/python/bbaexport.py --device {part} --bba chip.bba && "
              f"bbasm -l chip.bba {path}")
    if not there:
        return path, [(f"no chip database {path}", export)]
    return path, [] if _names_chip(path, die(part)) else [(f"{path} is no chip database of {die(part)}", export)]


def _names_chip(path: Path, chip: str) -> bool:
    """Tell whether a chip database names the chip, as nextpnr's export writes it."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(chip.encode()) >= 0
    except (OSError, ValueError):  # an empty file cannot be mapped
        return False
