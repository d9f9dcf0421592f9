# SPDX-License-Identifier: Apache-2.0
"""The boards: every preset for a board has one, made of chips that the flow knows."""

import json
from pathlib import Path

import pytest

from weft.boards import ASSUMED_HZ, BOARDS, Board, board_of, clock_hz, routing
from weft.boards.board import OnChip
from weft.boards.shell.families import FAMILIES
from weft.cli.archs import archs_command
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, LiteDram
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


SHELLS: dict[str, tuple[dict[str, str], str, float, int, str | None, str, dict[str, str]]] = {
    "arty_a7_35": ({"variant": "a7-35"}, "XC7A35T-1L", 100e6, 3_000_000, None, "arty_a7_35t", {}),
    "arty_a7_100": ({"variant": "a7-100"}, "XC7A100T-1", 100e6, 3_000_000, None, "arty_a7_100t", {}),
    "colorlight_i9": ({"board": "i9", "revision": "7.2"}, "LFE5U-45F-6", 40e6, 3_000_000, "W25Q64", "colorlight-i9",
                      {}),
    "crosslink_nx_evn": ({"device": "LIFCL-40-9BG400C"}, "LIFCL-40-9BG400C", 40e6, 3_000_000, None, "crosslinknx_evn",
                         {}),
    "ecpix5": ({"device": "85F"}, "LFE5UM5G-85F-8", 75e6, 3_000_000, None, "ecpix5", {"r03": "ecpix5_r03"}),
    "tang_nano_20k": ({}, "GW2AR-18-C8/I7", 27e6, 1_000_000, None, "tangnano20k", {}),
    "ulx3s": ({"device": "LFE5U-85F", "revision": "2.0"}, "LFE5U-85F-6", 40e6, 3_000_000, "IS25LP128", "ulx3s", {}),
}
"""By hand: options of LiteX's platform, chip, clock, link, flash, names of openFPGALoader."""
PROCESSORS = {
    "pynq_z1": ("zynq7", "xc7z020clg400-1", 512 << 20, 16, 1.05e9),
    "pynq_z2": ("zynq7", "xc7z020clg400-1", 512 << 20, 16, 1.05e9),
    "ultra96_v2": ("zynqmp", "xczu3eg-sbva484-1-i", 2 << 30, 32, 2.133e9),
    "zcu104": ("zynqmp", "xczu7ev-ffvc1156-2-e", 2 << 30, 64, 2.4e9),
}
"""By hand: kind, device, bytes of memory, its bits and transfers a second."""


def test_a_shell_is_of_its_board() -> None:
    found = {key: (dict(shell.platform_options), board.chip, shell.clock_hz, shell.baud,
                   shell.flash.module if shell.flash else None, board.flash_name, dict(board.flash_variants))
             for key, board in BOARDS.items() if (shell := board.shell)}
    assert found == SHELLS
    ecpix5 = BOARDS["ecpix5"].shell
    assert ecpix5 is not None and dict(ecpix5.ethernet_options) == {"rx_delay": 0.0}


def test_a_processor_is_of_its_board() -> None:
    found = {key: each for key, board in BOARDS.items() if (each := board.processor)}
    assert {key: (each.kind, each.device, each.memory_bytes) for key, each in found.items()} == {
        key: given[:3] for key, given in PROCESSORS.items()}
    for key, (*_, bits, transfers) in PROCESSORS.items():
        peak = bits / 8 * transfers / found[key].clock_hz
        cases = found[key].memory.cases
        assert [case.read_latency for case in cases.values()] == [15, 25, 60]
        assert list(cases) == ["best", "typical", "worst"]
        shares = [case.bus_bytes / peak for case in cases.values()]
        assert shares == pytest.approx([0.87, 0.79, 0.40])


def test_memories_and_links_of_a_shell() -> None:
    """What is on the chip has room for so long a program; beside some machines there is no Ethernet."""
    on_chip = {key: shell.memory.program_bytes for key, board in BOARDS.items()
               if (shell := board.shell) and isinstance(shell.memory, OnChip)}
    assert on_chip == {"tang_nano_20k": 32 << 10, "crosslink_nx_evn": 64 << 10}
    assert [BOARDS["ecpix5"].has_ethernet(Arch.load(name)) for name in ("ecpix5_int8", "ecpix5_4", "ecpix5_2x4")] == [
        True, False, False]
    assert not BOARDS["ulx3s"].has_ethernet(Arch.load("ulx3s"))
    assert isinstance(BOARDS["ulx3s"].dram, LiteDram) and BOARDS["tang_nano_20k"].dram == EXPECTED
