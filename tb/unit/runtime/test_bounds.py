# SPDX-License-Identifier: Apache-2.0
"""The bounds of what is read from outside, stated by hand: a bound that moves is a decision, and shows here."""

from __future__ import annotations

from typing import get_args

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.support.errors import WeftError
from weft.tmodel import onnx_bounds, onnx_control, schema

BOUNDS = {"MOST_ELEMENTS": 67_108_864, "MOST_TOGETHER": 268_435_456, "MOST_NODES": 16_384, "MOST_OUTPUTS": 2_048,
          "MOST_TENSORS": 32_768, "MOST_DIMENSIONS": 32, "MOST_NAME": 4_096, "OLDEST_OPSET": 7}


RANGES = {
    "Address": (0, 4_294_967_296), "Size": (0, 4_294_967_296), "Number": (-281_474_976_710_656, 281_474_976_710_656),
    "Dimension": (1, 4_294_967_296), "Step": (1, 65_536), "Count": (0, 9_223_372_036_854_775_807),
    "Point": (-1022, 1023), "Byte": (-128, 127), "Version": (1, 65_536)}
"""Kinds of numbers in a ``.tmodel``: the first and the last that is allowed."""
LENGTHS = {"Name": (1, 4_096), "FileName": (1, 255)}


@pytest.mark.parametrize("name", RANGES)
def test_a_number_of_a_compiled_model_is_within_its_range(name: str) -> None:
    meta = get_args(getattr(schema, name))[1]
    assert (meta.ge, meta.le, meta.gt, meta.lt) == (*RANGES[name], None, None)


@pytest.mark.parametrize("name", LENGTHS)
def test_a_text_of_a_compiled_model_is_within_its_lengths(name: str) -> None:
    meta = get_args(getattr(schema, name))[1]
    assert (meta.min_length, meta.max_length) == LENGTHS[name]


def test_lists_and_scales_of_a_compiled_model_are_bounded() -> None:
    assert (schema.Axes.max_length, schema.Few.max_length) == (32, 1024)
    scale = get_args(schema.Scale)[1]
    assert (scale.ge, scale.lt) == (np.finfo(np.float32).tiny, 2.0 ** 127)


def test_the_bounds_of_a_network() -> None:
    assert {name: getattr(onnx_bounds, name) for name in BOUNDS} == BOUNDS


@pytest.mark.parametrize(("versions", "found"), [((), "0"), ((6,), "6"), ((99,), "99")])
def test_an_opset_that_is_too_old_or_too_new_is_told(versions: tuple[int, ...], found: str) -> None:
    """A file without any has opset 0, as if it named none."""
    model = helper.make_model(helper.make_graph([], "net", [], []))
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid("", version) for version in versions)
    with pytest.raises(WeftError, match=rf"found {found}\b"):
        onnx_bounds.check_opset(model)


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
