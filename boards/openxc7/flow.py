# SPDX-License-Identifier: Apache-2.0
"""Build a board's bitstream with openXC7, or say what that would be. No bitstream was made with it here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.boards.board import OPENXC7, Board
from weft.boards.openxc7 import tools
from weft.boards.openxc7.steps import family, steps
from weft.boards.shell import bitstream
from weft.boards.shell.families import Tell
from weft.hw.contract.arch import Arch


def planned(board: Board, clock_hz: float | None) -> dict[str, Any]:
    """Return ``steps``, each with its command, and what is ``missing`` for them; nothing is built."""
    board = bitstream.at(board, clock_hz)
    found = tools.find(board)
    return {"schema": 1, "board": board.key, "name": board.name, "toolchain": OPENXC7, "part": found.part,
            "mhz_asked": board.clock_hz / 1e6,
            "steps": [{"what": step.what, "command": str(step)} for step in steps(board, found, 1)],
            "missing": [{"what": what, "way_out": way} for what, way in found.missing]}


def build(board: Board, arch: Arch, folder: Path, *, clock_hz: float | None = None, seeds: Sequence[int] = (1, 2, 3, 4),
          tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Build the bitstream in ``folder`` and return its report, as ``bitstream.build`` does.

    Raise WeftError if a tool, the chip database or Project X-Ray's is missing, before anything is built."""
    found = tools.find(board)
    found.check(board.key)
    return bitstream.build(board, arch, folder, clock_hz=clock_hz, seeds=seeds, tell=tell, family=family(board, found))
