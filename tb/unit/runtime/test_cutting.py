# SPDX-License-Identifier: Apache-2.0
"""What it costs to cut a program, estimated near the borders, is what whole estimates say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.cutting import cutting_cycles
from weft.runtime.pieces import Frame, Pieces, stages_of
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.unit.runtime.test_pieces import ARCHS, alike, compiled
from weft.tmodel.manifest import TModel


def cut(arch: Arch, folder: Path) -> tuple[Pieces, tuple[bytes, bytes]]:
    """A program in three pieces, and what is around each."""
    model: TModel = compiled(folder, arch)[0]
    frame = Frame(arch, 16)
    before, _ = frame.before(Machine(arch, Dram(arch), Dram(arch)))
    return Pieces(model.program, stages_of(model.program, model, 3, arch, alike), arch), (before, frame.behind())


@pytest.mark.parametrize("name", ARCHS)
@pytest.mark.parametrize("near", [40, 10_000])
def test_cycles_near_the_borders_are_those_of_whole_estimates(name: str, near: int, tmp_path: Path) -> None:
    """To the cycle where everything is near; else at most one in a thousand away, and no loop is cut."""
    pieces, around = cut(ARCHS[name], tmp_path)
    whole, found = (cutting_cycles(pieces, *around, lambda program: estimate(program, ARCHS[name]).cycles, short, near)
                    for short in (10_000, 0))
    assert found == whole if near > len(pieces.works) else abs(found - whole) < whole / 1000
    assert whole > 2 * estimate(around[0] + around[1], ARCHS[name]).cycles


def test_what_is_far_from_the_borders_is_not_estimated(tmp_path: Path) -> None:
    """Of 40 layers in two pieces no estimate takes two thirds of the program."""
    maker, name = ModelMaker((1, 4, 4, 4)), "x"
    for _ in range(40):
        name = maker.node("Relu", maker.conv(name, 4, 4, (1, 1)))
    arch = BASE.replace(array_size=4)
    report = compile_model(maker.save(tmp_path / "model.onnx"), arch, tmp_path)
    model, estimated = TModel.load(report.model_path), list[bytes]()

    def nothing(program: bytes) -> int:
        estimated.append(program)
        return 0

    pieces = Pieces(model.program, stages_of(model.program, model, 2, arch, alike), arch)
    cutting_cycles(pieces, b"", b"", nothing, short=0, near=4)
    assert len(estimated) == 2 + 3 and max(map(len, estimated)) < len(model.program) * 2 / 3


def test_each_part_is_taken_once(tmp_path: Path) -> None:
    """An estimator that takes a cycle for each program: what remains are the pieces less the program."""
    pieces, _ = cut(ARCHS["bytes"], tmp_path)
    for short in (0, 10_000):
        assert cutting_cycles(pieces, b"", b"", lambda _: 1, short=short) == pieces.count - 1


@pytest.mark.parametrize("more", [0, 1])
def test_a_program_is_short_up_to_the_number_that_is_told(more: int, tmp_path: Path) -> None:
    """Each piece is estimated once then, and the whole; in a longer one three parts at each border, and both ends."""
    pieces, _ = cut(ARCHS["bytes"], tmp_path)
    estimated = list[bytes]()

    def nothing(program: bytes) -> int:
        estimated.append(program)
        return 0

    cutting_cycles(pieces, b"", b"", nothing, short=len(pieces.works) - more)
    assert len(estimated) == (pieces.count + 1 if not more else 2 + 3 * (pieces.count - 1))


def test_a_short_program_is_estimated_as_it_is(tmp_path: Path) -> None:
    """With Configures that no piece needs: here the length of a program stands for its cycles."""
    arch = ARCHS["bytes"]
    model, isa = compiled(tmp_path, arch)[0], Isa(arch)
    program = isa.assemble([isa.configure(Register.TIMEOUT, 9)] * 3) + model.program
    stages = np.pad(stages_of(model.program, model, 3, arch, alike), (3, 0))
    pieces = Pieces(program, stages, arch)
    lengths = [len(pieces.piece(number).program) for number in range(pieces.count)]
    assert cutting_cycles(pieces, b"", b"", len) == sum(lengths) - len(program)
