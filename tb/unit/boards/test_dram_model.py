# SPDX-License-Identifier: Apache-2.0
"""What a board's memory takes: its record is LiteDRAM's own, and the estimator's model of it does what that implies.
That the model is LiteDRAM to the cycle: ``tb/system/test_board_dram.py``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.boards import BOARDS
from weft.boards.board import Memory
from weft.hw.contract.dram import EXPECTED, LiteDram
from weft.tb.bench.asked_litedram import asked

CHIPS = [name for name, board in BOARDS.items() if board.shell and isinstance(board.shell.memory, Memory)]


def dram_of(board: str) -> LiteDram:
    dram = BOARDS[board].dram
    assert isinstance(dram, LiteDram)
    return dram


@pytest.mark.parametrize("board", CHIPS)
def test_the_record_is_what_litedram_says(board: str) -> None:
    """Of the board's own PHY on its own pins, at the clock of its shell."""
    found = subprocess.run([sys.executable, "-m", "weft.boards.shell.controller", board], check=True,
                           capture_output=True, text=True).stdout
    assert found.strip() == repr(dram_of(board))


def test_boards_without_a_known_controller_have_what_is_expected_anywhere() -> None:
    assert BOARDS["pynq_z1"].dram == BOARDS["tang_nano_20k"].dram == EXPECTED


@pytest.mark.parametrize(("board", "first", "each"), [("ulx3s", 18, 4), ("colorlight_i9", 16, 2), ("ecpix5", 24, 2)])
def test_a_read_opens_its_row_and_then_waits_for_the_chips_width(board: str, first: int, each: int) -> None:
    """Beats of 64 bits: 16 bits a cycle, 32, and a word of DDR3 each, which two cycles are for."""
    taken = asked(dram_of(board), [(0, "read", 0, 3)])["r"]
    assert taken == [first, first + each, first + 2 * each]


@pytest.mark.parametrize("board", ["ulx3s", "colorlight_i9", "ecpix5"])
def test_an_open_row_is_there_sooner_than_another_one(board: str) -> None:
    dram = dram_of(board)
    rows = dram.banks * dram.row_bytes
    same, other = (asked(dram, [(0, "read", 0, 1), (60, "read", address, 1)])["r"][1] - 60 for address in (8, rows))
    closed = asked(dram, [(60, "read", 0, 1)])["r"][0] - 60
    assert closed - same == 3 + dram.t_rcd, "the bank's turn for the master, the bus's for the bank, activate, tRCD"
    assert other - same >= 1 + dram.t_rp + dram.t_rcd, "precharge, activate"


def test_a_write_then_a_read_turns_the_bus() -> None:
    dram = dram_of("ulx3s")
    alone = asked(dram, [(1, "read", 0, 4)])["r"]
    behind = asked(dram, [(0, "write", 0, 4), (1, "read", 0, 4)])
    assert behind["b"] and behind["r"][0] > behind["b"][0], "the write was first"
    assert behind["r"][0] - alone[0] >= 16 + dram.column_write_latency + dram.t_wtr, "16 commands, and the turn"


@pytest.mark.parametrize("board", ["ulx3s", "ecpix5"])
def test_refresh_keeps_a_read_waiting_and_closes_its_row(board: str) -> None:
    dram = dram_of(board)
    at = dram.t_refi - 3
    free, kept = (asked(dram, [(cycle, "read", 0, 1)], 2 * dram.t_refi)["r"][0] - cycle for cycle in (at // 2, at))
    assert kept - free >= dram.t_rfc + dram.t_rp


def test_half_a_word_each_is_written_and_answered() -> None:
    """Two beats of a DDR3 word. With LiteDRAM's own converter no command ever followed."""
    assert len(asked(dram_of("ecpix5"), [(0, "write", 0, 16), (60, "write", 4096, 1)], 400)["b"]) == 2
