# SPDX-License-Identifier: Apache-2.0
"""``weft compile --schedule``: each core computes the boxes that a file of either dialect gives it, and all words are
those of one core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.cli.main import exit_code
from weft.compiler.cores import SPLIT, AssignedLayer
from weft.compiler.errors import CompileError
from weft.compiler.layers.hir import Layers
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.request import Request
from weft.compiler.split.assigned import follow
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.schedule.assign import assigned_layers
from weft.schedule.read import schedule_of
from weft.support.errors import WeftError
from weft.tb.bench import mesh_files
from weft.tb.compile.run_model import BASE
from weft.tb.compile.test_split import cores_of
from weft.tmodel.network import Network

FOUR = cores_of(BASE.replace(array_size=4), 4)
DIALECTS = {"today": mesh_files.today, "older": mesh_files.older}


def network(folder: Path, names: bool = True) -> Path:
    """The network of ``mesh_files``, whose file's names are its own, or without ``names`` others."""
    random = np.random.default_rng(5)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    called = {spec.name: spec.name if names else f"n{number}" for number, spec in enumerate(mesh_files.NETWORK)}
    shapes = {"x": mesh_files.INPUT, **{spec.name: spec.shape for spec in mesh_files.NETWORK}}

    def constant(*shape: int) -> str:
        weights.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / shape[1],
                                               f"w{len(weights)}"))
        return weights[-1].name

    for spec in mesh_files.NETWORK:
        name, given = called[spec.name], [called.get(each, each) for each in spec.inputs] or ["x"]
        channels = sum(shapes[each][0] for each in spec.inputs or ("x",))
        if spec.kind == "element_wise":
            nodes.append(helper.make_node("Add", given, [name], name=name))
            continue
        if len(given) > 1:
            nodes.append(helper.make_node("Concat", given, [f"{name}_in"], name=f"{name}_in", axis=1))
            given = [f"{name}_in"]
        if spec.kind == "pool":
            nodes.append(helper.make_node("MaxPool", given, [name], name=name, kernel_shape=[spec.kernel] * 2,
                                          strides=[spec.stride] * 2))
            continue
        kernel = shapes[spec.inputs[0]][1:] if spec.kind == "fc" else (spec.kernel,) * 2
        nodes.append(helper.make_node("Conv", [*given, constant(spec.shape[0], channels, *kernel)], [name], name=name,
                                      kernel_shape=kernel, pads=[spec.pad] * 4, strides=[spec.stride] * 2))
    graph = helper.make_graph(nodes, "mesh", [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                                                            [1, *mesh_files.INPUT])],
                              [onnx.ValueInfoProto(name=called["fc"])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "mesh.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def images() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((2, *mesh_files.INPUT)).astype(np.float32)


def layers(folder: Path, names: bool = True) -> Layers:
    return run_steps(Request(network(folder, names), {"x": images()}), FOUR)[Layers]


def assigned(dialect: str) -> tuple[AssignedLayer, ...]:
    return assigned_layers(schedule_of(DIALECTS[dialect]()), 4)


@pytest.mark.parametrize("names", [True, False], ids=["by name", "by shape"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schedule_runs_with_one_cores_words(dialect: str, names: bool, tmp_path: Path) -> None:
    path, file = network(tmp_path, names), tmp_path / "schedule.json"
    file.write_text(json.dumps(DIALECTS[dialect]()))
    np.savez(tmp_path / "x.npz", x=images())
    arch = tmp_path / "four.tarch"
    arch.write_text(json.dumps(FOUR.to_dict()))
    command = ["compile", str(path), "-a", str(arch), "--calibrate", str(tmp_path / "x.npz")]
    assert exit_code([*command, "-o", str(tmp_path / "four"), "--schedule", str(file)]) == 0
    assert exit_code([*command, "-o", str(tmp_path / "one")]) == 0
    found, one = (Session(Network.load(tmp_path / name / "mesh.tmodel")).run({"x": images()}).outputs
                  for name in ("four", "one"))
    assert found.keys() == one.keys() and all(np.array_equal(found[name], values) for name, values in one.items())
    assert json.loads((tmp_path / "four" / "mesh.tmodel").read_text())["cores"]["mode"] == SPLIT


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_core_computes_its_boxes(dialect: str, tmp_path: Path) -> None:
    """Cut in rows, columns, channels and quarters; what is fused with another layer is named."""
    built, entries = layers(tmp_path), assigned(dialect)
    found = follow(built, entries, FOUR)
    assert set(found.merged) == {"conv1", "joined"} and not found.rounded
    for number, boxes in found.shares.items():
        entry = next(entry for entry in entries if entry.name == built[number].output.name)
        for core, channels, rows, columns in entry.boxes:
            assert boxes[core] == Box((channels[0] // 4, channels[1] // 4), rows, columns)


def test_cuts_go_to_the_nearest_tile(tmp_path: Path) -> None:
    """Channels 0..5 and 6..15 on lanes of 4: the cut at 6 becomes one at 8; nothing is computed twice."""
    entry = next(entry for entry in assigned("today") if entry.name == "left")
    whole = (0, 8), (0, 8)
    cut = entry._replace(boxes=((0, (0, 6), *whole), (1, (6, 16), *whole)))
    built = layers(tmp_path)
    number = next(number for number, layer in enumerate(built) if layer.output.name == "left")
    found = follow(built, [cut], FOUR)
    assert found.shares[number][:2] == (Box((0, 2), *whole), Box((2, 4), *whole)) and found.rounded == 2


def mesh(nodes: list[onnx.NodeProto], folder: Path) -> Layers:
    """The layers of a network of 8 channels in and out of each convolution, on 4 lanes."""
    kernels = {name for node in nodes if node.op_type == "Conv" for name in node.input[1:2]}
    weights = [numpy_helper.from_array(np.ones((8, 8, 1, 1), np.float32) / 8, name) for name in kernels]
    graph = helper.make_graph(nodes, "part", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8])],
                              [onnx.ValueInfoProto(name=nodes[-1].output[0])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), folder / "part.onnx")
    return run_steps(Request(folder / "part.onnx"), FOUR)[Layers]


def convolution(name: str, given: str, stride: int = 1) -> onnx.NodeProto:
    return helper.make_node("Conv", [given, f"{name}_weights"], [name], name=name, strides=[stride] * 2)


def test_pixels_that_nobody_reads_leave_their_part_of_the_boxes(tmp_path: Path) -> None:
    """A convolution of which another one reads every second pixel: 8 rows cut at 3 are 4 rows cut at 2."""
    built = mesh([convolution("first", "x"), convolution("second", "first", 2)], tmp_path)
    number = next(number for number, layer in enumerate(built) if layer.name == "first")
    assert built[number].output.size == (4, 4)
    whole = (0, 8), (0, 8)
    entry = AssignedLayer("first", (8, 8, 8), True, ((0, (0, 8), (0, 3), (0, 8)), (1, (0, 8), (3, 8), (0, 8))))
    found = follow(built, [entry], FOUR)
    assert found.shares[number] == (Box((0, 2), (0, 2), (0, 4)), Box((0, 2), (2, 4), (0, 4)), None, None)
    assert found.rounded == 2 and not found.merged
    halves = entry._replace(boxes=((2, (0, 4), *whole), (3, (4, 8), *whole)))
    assert not follow(built, [halves], FOUR).rounded


def test_layers_that_are_a_joined_one_together_have_its_boxes(tmp_path: Path) -> None:
    """A pool of two joined tensors, which ours computes as two: the first core has all of one and half of the other."""
    built = mesh([convolution("left", "x"), convolution("right", "x"),
                  helper.make_node("Concat", ["left", "right"], ["both"], name="both", axis=1),
                  helper.make_node("MaxPool", ["both"], ["pool"], name="pool", kernel_shape=[3, 3], pads=[1] * 4),
                  helper.make_node("Add", ["pool", "both"], ["sum"], name="sum")], tmp_path)
    parts = [number for number, layer in enumerate(built) if layer.name == "pool"]
    assert len(parts) == 2
    whole = (0, 8), (0, 8)
    entry = AssignedLayer("pool", (16, 8, 8), False, ((0, (0, 12), *whole), (1, (12, 16), *whole)))
    found = follow(built, [entry], FOUR)
    boxes = {built[number].output.first_tile: found.shares[number] for number in parts}
    assert boxes == {0: (Box((0, 2), *whole), None, None, None),
                     2: (Box((0, 1), *whole), Box((1, 2), *whole), None, None)}


@pytest.mark.parametrize(("change", "said"), [
    ({"name": "nowhere", "size": (16, 9, 9)}, r"layer 'nowhere': found an ofmap of \[16, 9, 9\]; allowed: the name or "
                                             "the shape of a layer"),
    ({"boxes": ((0, (0, 16), (0, 4), (0, 8)),)}, "layer 'left': found boxes that are not the whole ofmap"),
    ({"boxes": ((7, (0, 16), (0, 8), (0, 8)),)}, "core 7, layer 'left': found a core of a larger mesh"),
    ({"boxes": ((0, (0, 8), (0, 4), (0, 8)), (0, (8, 16), (4, 8), (0, 8)), (1, (8, 16), (0, 4), (0, 8)),
                (1, (0, 8), (4, 8), (0, 8)))}, "core 0, layer 'left': found 2 workloads that are no box together"),
])
def test_what_cores_cannot_follow_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    entries = [entry._replace(**change) if entry.name == "left" else entry for entry in assigned("today")]
    with pytest.raises(CompileError, match=said):
        follow(layers(tmp_path), entries, FOUR)


def test_files_for_other_machines_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WeftError, match="a mesh of 2 x 2; allowed: at most 3 cores; way out: take a machine with more"):
        assigned_layers(schedule_of(mesh_files.today()), 3)
    path, file, arch = network(tmp_path), tmp_path / "schedule.json", tmp_path / "four.tarch"
    values = mesh_files.today()
    file.write_text(json.dumps(values))
    arch.write_text(json.dumps(FOUR.to_dict()))
    command = ["compile", str(path), "-a", str(arch), "-o", str(tmp_path / "out"), "--schedule", str(file)]
    assert exit_code([*command, "--cores", "batch"]) == 1
    assert "--schedule: found a schedule with --cores batch" in " ".join(capfd.readouterr().err.split())
    values["0"].pop()
    file.write_text(json.dumps(values))
    assert exit_code(command) == 1
    assert "faults, the first at" in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_machine_without_counters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="--cores split: found a machine with sync_counters 0"):
        compile_model(network(tmp_path), Arch.load("zcu104_4x16").replace(sync_counters=0), tmp_path / "out",
                      cores=SPLIT, assigned=assigned("today"))
