# SPDX-License-Identifier: Apache-2.0
"""The estimator's model of a board's memory and LiteDRAM's own Verilog agree on every cycle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import LiteDram
from weft.tb.bench.asked_litedram import COLUMNS, modelled
from weft.tb.bench.paced import first_difference, run_paced, run_random
from weft.tb.bench.recorded_litedram import build, record
from weft.tmodel.manifest import TModel

DIGITS = Path(__file__).parents[2] / "models" / "digits"
OTHERS = [pytest.param("ecpix5", marks=pytest.mark.wide),  # several phases, and a word that is longer than a beat
          *(pytest.param(name, marks=pytest.mark.long) for name in ("colorlight_i9", "arty_a7_35"))]
WIDTHS = (64, 64)
CYCLES, SEEDS = 30_000, (1, 2, 3)


@pytest.mark.parametrize("board", ["ulx3s", *OTHERS])
def test_random_bursts_move_in_the_same_cycles(board: str, tmp_path: Path) -> None:
    """Two masters that read and write at random, alone and at once, refresh among them."""
    dram = BOARDS[board].dram
    assert isinstance(dram, LiteDram)
    simulation = build(board, WIDTHS, tmp_path)
    for seed in SEEDS:
        recorded = record(simulation, CYCLES, seed, tmp_path)
        answered = [recorded[:, :, COLUMNS.index(name)].sum() for name in ("aw_taken", "b_taken")]
        assert answered[0] - 4 * len(WIDTHS) <= answered[1] and answered[1] > CYCLES // 200, "writes end"
        differs = np.argwhere(modelled(recorded, dram, WIDTHS) != recorded)
        assert not len(differs), (seed, differs[0], COLUMNS[differs[0][2]])


@pytest.mark.long
@pytest.mark.parametrize("board", ["ulx3s", "colorlight_i9", "ecpix5"])
def test_random_programs_take_the_same_cycles(board: str) -> None:
    """Operation by operation, the program read from the same memory, wherever refresh stands; data as golden's."""
    arch = Arch.load(BOARDS[board].arch)
    for seed in SEEDS:
        assert not run_random(board, arch, seed), seed


@pytest.mark.long
@pytest.mark.parametrize("board", ["ulx3s", "colorlight_i9", "ecpix5"])
def test_a_network_takes_the_same_cycles(board: str, tmp_path: Path) -> None:
    arch = Arch.load(BOARDS[board].arch)
    compile_model(DIGITS / "digits.onnx", arch, tmp_path)
    done, found = run_paced(board, arch, TModel.load(tmp_path / "digits.tmodel").program)
    assert not first_difference(done, found)
