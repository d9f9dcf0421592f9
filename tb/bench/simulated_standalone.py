# SPDX-License-Identifier: Apache-2.0
"""A board's shell without a host under Verilator: from the boot image in its flash to what its UART says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.boards.shell.families import SHELL
from weft.hw.contract.arch import Arch
from weft.hw.flow.verilog import verilog_text
from weft.simulate import toolchain
from weft.simulate.build import build_simulation
from weft.simulate.simulation import Simulation, run_simulation
from weft.tb.bench.simulated_shell import DATE

HERE = Path(__file__).parent
FLASH = re.compile(r"reg \[31:0\] (mem_\d+)\[0:\d+\];\ninitial begin\n\t\$readmemh\(\"(\S+)\"")
"""LiteSPI's model of the flash in the shell's Verilog: no other memory of words has a file."""


@dataclass(frozen=True)
class SimulatedStandalone:
    """A shell without a host. ``soc``: its ``soc.json``; ``folder``: where its files are."""

    soc: Mapping[str, Any]
    folder: Path
    simulation: Simulation
    flash_file: str

    def run(self, image: bytes, work: Path, cycles: int, seconds: float) -> list[str]:
        """Return the lines that the UART says once the image is in the flash."""
        work.mkdir()
        for file in self.folder.glob("*.init"):
            shutil.copy(file, work)
        words = np.frombuffer(image + bytes(-len(image) % 4), "<u4")
        (work / self.flash_file).write_text(f"@{self.soc['image']['flash_offset'] // 4:x}\n"
                                            + "".join(f"{word:08x}\n" for word in words.byteswap()))
        result = run_simulation(self.simulation, "weft.tb.bench.serve_standalone", directory=work, seed=1,
                                environment={"WEFT_CYCLES": str(cycles)}, timeout_seconds=seconds)
        log = result.log_file.read_text()
        return log[log.index("weft:"):log.index("done\n")].splitlines()


def build_standalone(board: str, arch: Arch, folder: Path) -> SimulatedStandalone:
    """Return the simulation of a board's shell without a host; files go into ``folder``."""
    import pythondata_cpu_vexriscv

    toolchain.setup()
    (folder / "weft.tarch").write_text(json.dumps(arch.to_dict()))
    subprocess.run([sys.executable, "-m", "weft.boards.shell.standalone", board, ".", "weft.tarch", "simulated"],
                   cwd=folder, check=True, capture_output=True)
    shell = DATE.sub("", (folder / f"{SHELL}.v").read_text())
    flash = FLASH.search(shell)
    assert flash
    processor = Path(pythondata_cpu_vexriscv.data_location) / "VexRiscv.v"
    simulation = build_simulation(shell + verilog_text(arch), top="standalone_sim",
                                  sources=[HERE / "standalone_sim.sv", processor],
                                  public_vlt='public_flat_rd -module "standalone_sim" -var "ended"\n'
                                             'public_flat_rd -module "standalone_sim" -var "clk"\n')
    return SimulatedStandalone(json.loads((folder / "soc.json").read_text()), folder, simulation, flash[2])
