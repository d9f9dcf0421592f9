# SPDX-License-Identifier: Apache-2.0
"""``load_consts_to_local`` of the original tools: loading the model copies DRAM1's constants to local memory, once."""

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.cycles.replay import estimate
from weft.golden.legality import first_stop
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.runtime.programs import preload
from weft.runtime.session import GOLDEN, RTL, Session
from weft.support.errors import WeftError
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.unit.runtime.models import OUTPUT_BASE, SIZE, VECTORS, model
from weft.tmodel.manifest import TModel

TINY = lockstep_archs()["lanes2"]
"""Other tests build its simulator too."""

WEIGHTS = np.array([[3, -1], [256, 0], [0, 512]])
"""Bias, and 1 and 2 on the diagonal, for two lanes of 8 bits behind the point."""
KEPT = np.array([[7, 8], [9, 10]])
KEPT_BASE = 20


def preloaded(folder: Path, consts_to_local: bool = True) -> TModel:
    """y = x times the weights at 0, and behind it what stands at 20: constants that the program never loads."""
    isa = Isa(TINY)
    program = [
        isa.load_weight(0, 3), isa.data_move(DataFlow.DRAM0_TO_LOCAL, 10, 0, 2),
        isa.mat_mul(10, 0, 2), isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 10, 0, 2),
        isa.data_move(DataFlow.LOCAL_TO_DRAM0, 10, OUTPUT_BASE, 2),
        isa.data_move(DataFlow.LOCAL_TO_DRAM0, KEPT_BASE, OUTPUT_BASE + 2, 2),
    ]
    made = model(folder, TINY, program, [WEIGHTS, KEPT], "net", (0, KEPT_BASE), consts_to_local)
    made.save()
    return TModel.load(folder / "net.tmodel")


def expected(vectors: np.ndarray) -> list[list[int]]:
    return (vectors[:2] * [1, 2] + WEIGHTS[0]).tolist() + KEPT.tolist()


def test_the_driver_moves_each_entry_once(tmp_path: Path) -> None:
    isa = Isa(TINY)
    moves = [instruction_text(isa, each) for each in isa.disassemble(preload(preloaded(tmp_path), isa))]
    assert moves == ["DataMove dram1_to_local local=0 far=0 size=3", "DataMove dram1_to_local local=20 far=20 size=2"]
    assert preload(preloaded(tmp_path, consts_to_local=False), isa) == b""


@pytest.mark.parametrize("on", [GOLDEN, pytest.param(RTL, marks=pytest.mark.slow)])
def test_constants_are_there_and_stay_for_every_image(tmp_path: Path, on: str) -> None:
    images = np.stack([VECTORS + number for number in range(3)])
    session = Session(preloaded(tmp_path))
    found = session.run({"x": images}, on=on, raw=True)
    assert found.outputs["y"].tolist() == [expected(image) for image in images]
    assert found.preload_instructions == 2
    program = Session(preloaded(tmp_path, consts_to_local=False)).run({"x": images}, on=on, raw=True)
    assert found.instructions == program.instructions
    assert program.outputs["y"].tolist() != found.outputs["y"].tolist()  # as if the key were not there
    if on == RTL:
        assert found.comparison is not None
        found.comparison.insist()
        one = session.run({"x": VECTORS}, on=RTL, raw=True)
        assert one.preload_cycles == found.preload_cycles == estimate(session.machines[0].preload, TINY).cycles
        assert one.cycles == estimate(session.machines[0].model.program, TINY).cycles


def test_groups_of_images_that_are_runs_of_their_own_load_each(tmp_path: Path) -> None:
    session = Session(preloaded(tmp_path))
    session.machines[0].batch.most_images = 2
    images = np.stack([VECTORS + number for number in range(5)])
    found = session.run({"x": images}, raw=True)
    assert found.outputs["y"].tolist() == [expected(image) for image in images]
    assert found.preload_instructions == 2 and found.images == 5


@pytest.mark.parametrize(("local", "dram1"), [(32, 256), (256, 32), (257, 300), (300, 257), (1 << 16, 1 << 16)])
def test_one_instruction_moves_as_much_as_both_memories_hold(tmp_path: Path, local: int, dram1: int) -> None:
    arch = TINY.replace(local_depth=local, dram1_depth=dram1, dram0_depth=16, accumulator_depth=4)
    isa, size = Isa(arch), min(local, dram1)
    consts = np.arange(2 * size).reshape(size, 2) % 32768
    out = [isa.data_move(DataFlow.LOCAL_TO_DRAM0, size - SIZE, OUTPUT_BASE, SIZE)]
    made = model(tmp_path, arch, out, [consts], consts_to_local=True)
    assert first_stop(preload(made, isa), arch) is None
    found = Session(made).run({"x": VECTORS}, raw=True)
    assert found.outputs["y"].tolist() == consts[-SIZE:].tolist() and found.preload_instructions == 1


def test_constants_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    preloaded(tmp_path)
    path = tmp_path / "net.tmodel"
    values = json.loads(path.read_text())
    values["consts"][1]["base"] = TINY.local_depth - 1
    path.write_text(json.dumps(values))
    last = TINY.local_depth - 1
    with pytest.raises(WeftError, match=rf"local memory \(load_consts_to_local\), which has 0\.\.{last}"):
        TModel.load(path)


def test_the_command_line_says_it_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    preloaded(tmp_path)
    np.save(tmp_path / "x.npy", VECTORS)

    def weft(*arguments: object) -> str:
        assert exit_code([str(argument) for argument in arguments]) == 0
        return capfd.readouterr().out

    def run(*options: str) -> str:
        return weft("run", tmp_path / "net.tmodel", "--raw", "--input", tmp_path / "x.npy", *options)

    found = json.loads(run("--json"))
    assert found["outputs"]["y"] == expected(VECTORS) and found["instructions"] == 6 and found["checksums"] is True
    assert found["preload"] == {"instructions": 2, "cycles": None}
    assert "preload" in run() and "2 instructions, once when the model is loaded" in run()
    found = json.loads(weft("estimate", tmp_path / "net.tmodel", "--json"))
    assert found["preload"] == {"instructions": 2, "cycles": estimate(preload(preloaded(tmp_path), Isa(TINY)), TINY)
                                .cycles}
    assert "preload: 2 instructions, " in weft("estimate", tmp_path / "net.tmodel")
