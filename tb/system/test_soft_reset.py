# SPDX-License-Identifier: Apache-2.0
"""A soft reset at the end of a program, or in any of its cycles: the next program finds a machine as new."""

from __future__ import annotations

import pytest

from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.simulate.rtl import build_rtl
from weft.tb.random.lockstep import Case, run_cases
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_program import random_program

ARCHS = lockstep_archs()
CUTS = {"lanes2": 20, "lanes3_every_step": 20, "lanes4_lut": 30, "lanes4_int8": 30, "lanes10_taps9": 20}
"""Machine -> resets in `make test` or `make test-wide`: loops, tables, two rows, taps, both number schemes."""
LENGTH = 40
"""Instructions of a program that is broken off; with the preamble it takes some 400 to 2000 cycles."""
LATEST = 600
"""The last cycle in which a program is broken off."""
ARCH = ARCHS["lanes12"]
"""Large enough that the weights' wave (26 cycles) lasts longer than the bus takes to ask for the reset."""


@pytest.mark.wide
def test_weights_loaded_last_reach_every_column() -> None:
    """The program ends with LoadWeight; the dump behind the soft reset multiplies by what it loaded."""
    isa = Isa(ARCH)
    program = (isa.data_move(DataFlow.DRAM0_TO_LOCAL, 26, 0, 44), isa.load_weight(48, 12), isa.load_weight(135, 13))
    assert [str(each) for each in run_cases(build_rtl(ARCH), [Case(ARCH, 5007, program, reset_at_end=True)])] == []


def broken_off(name: str, program: int, after: int) -> Case:
    """Return a random case behind a random program that a reset breaks off after so many cycles."""
    arch = ARCHS[name]
    case = Case.of(arch, 7000 + program)
    before = tuple(random_program(arch, 8000 + program, LENGTH))
    return Case(arch, case.seed, case.program, broken_off=before, reset_after=after)


@pytest.mark.wide_cases("lanes2", "lanes3*", "lanes4_lut", "lanes10*")
@pytest.mark.parametrize("name", CUTS)
def test_a_reset_in_any_cycle_leaves_nothing_behind(name: str) -> None:
    """Cycles evenly spread over the beginning, each in a program of its own."""
    cases = [broken_off(name, number, 1 + number * LATEST // CUTS[name]) for number in range(CUTS[name])]
    assert [str(each) for each in run_cases(build_rtl(ARCHS[name]), cases)] == []


@pytest.mark.long
@pytest.mark.parametrize("name", CUTS)
def test_a_reset_in_every_cycle_leaves_nothing_behind(name: str) -> None:
    """Every cycle of two programs."""
    cases = [broken_off(name, number, after) for number in range(2) for after in range(1, LATEST)]
    assert [str(each) for each in run_cases(build_rtl(ARCHS[name]), cases)] == []
