# SPDX-License-Identifier: Apache-2.0
"""A hand-made compiled model in the original tools' format, and the command line as a function."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from weft.cli.main import exit_code
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa

SIZE, OUTPUT_BASE = 4, 8


@dataclass
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str


Weft = Callable[..., Answer]


@pytest.fixture
def weft(capfd: pytest.CaptureFixture[str]) -> Weft:
    """Runs the command line in this process."""

    def call(*arguments: object) -> Answer:
        capfd.readouterr()
        code = exit_code([str(argument) for argument in arguments])
        return Answer(code, *capfd.readouterr())

    return call


@pytest.fixture
def arch() -> Arch:
    return Arch.load("tiny")


def write_model(folder: Path, arch: Arch, program: list[Instruction]) -> Path:
    """A .tmodel of four vectors in at 0, four vectors out at 8."""
    content = Isa(arch).assemble(program)
    (folder / "echo.tprog").write_bytes(content)
    (folder / "echo.tdata").write_bytes(bytes(2 * arch.vector_bytes))
    model = {
        "name": "echo",
        "prog": {"file_name": "echo.tprog", "size": len(content)},
        "consts": [{"file_name": "echo.tdata", "base": 0, "size": 2}],
        "inputs": [{"name": "x:0", "base": 0, "size": SIZE}],
        "outputs": [{"name": "y:0", "base": OUTPUT_BASE, "size": SIZE}],
        "arch": {key: value for key, value in arch.to_dict().items() if key != "accumulator_width"},
        "load_consts_to_local": False,
    }
    path = folder / "echo.tmodel"
    path.write_text(json.dumps(model))
    return path


@pytest.fixture
def echo(tmp_path: Path, arch: Arch) -> Path:
    """A model that copies its input."""
    isa = Isa(arch)
    return write_model(tmp_path, arch, [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, SIZE),
                                        isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, OUTPUT_BASE, SIZE)])
