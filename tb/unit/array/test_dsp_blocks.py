# SPDX-License-Identifier: Apache-2.0
"""Multipliers on an ECP5: every pin of their DSP blocks has a driver, and a synthesis that leaves one without ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.multiplier import Multiplier
from weft.hw.contract.arch import Arch
from weft.hw.flow import ecp5, synthesis
from weft.hw.simd.alu import Alu
from weft.support.errors import WeftError

WIDTH = 8


class Multiplies(wiring.Component):
    """A multiplier whose weight is taken as told: ``take_right`` a constant, or None for a signal."""

    def __init__(self, take_right: int | None, right: object = None) -> None:
        self._take_right, self._right = take_right, right
        super().__init__({"left": In(signed(WIDTH)), "right": In(signed(WIDTH)), "take": In(1),
                          "product": Out(signed(2 * WIDTH))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiplier = multiplier = Multiplier(WIDTH, WIDTH)
        m.d.comb += [
            multiplier.left.eq(self.left), multiplier.right.eq(self.right if self._right is None else self._right),
            multiplier.take_right.eq(self.take if self._take_right is None else self._take_right),
            self.product.eq(multiplier.product),
        ]
        return m


def blocks(dut: wiring.Component, width: int, folder: Path) -> list[dict]:
    """The DSP blocks that the flow puts in the place of a component's multipliers."""
    text = rtlil.convert(dut, name="top")
    (folder / "dut.il").write_text(text)
    (folder / "multipliers.v").write_text(ecp5.dsp_multipliers(text, width))
    synthesis.run_yosys("read_rtlil dut.il\nsynth_ecp5 -top top -run begin:coarse\nproc\n"
                        "techmap -map multipliers.v\ncheck -assert\nopt_clean\nselect top\n"
                        "write_json -selected dut.json\n", folder, "dut")
    cells = json.loads((folder / "dut.json").read_text())["modules"]["top"]["cells"].values()
    return [cell for cell in cells if cell["type"] == "MULT18X18D"]


def test_every_pin_of_the_simd_multipliers_is_driven(tmp_path: Path) -> None:
    """``take_right`` is always 1 there: Amaranth makes it a constant, and no port."""
    arch = Arch.load("tiny")
    found = blocks(Alu(arch.number, arch.lane_count), arch.number.width, tmp_path)
    assert len(found) == arch.lane_count
    for block in found:
        assert block["connections"]["CE1"] == ["1"]
        assert not [pin for pin, bits in block["connections"].items() if not bits or "x" in bits]


@pytest.mark.parametrize("constant", (0, 1))
def test_a_constant_enable_stays_what_it_is(constant: int, tmp_path: Path) -> None:
    block, = blocks(Multiplies(constant), WIDTH, tmp_path)
    assert block["connections"]["CE1"] == [str(constant)]


def test_an_enable_that_changes_is_a_wire(tmp_path: Path) -> None:
    block, = blocks(Multiplies(None), WIDTH, tmp_path)
    enable, = block["connections"]["CE1"]
    assert isinstance(enable, int)


def test_a_constant_factor_is_driven(tmp_path: Path) -> None:
    block, = blocks(Multiplies(1, right=-3), WIDTH, tmp_path)
    assert [block["connections"][f"B{bit}"] for bit in range(18)] == [["1"], ["0"], *[["1"]] * 16]


def test_a_factor_that_is_neither_port_nor_constant_is_refused() -> None:
    partly = Signal(WIDTH - 2)
    text = rtlil.convert(Multiplies(1, right=Cat(partly, 1, 0)), name="top", ports=[partly])
    with pytest.raises(WeftError, match="input right of .*neither a port nor a constant"):
        ecp5.dsp_multipliers(text, WIDTH)


@pytest.mark.parametrize("fault", ("input [1:0] a, output b); wire c; assign b = a[0] & c;",
                                   "input [1:0] a, output b); assign b = a[0]; assign b = a[1];",
                                   "input [1:0] a, output b); assign b = a[0] & d;"))
def test_synthesis_ends_at_a_wire_without_one_driver(fault: str, tmp_path: Path) -> None:
    (tmp_path / "fault.v").write_text(f"module fault({fault} endmodule\n")
    with pytest.raises(WeftError, match="fault.ys"):
        synthesis.run_yosys("read_verilog fault.v\nsynth_ecp5 -top fault\n", tmp_path, "fault")


def test_synthesis_of_what_is_driven_runs_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "fine.v").write_text("module fine(input [1:0] a, output b); assign b = a[0] & a[1]; endmodule\n")
    synthesis.run_yosys("read_verilog fine.v\nsynth_ecp5 -top fine\n", tmp_path, "fine")
