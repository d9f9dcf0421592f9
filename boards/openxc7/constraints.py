# SPDX-License-Identifier: Apache-2.0
"""LiteX's toolchain for yosys and nextpnr-xilinx, of which the constraints are taken. It needs LiteX."""

from __future__ import annotations

from typing import Any

from litex.build.xilinx.yosys_nextpnr import XilinxYosysNextpnrToolchain

from weft.boards.board import OPENXC7


class Constraints(XilinxYosysNextpnrToolchain):
    """It writes Verilog and XDC for openXC7, and looks for no tool: our own steps do (``steps.py``).

    LiteX's would end the process where a chip database is missing, and its yosys script loses our multipliers."""

    _clock_constraints: str

    def __init__(self) -> None:
        super().__init__(OPENXC7)

    def finalize(self) -> None:
        """Do nothing. LiteX's own would look for the tools and end the process."""

    def build_timing_constraints(self, vns: Any) -> None:
        """Write the clocks without their names, which LiteX leaves unfilled."""
        super().build_timing_constraints(vns)
        written: str = self._clock_constraints
        self._clock_constraints = written.replace("-name {name} ", "")

    def build_project(self) -> None:
        """Write no script for yosys."""

    def build_script(self) -> str:
        """Write no script for the tools behind it."""
        return ""
