# SPDX-License-Identifier: Apache-2.0
"""The bounds of what is read from outside, stated by hand: a bound that moves is a decision, and shows here."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.tmodel import onnx_bounds, onnx_control

BOUNDS = {"MOST_ELEMENTS": 67_108_864, "MOST_TOGETHER": 268_435_456, "MOST_NODES": 16_384, "MOST_OUTPUTS": 2_048,
          "MOST_TENSORS": 32_768, "MOST_DIMENSIONS": 32, "MOST_NAME": 4_096, "OLDEST_OPSET": 7}


def test_the_bounds_of_a_network() -> None:
    assert {name: getattr(onnx_bounds, name) for name in BOUNDS} == BOUNDS


@pytest.mark.parametrize(("axis", "turns", "slices"), [(0, 3, (4, 5)), (2, 5, (3, 4)), (-1, 5, (3, 4)),
                                                       (-3, 3, (4, 5))])
def test_a_scan_over_an_axis(axis: int, turns: int, slices: tuple[int, ...]) -> None:
    """Counted from the end too, down to the first."""
    inner = helper.make_graph([helper.make_node("Relu", ["s"], ["t"])], "body",
                              [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
                              [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
    node = helper.make_node("Scan", ["x"], ["y"], body=inner, num_scan_inputs=1, scan_input_axes=[axis])
    model = helper.make_model(helper.make_graph([node], "net", [], []), opset_imports=[helper.make_opsetid("", 17)])
    body, = onnx_control.bodies(model, node, {"x": (np.dtype(np.float32), (3, 4, 5))})
    assert body.turns == turns
    assert [each.dim_value for each in body.model.graph.input[0].type.tensor_type.shape.dim] == list(slices)


@pytest.mark.parametrize("axis", [3, -4])
def test_a_scan_over_an_axis_that_is_not_there(axis: int) -> None:
    node = helper.make_node("Scan", ["x"], ["y"], body=onnx.GraphProto(), num_scan_inputs=1, scan_input_axes=[axis])
    with pytest.raises(ValueError, match="axes of what it scans"):
        onnx_control.bodies(onnx.ModelProto(), node, {"x": (np.dtype(np.float32), (3, 4, 5))})
