# SPDX-License-Identifier: Apache-2.0
"""Models on onnxruntime: what its optimisers fail at still runs, and it prints nothing."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from weft.tmodel.onnx_engine import session


def fused_output() -> onnx.ModelProto:
    """A sum of two convolutions by channel, of six channels, of which one is an output too.

    onnxruntime 1.31 fuses it with the sum on processors with AVX, and then misses it."""
    random = np.random.default_rng(6)
    weights = {"w": random.standard_normal((6, 12, 3, 3)), "d": random.standard_normal((6, 1, 8, 8)), "b": np.zeros(6)}
    nodes = [helper.make_node("Conv", [name, "w", "b"], [f"{name}1"], pads=[1] * 4) for name in "xz"]
    nodes += [helper.make_node("Conv", [f"{name}1", "d", "b"], [f"{name}2"], group=6) for name in "xz"]
    nodes.append(helper.make_node("Add", ["z2", "x2"], ["y"]))
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
              {"x": [1, 12, 8, 8], "z": [1, 12, 8, 8], "x2": [1, 6, 1, 1], "y": [1, 6, 1, 1]}.items()}
    graph = helper.make_graph(nodes, "net", [values["x"], values["z"]], [values["x2"], values["y"]], [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_failing_optimiser_is_done_without(capfd: pytest.CaptureFixture[str]) -> None:
    model = fused_output()
    given = {name: np.random.default_rng(1).standard_normal((1, 12, 8, 8)).astype(np.float32) for name in "xz"}
    found = session(model).run(None, given)
    for value, wanted in zip(found, ReferenceEvaluator(model).run(None, given), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-3, atol=1e-4)
    assert capfd.readouterr() == ("", "")


def test_a_refused_model_is_raised_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    model = fused_output()
    model.graph.node[-1].op_type = "Sums"
    with pytest.raises(Exception, match="Sums") as caught:
        session(model)
    assert type(caught.value).__module__.startswith(onnxruntime.__name__)
    assert capfd.readouterr() == ("", "")
