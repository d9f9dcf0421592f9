# SPDX-License-Identifier: Apache-2.0
"""A schedule and the network that it is for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.cli.main import exit_code
from weft.compiler.frontend.reader import read_model
from weft.schedule.check import faults_of
from weft.schedule.read import schedule_of
from weft.tb.bench import mesh_files


def conv(name: str, source: str, kernel: int, pad: int) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, f"{name}_w"], [name], name=name, kernel_shape=[kernel] * 2, pads=[pad] * 4)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of ``mesh_files``; layers have names of nodes, ``sum`` and ``fc`` of outputs."""
    nodes = [conv("conv1", "x", 3, 1), helper.make_node("Relu", ["conv1"], ["relu1"], name="relu1"),
             helper.make_node("MaxPool", ["relu1"], ["pooled"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]),
             conv("left", "pooled", 1, 0), conv("right", "pooled", 3, 1),
             helper.make_node("Concat", ["left", "right"], ["both"], name="concat", axis=1),
             conv("joined", "both", 1, 0), helper.make_node("Add", ["joined", "left"], ["sum"], name="addition"),
             helper.make_node("Flatten", ["sum"], ["flat"], name="flatten"),
             helper.make_node("Gemm", ["flat", "fc_w"], ["fc"], name="dense", transB=1)]
    shapes = {"conv1_w": (16, 3, 3, 3), "left_w": (16, 16, 1, 1), "right_w": (32, 16, 3, 3),
              "joined_w": (16, 48, 1, 1), "fc_w": (16, 1024)}
    graph = helper.make_graph(nodes, "mesh", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
                              [helper.make_tensor_value_info("fc", TensorProto.FLOAT, [1, 16])],
                              [numpy_helper.from_array(np.zeros(shape, np.float32), name)
                               for name, shape in shapes.items()])
    path = tmp_path_factory.mktemp("network") / "mesh.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def faults(values: dict[str, Any], network: Path) -> list[str]:
    return [fault.text() for fault in faults_of(schedule_of(json.loads(json.dumps(values))), read_model(network))]


@pytest.mark.parametrize("make", [mesh_files.older, mesh_files.today])
def test_a_schedule_of_the_network_has_no_fault(make: Callable[[], dict[str, Any]], network: Path) -> None:
    assert faults(make(), network) == []


def test_another_network_is_told(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, digits = tmp_path / "schedule.json", Path(__file__).parents[3] / "models" / "digits" / "digits.onnx"
    path.write_text(json.dumps(mesh_files.today()))
    assert exit_code(["ir", "check", str(path), "--network", str(network)]) == 0
    capsys.readouterr()
    assert exit_code(["ir", "check", str(path), "--network", str(digits)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "layer conv1, key layer_name: found no node" in said and "layer stem_conv" in said


def renamed(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    text = json.dumps(values).replace(f'"{old}"', f'"{new}"')
    renamed_values: dict[str, Any] = json.loads(text)
    return renamed_values


def test_a_layer_of_another_shape_or_window_is_told(network: Path) -> None:
    """The layers exchange their names: a convolution of 1 x 1 becomes one of 3 x 3, which reads more."""
    swapped = renamed(renamed(mesh_files.today(), "left", "between"), "right", "left")
    said = faults(renamed(swapped, "between", "right"), network)
    assert any("layer left" in fault and "found an ofmap of [1, 32, 8, 8]; allowed: [1, 16, 8, 8]" in fault
               for fault in said)
    narrow = mesh_files.today()
    for core in range(4):
        workload = narrow[str(core)][3]
        for ifmap in (*workload["ifmap"], *workload["buffer"]):
            ifmap["lower"][3] = min(ifmap["upper"][3], ifmap["lower"][3] + 1)
    assert any("layer right" in fault and "which the Conv reads" in fault for fault in faults(narrow, network))


def test_a_layer_that_is_not_there_is_told(network: Path) -> None:
    said = faults(renamed(mesh_files.today(), "fc", "dense"), network)
    assert said == []
    gone = faults(renamed(mesh_files.today(), "fc", "elsewhere"), network)
    assert any("layer dense" in fault and "no workload" in fault for fault in gone)
