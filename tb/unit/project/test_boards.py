"""The boards: every preset for a board has one, made of chips that the flow knows."""

from pathlib import Path

import pytest

from weft.boards import ASSUMED_HZ, BOARDS, Board, board_of, clock_hz
from weft.boards.shell.families import FAMILIES
from weft.hw.contract.arch import presets
from weft.hw.flow import synthesis

ROOT = Path(__file__).parents[3]
SIMULATED = {"tiny"}
"""Presets without a board."""


def test_every_preset_for_a_board_has_one() -> None:
    made = {arch for board in BOARDS.values() for arch in (board.arch, *board.others)}
    assert made == set(presets()) - SIMULATED


def test_every_file_of_a_board_is_listed() -> None:
    files = {path.stem for path in (ROOT / "boards").glob("*.py")} - {"__init__", "board"}
    assert files == set(BOARDS)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_board_has_a_chip_that_the_flow_knows(board: Board) -> None:
    assert board.family in synthesis.FAMILIES and board.part in synthesis.PARTS
    assert (board.chip in FAMILIES[board.family].chips) if board.family in FAMILIES else board.family == "xc7"


def test_parts_and_chips_agree() -> None:
    chips = {chip.rpartition("-")[0] for family in FAMILIES.values() for chip in family.chips}
    assert set(synthesis.DEFAULT_PARTS.values()) | chips <= set(synthesis.PARTS)


def test_the_clock_is_the_board_s_or_assumed(tmp_path: Path) -> None:
    assert clock_hz("pynq") == BOARDS["pynq_z1"].clock_hz == 150e6
    assert clock_hz("tiny") == clock_hz(tmp_path / "pynq.tarch") == ASSUMED_HZ
    assert board_of("tiny") is None
    assert board_of("pynq_int8") is BOARDS["pynq_z1"]
