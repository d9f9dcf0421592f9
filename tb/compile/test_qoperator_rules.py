# SPDX-License-Identifier: Apache-2.0
"""Operators on quantised constants become operators on the numbers that scales of each row or column say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend.qoperators import to_qdq

ROW, COLUMN = np.array([0.5, 0.25], np.float32), np.array([0.125, 2.0, 1.0], np.float32)
BYTES = np.arange(6, dtype=np.int8).reshape(2, 3) - 2


def converted(node: onnx.NodeProto, opset: int = 17, **constants: np.ndarray) -> tuple[onnx.NodeProto, dict]:
    """Return the node of real numbers that a node of bytes becomes, and all constants."""
    known = {"s": np.array(0.5, np.float32), "z": np.array(3, np.int8), "zeros2": np.zeros(2, np.int8),
             "zeros3": np.zeros(3, np.int8), **constants}
    ports = [helper.make_tensor_value_info(name, TensorProto.INT8, shape)
             for name, shape in (("x", [4, 2]), ("y", None))]
    graph = helper.make_graph([node], "graph", ports[:1], ports[1:],
                              [numpy_helper.from_array(np.asarray(value), name) for name, value in known.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    to_qdq(model)
    made = [entry for entry in model.graph.node if not entry.op_type.endswith("Linear")]
    assert len(made) == 1
    return made[0], {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}


def test_a_left_factor_has_its_scales_by_row_and_a_right_one_by_column() -> None:
    left = helper.make_node("QLinearMatMul", ["w", "row", "zeros2", "x", "s", "z", "s", "z"], ["y"])
    made, known = converted(left, w=BYTES, row=ROW)
    np.testing.assert_array_equal(known[made.input[0]], BYTES * ROW[:, None])
    right = helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "column", "zeros3", "s", "z"], ["y"])
    made, known = converted(right, w=BYTES, column=COLUMN)
    np.testing.assert_array_equal(known[made.input[1]], BYTES * COLUMN)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_a_gemm_has_scales_by_output_and_a_bias_in_steps_of_its_product(transposed: int, alpha: float) -> None:
    """Step of the input 1/2, of the weights their own, and of alpha; a Gemm multiplies the product by alpha itself."""
    weights = BYTES.T if transposed else BYTES
    node = helper.make_node("QGemm", ["x", "s", "z", "w", "column", "zeros3", "b", "s", "z"], ["y"],
                            domain="com.microsoft", alpha=alpha, transB=transposed)
    made, known = converted(node, w=weights, column=COLUMN, b=np.array([8, -4, 12], np.int32))
    numbers = known[made.input[1]]
    np.testing.assert_array_equal(numbers.T if transposed else numbers, BYTES * COLUMN)
    np.testing.assert_array_equal(known[made.input[2]], np.array([8, -4, 12], np.float32) * 0.5 * COLUMN * alpha)
    assert {entry.name: helper.get_attribute_value(entry) for entry in made.attribute} == {
        "alpha": alpha, "transB": transposed}


@pytest.mark.parametrize(("opset", "own", "axis", "allowed"), [
    (17, 13, 1, True), (17, 12, 1, False), (17, 12, -1, True), (11, 12, 1, True), (11, 13, 1, False),
    (11, 13, -1, True)])
def test_a_softmax_is_of_its_files_kind_or_over_the_last_axis(opset: int, own: int, axis: int, allowed: bool) -> None:
    """It is over one axis as of opset 13, and over all from that one on before."""
    node = helper.make_node("QLinearSoftmax", ["x", "s", "z", "s", "z"], ["y"], domain="com.microsoft", axis=axis,
                            opset=own)
    if allowed:
        made, _ = converted(node, opset)
        assert made.op_type == "Softmax"
        return
    with pytest.raises(CompileError, match="attribute opset"):
        converted(node, opset)
