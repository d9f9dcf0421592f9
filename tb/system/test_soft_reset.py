# SPDX-License-Identifier: Apache-2.0
"""A soft reset as soon as the machine says that it is done: memories and weights are whole."""

from __future__ import annotations

import pytest

from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.simulate.rtl import build_rtl
from weft.tb.random.lockstep import Case, run_cases
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes12"]
"""Large enough that the weights' wave (26 cycles) lasts longer than the bus takes to ask for the reset."""


@pytest.mark.wide
def test_weights_loaded_last_reach_every_column() -> None:
    """The program ends with LoadWeight; the dump behind the soft reset multiplies by what it loaded."""
    isa = Isa(ARCH)
    program = (isa.data_move(DataFlow.DRAM0_TO_LOCAL, 26, 0, 44), isa.load_weight(48, 12), isa.load_weight(135, 13))
    assert [str(each) for each in run_cases(build_rtl(ARCH), [Case(ARCH, 5007, program, reset_at_end=True)])] == []
