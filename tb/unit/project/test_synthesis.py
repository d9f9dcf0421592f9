# SPDX-License-Identifier: Apache-2.0
"""What yosys makes of whole machines: they fit their boards' parts. The table itself: `make synth`."""

import json
from pathlib import Path

import pytest

from weft.boards import board_of
from weft.hw.contract.arch import Arch
from weft.hw.flow import synthesis
from weft.hw.flow.cells import count_cells

ROOT = Path(__file__).parents[3]
BASELINES = sorted((ROOT / "hw" / "flow" / "baseline").glob("synth_*.json"))


@pytest.fixture(scope="module", params=("arty", "pynq"))
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict, Path]:
    """A preset's name, its counts, and where yosys worked."""
    folder = tmp_path_factory.mktemp(request.param)
    board = board_of(request.param)
    assert board is not None
    part = board.part
    return request.param, synthesis.report(Arch.load(request.param), "xc7", folder, part), folder


@pytest.mark.long
def test_machine_fits_its_part(machine: tuple[str, dict, Path]) -> None:
    over = {resource: counts for resource, counts in machine[1]["of_part"].items() if counts[0] > counts[1]}
    assert not over


@pytest.mark.long
def test_one_dsp_block_per_processing_element_and_per_lane(machine: tuple[str, dict, Path]) -> None:
    name, report, _ = machine
    arch = Arch.load(name)
    assert report["blocks"]["array"]["dsp"] == arch.array_size ** 2
    assert report["blocks"]["decoder"]["dsp"] == 2  # rows x pitch of each operand
    assert report["total"]["dsp"] == arch.array_size ** 2 + arch.lane_count + 2


@pytest.mark.long
def test_no_memory_in_flip_flops(machine: tuple[str, dict, Path]) -> None:
    _, _, folder = machine
    assert "using FF mapping" not in (folder / "xc7.log").read_text()


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_baseline_adds_up(path: Path) -> None:
    for report in json.loads(path.read_text()).values():
        assert report["total"] == synthesis.total(report["blocks"])


def test_lutram_counts_as_luts() -> None:
    counts = count_cells({"LUT6": 3, "RAM32M": 2, "FDRE": 5, "RAMB18E1": 3, "DSP48E1": 1}, "xc7")
    assert (counts["lut"], counts["lutram"], counts["ff"], counts["dsp"]) == (11, 8, 5, 1)
    assert synthesis.block_rams(counts, "xc7") == 2
