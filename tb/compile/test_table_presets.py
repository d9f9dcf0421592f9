# SPDX-License-Identifier: Apache-2.0
"""Presets with lookup tables: functions that their twins without tables leave to the host run on the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tmodel.network import Network

TWINS = {"pynq_lut": "pynq", "arty100_lut": "arty", "ecpix5_4_lut": "ecpix5_4"}
LEAST_DB = 40.0


def gated(path: Path) -> Path:
    """A convolution gated by its own Sigmoid, then HardSwish and Tanh, as mobile networks have them."""
    chance = np.random.default_rng(5)

    def weights(name: str, out: int, into: int, size: int) -> onnx.TensorProto:
        values = chance.normal(0, (into * size * size) ** -0.5, (out, into, size, size))
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
             helper.make_node("Sigmoid", ["a"], ["g"]), helper.make_node("Mul", ["a", "g"], ["b"]),
             helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("HardSwish", ["c"], ["d"]), helper.make_node("Conv", ["d", "w2"], ["e"]),
             helper.make_node("Tanh", ["e"], ["y"])]
    graph = helper.make_graph(
        nodes, "gated", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 12, 12])],
        [weights("w0", 16, 8, 3), weights("w1", 16, 16, 3), weights("w2", 4, 16, 1)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """The model, two images, and what onnxruntime makes of them."""
    ort = pytest.importorskip("onnxruntime")
    path = gated(tmp_path_factory.mktemp("gated") / "gated.onnx")
    images = np.random.default_rng(0).normal(0, 1, (2, 8, 12, 12)).astype(np.float32)
    session = ort.InferenceSession(str(path))
    return path, images, np.concatenate([session.run(None, {"x": image[None]})[0] for image in images])


@pytest.mark.parametrize("name", TWINS)
def test_all_of_the_network_runs_on_the_machine(name: str, network: tuple[Path, np.ndarray, np.ndarray],
                                                tmp_path: Path) -> None:
    path, images, expected = network
    report = compile_model(path, Arch.load(name), tmp_path, calibration={"x": images})
    made = Network.load(report.model_path)
    assert len(made.parts) == len(made.machines) == 1
    error = Session(made).run({"x": images}).outputs["y"].reshape(expected.shape) - expected
    assert 10 * np.log10(np.sum(expected**2) / np.sum(error**2)) > LEAST_DB


@pytest.mark.parametrize("name", TWINS.values())
def test_without_tables_the_functions_are_the_hosts(name: str, network: tuple[Path, np.ndarray, np.ndarray],
                                                    tmp_path: Path) -> None:
    path, images, _ = network
    with pytest.raises(WeftError, match="Sigmoid"):
        compile_model(path, Arch.load(name), tmp_path, calibration={"x": images})
