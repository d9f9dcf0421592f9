# SPDX-License-Identifier: Apache-2.0
"""Cycles of parts of a program, counted: those of the busiest unit. And the estimator lets other threads run."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest

from weft.cycles import replay
from weft.cycles.replay import estimate
from weft.cycles.shares import busiest_cycles
from weft.cycles.state import new_state
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register

ARCH = Arch.load("tiny").replace(array_size=6, axi_data_width=32, simd_loop_depth=4)
ISA = Isa(ARCH)
BEATS = 3
"""The beats of a vector: six scalars of two bytes, four bytes each."""


def test_a_part_takes_the_cycles_of_its_busiest_unit() -> None:
    add = ISA.simd(SimdSub(SimdOpcode.ADD), read=0, write=0)
    parts = [
        [ISA.configure(Register.MAT_MUL_ROWS, 2), ISA.mat_mul(0, 0, 5), ISA.load_weight(0, 4), ISA.mat_mul(0, 0, 2)],
        [ISA.mat_mul(0, 0, 1), ISA.data_move(DataFlow.DRAM1_TO_LOCAL, 0, 0, 4),
         ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 5)],
        [ISA.simd_loop(7, 2), add, add, ISA.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 13)],
        [ISA.no_op()],
    ]
    numbers = np.repeat(np.arange(4), [len(part) for part in parts])
    program = ISA.assemble([instruction for part in parts for instruction in part])
    assert busiest_cycles(program, numbers, ARCH).tolist() == [15 + 6, 5 * BEATS, 14, 0]


@pytest.mark.parametrize(("lanes", "cycles"), [(2, 5), (4, 5), (6, 7.5), (8, 10)])
def test_a_vector_takes_a_beat_at_least(lanes: int, cycles: float) -> None:
    arch = ARCH.replace(array_size=lanes, axi_data_width=64)
    program = Isa(arch).assemble([Isa(arch).data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 5)])
    assert busiest_cycles(program, np.zeros(1, np.int64), arch).tolist() == [cycles]


def test_counted_cycles_are_near_the_estimate_where_one_unit_works() -> None:
    program = ISA.assemble([ISA.load_weight(0, 7), *[ISA.mat_mul(0, 0, 40)] * 50])
    found, = busiest_cycles(program, np.zeros(51, np.int64), ARCH)
    assert found == 2000 and 0.95 < found / estimate(program, ARCH).cycles <= 1


def test_a_program_without_instructions_has_no_parts() -> None:
    assert busiest_cycles(b"", np.zeros(0, np.int64), ARCH).tolist() == []


def test_other_threads_run_while_a_program_is_stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    """They see operations finish one after another, all within one call of machine code."""
    states: list[np.void] = []

    def kept(*given: Any) -> np.void:
        states.append(new_state(*given))
        return states[-1]

    monkeypatch.setattr(replay, "new_state", kept)
    thread = Thread(target=estimate, args=(ISA.assemble([ISA.mat_mul(0, 0, 40)]) * 15_000, ARCH))
    thread.start()
    seen = set[int]()
    while thread.is_alive():
        seen |= {int(state["control"]["finished"]) for state in states}
    assert len(seen) > 3
