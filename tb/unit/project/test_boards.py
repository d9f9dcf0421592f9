# SPDX-License-Identifier: Apache-2.0
"""The boards: every preset for a board has one, made of chips that the flow knows."""

import json
from pathlib import Path

import pytest

from weft.boards import ASSUMED_HZ, BOARDS, Board, board_of, clock_hz, routing
from weft.boards.shell.families import FAMILIES
from weft.cli.archs import archs_command
from weft.hw.contract.presets import presets
from weft.hw.flow import synthesis

ROOT = Path(__file__).parents[3]
SIMULATED = {"tiny"}
"""Presets without a board."""


def test_every_preset_for_a_board_has_one() -> None:
    made = {arch for board in BOARDS.values() for arch in (board.arch, *board.others)}
    assert made == set(presets()) - SIMULATED


def test_every_file_of_a_board_is_listed() -> None:
    files = {path.stem for path in (ROOT / "boards").glob("*.py")} - {"__init__", "board", "processor_memory"}
    assert files == set(BOARDS)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_board_has_a_chip_that_the_flow_knows(board: Board) -> None:
    assert board.family in synthesis.FAMILIES and board.part in synthesis.PARTS
    assert (board.chip in FAMILIES[board.family].chips) if board.family in FAMILIES else board.family == "xc7"


def test_a_board_says_what_its_build_makes() -> None:
    assert (BOARDS["arty_a7_35"].built, BOARDS["ulx3s"].built) == ("Vivado project", "bitstream")


def test_parts_and_chips_agree() -> None:
    chips = {chip.rpartition("-")[0] for family in FAMILIES.values() for chip in family.chips}
    assert set(synthesis.DEFAULT_PARTS.values()) | chips <= set(synthesis.PARTS)


def test_the_clock_is_what_the_board_s_build_asks_for_or_assumed(tmp_path: Path) -> None:
    for board in BOARDS.values():
        asked = board.shell or board.processor
        assert asked and clock_hz(board.arch) == board.clock_hz == asked.clock_hz
        assert board.target_hz is None or board.target_hz > board.clock_hz
    assert clock_hz("pynq") == BOARDS["pynq_z1"].clock_hz == 100e6
    assert clock_hz("tiny") == clock_hz(tmp_path / "pynq.tarch") == ASSUMED_HZ
    assert board_of("tiny") is None
    assert board_of("pynq_int8") is BOARDS["pynq_z1"]


def test_what_routes_is_what_the_builds_reached() -> None:
    """One fact, measured: a board's file says it for every table, the reports of the builds are in docs/data."""
    built = json.loads((ROOT / "docs" / "data" / "boards.json").read_text())
    said = {key: board.routed[board.arch] for key, board in BOARDS.items() if board.arch in board.routed}
    assert said == pytest.approx({key: report["fmax_mhz"] * 1e6 for key, report in built.items()})
    for board in BOARDS.values():
        assert set(board.routed) <= {board.arch, *board.others}
        assert all(reached is None or reached >= board.clock_hz for reached in board.routed.values())


def test_routing_is_told_in_words() -> None:
    assert routing("ecpix5_4") == "routed, 75.3 MHz" and routing("ecpix5") == "does not route"
    assert routing("pynq") == "not tried" and routing("tiny") == ""


def test_presets_are_listed_with_their_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    archs_command(as_json=True)
    found = json.loads(capsys.readouterr().out)["archs"]
    assert found["ecpix5"]["mhz"] == 75 and found["ecpix5"]["place_and_route"] == "does not route"
    archs_command(as_json=False)
    assert "does not route" in capsys.readouterr().out
