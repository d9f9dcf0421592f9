# SPDX-License-Identifier: Apache-2.0
"""Rare forms in files: what few exporters write, and what only files made by hand ask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend.inputs import settle_inputs
from weft.compiler.frontend.tensorflow_reader import FREEZE, convertible, mend_converted

FILE = Path("graph.pb")


# -- what tf2onnx makes of a frozen graph, without TensorFlow ----------------------------------------------------------
def converted(*nodes: onnx.NodeProto, shape: list[int] | None = None, **weights: np.ndarray) -> onnx.ModelProto:
    """A model with one input ``x:0``; without ``shape`` it has none, as of a placeholder of any rank."""
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info("x:0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_input_without_a_shape_takes_what_is_given() -> None:
    graph = converted(helper.make_node("Relu", ["x:0"], ["y:0"])).graph
    with pytest.raises(CompileError, match=r"input 'x:0': found no shape; allowed: a shape of fixed sizes; way out: "
                                           r"give it: --shape x:0:1,3,224,224"):
        settle_inputs(graph, {}, {})
    with pytest.raises(CompileError, match=r"--shape x:0: found 0,2; allowed: sizes that fit \?,\?"):
        settle_inputs(graph, {"x:0": (0, 2)}, {})
    graph = converted(helper.make_node("Relu", ["x:0"], ["y:0"])).graph
    settle_inputs(graph, {"x:0": (1, 2, 5)}, {})
    assert [entry.dim_value for entry in graph.input[0].type.tensor_type.shape.dim] == [1, 2, 5]


def test_scales_of_a_converted_resize_make_whole_sizes() -> None:
    """9 pixels times the number below 17/9 are 16 pixels in ONNX, and 17 in TensorFlow."""
    below = np.float32(17 / 9)
    assert np.floor(np.float64(below) * 9) == 16
    nodes = [helper.make_node("Resize", ["x:0", "", "scales"], ["r:0"]),
             helper.make_node("Resize", ["r:0"], ["s:0"]), helper.make_node("Mul", ["s:0", "other"], ["y:0"])]
    scales, other = np.array([1, 1, below, 2], np.float32), np.array([below], np.float32)
    model = converted(*nodes, scales=scales, other=other)
    mend_converted(FILE, model, {"y:0": "y"})
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert np.floor(found["scales"].astype(np.float64) * [1, 3, 9, 9]).tolist() == [1, 3, 17, 18]
    assert found["scales"][[0, 1, 3]].tolist() == [1, 1, 2] and found["other"] == other


def test_a_converted_model_has_the_names_of_the_graphs_nodes() -> None:
    model = converted(helper.make_node("Relu", ["x:0"], ["r:0"]), helper.make_node("Neg", ["r:0"], ["y:0"]))
    mend_converted(FILE, model, {"x:0": "x", "y:0": "y"})
    assert [(list(node.input), list(node.output)) for node in model.graph.node] == [(["x"], ["r:0"]), (["r:0"], ["y"])]
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["x", "y"]


@pytest.mark.parametrize(("op", "domain"), [("Bucketize", ""), ("Relu", "ai.onnx.contrib")])
def test_an_operator_that_tf2onnx_leaves_is_named(op: str, domain: str) -> None:
    model = converted(helper.make_node(op, ["x:0"], ["y:0"], name="strange", domain=domain))
    with pytest.raises(CompileError, match=f"node 'strange' of graph.pb, operator {op}: found no ONNX operator for it"):
        mend_converted(FILE, model, {})


def test_errors_of_a_converter_become_one_message() -> None:
    said = "model file graph.pb: found something that tf2onnx cannot convert .*two words"
    with pytest.raises(CompileError, match=said), convertible(FILE, "a frozen inference graph", FREEZE):
        raise KeyError("two words")
    with pytest.raises(CompileError, match="^node 'a': found b"), convertible(FILE, "anything", FREEZE):
        raise refuse("node 'a'", "b", "c", "d")
    with convertible(FILE, "anything", FREEZE):
        pass
