# SPDX-License-Identifier: Apache-2.0
"""Recordings of LiteDRAM's own Verilog with random masters, cycle by cycle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from weft.simulate import toolchain
from weft.simulate.build import build_simulation
from weft.simulate.simulation import Simulation, run_simulation
from weft.tb.bench.asked_litedram import COLUMNS

HERE = Path(__file__).parent
TOP = "litedram_sim"
MASTERS = ("a", "b")


def build(board: str, widths: tuple[int, int], folder: Path) -> Simulation:
    """Return the simulation of a board's controller with masters of ``widths`` bits."""
    toolchain.setup()
    masters = [f"{name}={width}" for name, width in zip(MASTERS, widths, strict=True)]
    subprocess.run([sys.executable, "-m", "weft.boards.shell.controller", board, str(folder), *masters], check=True,
                   capture_output=True)
    public = "".join([*(f'public_flat_rw -module "{TOP}" -var "{name}" @(posedge clk)\n'
                        for name in ("rst", "seed", "cycles")),
                      *(f'public_flat_rd -module "{TOP}" -var "{name}"\n' for name in ("clk", "done"))])
    return build_simulation((folder / "dram_controller.v").read_text(), top=TOP, sources=[HERE / f"{TOP}.sv"],
                            public_vlt=public, parameters={"WIDTH_A": widths[0], "WIDTH_B": widths[1]})


def record(simulation: Simulation, cycles: int, seed: int, folder: Path) -> np.ndarray:
    """Return what was on the wires [cycles, masters, COLUMNS]."""
    run_simulation(simulation, "weft.tb.bench.record_litedram", directory=folder, seed=seed,
                   environment={"WEFT_CYCLES": str(cycles), "WEFT_SEED": str(seed)},
                   plusargs=[f"+record={folder / 'record'}"])
    return np.loadtxt(folder / "record", dtype=np.int64)[:, :-1].reshape(cycles, len(MASTERS), len(COLUMNS))
