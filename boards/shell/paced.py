# SPDX-License-Identifier: Apache-2.0
"""A board's memory controller as Verilog, for the simulation of a machine alone (``controller.py`` in a process)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from weft.boards.board import Board
from weft.boards.shell.bitstream import need_packages
from weft.boards.shell.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.system import with_ports

FILE = "dram_controller.v"


def controller_of(board: Board, arch: Arch) -> str:
    """Return the Verilog of the board's controller for the ports of a machine. Raise WeftError without LiteX."""
    need_packages()
    machine = Machine(with_ports(arch)[1])
    masters = [f"{name}={machine.width(name)}" for name in machine.masters()]
    with tempfile.TemporaryDirectory(prefix="weft-controller-") as folder:
        subprocess.run([sys.executable, "-m", "weft.boards.shell.controller", board.key, folder, *masters], check=True,
                       capture_output=True)
        return (Path(folder) / FILE).read_text()
