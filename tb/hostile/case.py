# SPDX-License-Identifier: Apache-2.0
"""What a hostile case is, and the good files that most of them damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.tb.bench import mesh_files

Recipe = Callable[[Path], list[str]]
"""Writes files into a folder; returns the command line to run in it."""


@dataclass(frozen=True)
class Case:
    """A hostile file or command line.

    ``reader``: what is attacked. ``code``: the exit code that is right: 1, 0 for what is odd but legal, None if both
    are. ``stdout``: where standard output goes instead of a file; ``most_bytes`` of every file that is written, as a
    full disk allows; ``cache``: the folder of $WEFT_CACHE; ``environment``: variables beside those that there are;
    ``quick``: one of those that `make test` runs."""

    name: str
    reader: str
    recipe: Recipe
    code: int | None = 1
    stdout: str | None = None
    most_bytes: int | None = None
    cache: str | None = None
    quick: bool = False
    seconds: float = 20.0
    environment: Mapping[str, str] = field(default_factory=dict)


def quick(cases: list[Case], *names: str) -> list[Case]:
    """Return the cases, those called ``names`` as quick ones. Every name must be there."""
    missing = set(names) - {case.name for case in cases}
    assert not missing, f"no case called {missing}"
    return [Case(**{**vars(case), "quick": case.name in names}) for case in cases]


FORGED_LINE = "weft: all is well"
FORGED = f"x\n{FORGED_LINE}\x1b[31m[bold]"
"""A name that would make a line of its own, and a colour."""


# -- good files --------------------------------------------------------------------------------------------------------
SHAPE = (1, 2, 4, 4)


def network(*nodes: onnx.NodeProto, weights: list[onnx.TensorProto] | None = None,
            shape: tuple[int, ...] = SHAPE, opset: int = 17) -> onnx.ModelProto:
    """Return a network from x to y."""
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c", "d"])]
    graph = helper.make_graph(list(nodes), "net", ends[:1], ends[1:], weights or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def good() -> onnx.ModelProto:
    """Return a good network: a convolution and a ReLU."""
    weights = numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "weights")
    return network(helper.make_node("Conv", ["x", "weights"], ["sums"], name="sums"),
                   helper.make_node("Relu", ["sums"], ["y"], name="curve"), weights=[weights])


@cache
def compiled() -> Path:
    """Return a folder of good files for the machine `tiny`.

    It has net.onnx, net.tmodel and its files, net.json, a schedule, and echo.tmodel as original tools write it."""
    folder = Path(mkdtemp(prefix="hostile-"))
    onnx.save(good(), folder / "net.onnx")
    compile_model(folder / "net.onnx", Arch.load("tiny"), folder, calibration={"x": np.ones((1, 2, 4, 4))})
    _write_echo(folder, Arch.load("tiny"))
    np.savez(folder / "x.npz", x=np.ones(SHAPE, np.float32))
    np.save(folder / "x.npy", np.ones((4, 2), np.int16))
    (folder / "net.json").write_text(json.dumps(mesh_files.today()))
    return folder


def _write_echo(folder: Path, arch: Arch) -> None:
    isa = Isa(arch)
    program = isa.assemble([isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 4),
                            isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, 8, 4)])
    (folder / "echo.tprog").write_bytes(program)
    (folder / "echo.tdata").write_bytes(bytes(2 * arch.vector_bytes))
    model = {"name": "echo", "prog": {"file_name": "echo.tprog", "size": len(program)},
             "consts": [{"file_name": "echo.tdata", "base": 0, "size": 2}],
             "inputs": [{"name": "x:0", "base": 0, "size": 4}], "outputs": [{"name": "y:0", "base": 8, "size": 4}],
             "arch": arch.to_dict(), "load_consts_to_local": False}
    (folder / "echo.tmodel").write_text(json.dumps(model))


def copy_good(folder: Path) -> None:
    """Copy all good files into a case's folder."""
    shutil.copytree(compiled(), folder, dirs_exist_ok=True)


RUN = ["run", "net.tmodel", "--input", "x.npz"]
RUN_RAW = ["run", "echo.tmodel", "--input", "x.npy", "--raw"]
ESTIMATE = ["estimate", "net.tmodel"]
REPORT = ["report", "net.tmodel"]
COMPILE = ["compile", "net.onnx", "-a", "tiny", "-o", "out"]


def good_and(command: list[str], change: Callable[[Path], Any] | None = None) -> Recipe:
    """Return the recipe of the good files, changed, and then ``command``."""

    def recipe(folder: Path) -> list[str]:
        copy_good(folder)
        if change is not None:
            change(folder)
        return command

    return recipe
