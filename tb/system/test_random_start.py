# SPDX-License-Identifier: Apache-2.0
"""Registers and memories that begin random, as no FPGA has them: a reset and the program alone decide what happens."""

from __future__ import annotations

import pytest

from weft.hw.contract.arch import Arch
from weft.tb.bench.random_power_up import build_at_random, without_initial_values
from weft.tb.random.lockstep import Case, run_cases
from weft.tb.random.lockstep_archs import lockstep_archs, small_presets

ARCHS, PRESETS = lockstep_archs(), small_presets()
WIDE = ("crosslink_nx", "ecpix5_2x4")
"""The presets in `make test-wide`: the smallest to build, and one of two cores."""
SEEDS = range(9000, 9020)


def test_initial_values_are_taken_out() -> None:
    text = """  reg [5:0] write4 = 6'h00;
  reg [65:0] ram [31:0];
  initial begin
    begin : zero_words_0 integer i; for (i = 0; i < 32; i = i + 1) ram[i] = 66'h0; end
    ram[3] = 66'h7;
  end
  assign sum = write4 == 6'h00;
"""
    assert without_initial_values(text) == """  reg [5:0] write4 ;
  reg [65:0] ram [31:0];
  initial begin

    ram[3] = 66'h7;
  end
  assign sum = write4 == 6'h00;
"""


def assert_equal(arch: Arch) -> None:
    simulation = build_at_random(arch)
    assert [str(each) for each in run_cases(simulation, [Case.of(arch, seed) for seed in SEEDS])] == []


@pytest.mark.wide
@pytest.mark.parametrize("name", ["lanes4_int8", "lanes3_every_step"])
def test_hardware_equals_golden_from_any_start(name: str) -> None:
    """Tables, loops, two rows of weights, taps, slices, a shared port, both number schemes."""
    assert_equal(ARCHS[name])


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.wide if name in WIDE else pytest.mark.long) for name in PRESETS])
def test_every_small_preset_equals_golden_from_any_start(name: str) -> None:
    """Of several cores the first one runs programs, and the others stay as they woke up."""
    assert_equal(PRESETS[name])
