# SPDX-License-Identifier: Apache-2.0
"""Pools that round their size up, and leave out a window that would begin behind the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from weft.compiler.frontend.known import find_known
from weft.tb.compile.test_rare_files import check, node, normal, saved

WINDOWS: dict[str, dict[str, Any]] = {
    "both axes end early": {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "one axis ends early": {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [0, 1, 0, 1]},
    "dilated": {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 1, 1], "dilations": [1, 2]},
    "less than its stride": {"kernel_shape": [1, 1], "strides": [2, 3]},
}


@pytest.mark.parametrize("opset", [13, 22])
@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
def test_windows_behind_the_image_are_left_out(tmp_path: Path, operator: str, opset: int) -> None:
    nodes = [node(operator, ["x"], ["p"], ceil_mode=1, **WINDOWS["both axes end early"]),
             node("Conv", ["p", "w"], ["y"])]
    check(saved(tmp_path, nodes, (1, 4, 12, 8), {"y": 1}, opset=opset, w=normal(3, 4, 1, 1)), 55)


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
def test_pools_are_as_onnxruntime_has_them(operator: str, window: str, counted: int) -> None:
    """Sizes and values of two pools one behind the other, at heights and widths that end everywhere."""
    given = {**WINDOWS[window], **({"count_include_pad": counted} if operator == "AveragePool" else {})}
    for height, width in ((9, 8), (10, 13), (12, 11)):
        ends = [helper.make_tensor_value_info("x", 1, [1, 2, height, width]),
                helper.make_tensor_value_info("y", 1, None)]
        graph = helper.make_graph([node(operator, ["x"], ["p"], ceil_mode=1, **given),
                                   node(operator, ["p"], ["y"], ceil_mode=1, **given)], "pools", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
        x = {"x": normal(1, 2, height, width)}
        wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)[0]
        settled = onnx.ModelProto.FromString(model.SerializeToString())
        known = find_known(settled)
        assert known.shapes["y"] == wanted.shape
        del settled.graph.node[:]
        settled.graph.node.extend(known.nodes)
        found = onnxruntime.InferenceSession(settled.SerializeToString()).run(None, x)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
