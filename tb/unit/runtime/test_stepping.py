# SPDX-License-Identifier: Apache-2.0
"""A program stopped between two instructions, on a golden machine that a small model fills."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.hw.contract.instructions import Opcode
from weft.runtime.session import Session
from weft.runtime.stepping import NO_LAYER, Stepper
from weft.tb.unit.runtime.models import OUTPUT_BASE, VECTORS
from weft.tb.unit.runtime.test_preload import expected, preloaded


def stepper(folder: Path, layers: list[int] | None = None) -> Stepper:
    """A program of six instructions, behind a preload of two."""
    own = Session(preloaded(folder)).machines[0]
    model = SimpleNamespace(program=own.model.program, layers=[{"name": "a"}, {"name": "b"}],
                            instruction_layers=None if layers is None else np.array(layers))
    loaded = SimpleNamespace(isa=own.isa, arch=own.arch, preload=own.preload, place=own.place, model=model,
                             packed=lambda values: values)
    session: Any = SimpleNamespace(machines=[loaded], values_before=lambda machine, inputs: inputs)
    return Stepper(session, 0, {"x": VECTORS})


def test_a_program_begins_behind_the_preload_as_after_reset(tmp_path: Path) -> None:
    """The constants are there, the program counter is not that of the preload, and so again after a restart."""
    found = stepper(tmp_path)
    for _ in range(2):
        assert (found.at, found.machine.program_counter, found.count) == (0, 0, 6)
        found.run_to(4)
        found.run_to(2)
        assert (found.at, found.machine.program_counter) == (4, 4)
        found.run_to(6)
        assert found.machine.dram0.read(OUTPUT_BASE, 4).tolist() == expected(VECTORS)
        found.restart()


@pytest.mark.parametrize("layers", [None, [1, 1, 0, 2, -1], [1, 1, 0, 2, -1, 0, 0, 0]])
def test_each_instruction_has_the_name_of_its_layer(layers: list[int] | None, tmp_path: Path) -> None:
    """None where the file has no layer, no such one, or too few; numbers beyond the program count for nothing."""
    found = stepper(tmp_path, layers)
    names = [None] * 6 if layers is None else ["b", "b", "a", None, None, "a" if len(layers) > 5 else None]
    assert [found.name(number) for number in range(6)] == names
    assert found.starts == ({} if layers is None else {1: 0, 0: 2, 2: 3}) and NO_LAYER not in found.starts


def test_instructions_are_found_by_their_opcode(tmp_path: Path) -> None:
    found = stepper(tmp_path)
    assert found.of_opcode(Opcode.DATA_MOVE) == [1, 3, 4, 5] and found.of_opcode(Opcode.SIMD) == []
    assert sorted(map(int, found.opcodes().values())) == sorted(map(int, (
        Opcode.MAT_MUL, Opcode.LOAD_WEIGHT, Opcode.DATA_MOVE)))
