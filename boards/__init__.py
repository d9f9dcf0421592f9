# SPDX-License-Identifier: Apache-2.0
"""The boards: one file each, and which board a preset is made for."""

from __future__ import annotations

from pathlib import Path

from weft.boards import (
    arty_a7_35,
    arty_a7_100,
    colorlight_i9,
    crosslink_nx_evn,
    ecpix5,
    pynq_z1,
    pynq_z2,
    tang_nano_20k,
    ultra96_v2,
    ulx3s,
    zcu104,
)
from weft.boards.board import Board

BOARDS: dict[str, Board] = {module.BOARD.key: module.BOARD for module in (
    arty_a7_35, arty_a7_100, colorlight_i9, crosslink_nx_evn, ecpix5, pynq_z1, pynq_z2, tang_nano_20k, ultra96_v2,
    ulx3s, zcu104)}
"""Key -> board. Of boards with one preset the first is the one that the preset is counted against."""
ASSUMED_HZ = 100e6
"""The clock of machines without a board."""


def board_of(arch: str | Path) -> Board | None:
    """Return the board that a preset, by its name, is made for; None for any other machine."""
    return next((board for board in BOARDS.values() if str(arch) in (board.arch, *board.others)), None)


def routing(arch: str | Path) -> str:
    """Return in words whether open tools placed and routed a preset on its board; empty for a machine without board."""
    board = board_of(arch)
    if board is None:
        return ""
    if str(arch) not in board.routed:
        return "not tried"
    reached = board.routed[str(arch)]
    return "does not route" if reached is None else f"routed, {reached / 1e6:.1f} MHz"


def clock_hz(arch: str | Path) -> float:
    """Return the clock that the build of the preset's board asks for; of any other machine ASSUMED_HZ."""
    board = board_of(arch)
    return ASSUMED_HZ if board is None else board.clock_hz


__all__ = ["ASSUMED_HZ", "BOARDS", "Board", "board_of", "clock_hz", "routing"]
