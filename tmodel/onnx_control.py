# SPDX-License-Identifier: Apache-2.0
"""Choices and loops of an ONNX model: each graph within a node as a model, and how often it runs.

It imports onnx; import it where onnx is needed anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.tmodel.onnx_bounds import captured
from weft.tmodel.onnx_work import Shape

Ports = Mapping[str, tuple[np.dtype, Shape]]
"""Name -> type and shape."""

CHOICE, LOOP, SCAN = "If", "Loop", "Scan"
CONTROL = frozenset({CHOICE, LOOP, SCAN})

LOOP_HEAD = 2
"""The inputs of a Loop before those that it carries: the number of iterations, and whether to begin."""


class Body(NamedTuple):
    """A graph within a node, as a model.

    ``turns``: how often it runs at most, None if only values tell. ``carried``: how many of its outputs, after the
    first ``skipped``, are inputs of its next iteration."""

    model: onnx.ModelProto
    turns: int | None
    carried: int = 0
    skipped: int = 0


def bodies(model: onnx.ModelProto, node: onnx.NodeProto, known: Ports) -> list[Body]:
    """Return the graphs of a node of ``CONTROL``, with inputs of the sizes in ``known``.

    Raise KeyError for an input that is not known, and ValueError for attributes that do not fit."""
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    if node.op_type == CHOICE:
        return [Body(_alone(model, node, attributes[name], [], known), 1) for name in ("then_branch", "else_branch")]
    inputs = [known[name] if name else None for name in node.input]
    body = attributes["body"]
    if node.op_type == LOOP:
        states = [entry for entry in inputs[LOOP_HEAD:] if entry is not None]
        given = [(np.dtype(np.int64), ()), (np.dtype(bool), ()), *states]
        return [Body(_alone(model, node, body, given, known), _turns(model, node.input[0]), len(states), 1)]
    count = attributes["num_scan_inputs"]
    states = [entry for entry in inputs if entry is not None]
    first, scanned = states[:len(states) - count], states[len(states) - count:]
    axes = attributes.get("scan_input_axes") or [0] * count
    if not scanned or len(axes) != count or any(not -len(shape) <= axis < len(shape)
                                                for (_, shape), axis in zip(scanned, axes, strict=True)):
        raise ValueError("axes of what it scans")
    slices = [(kind, tuple(np.delete(shape, axis).tolist())) for (kind, shape), axis in zip(scanned, axes, strict=True)]
    return [Body(_alone(model, node, body, [*first, *slices], known), scanned[0][1][axes[0]], len(first))]


def _turns(model: onnx.ModelProto, name: str) -> int | None:
    """Return the number of iterations in the constant ``name``, or None if it is no constant."""
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return max(int(numpy_helper.to_array(tensor).reshape(-1)[0]), 0)
    return None


def _alone(model: onnx.ModelProto, node: onnx.NodeProto, graph: onnx.GraphProto,
           given: list[tuple[np.dtype, Shape]], known: Ports) -> onnx.ModelProto:
    """Return a graph as a model; its inputs are ``given``, and tensors of the surrounding graph that it reads."""
    if len(given) != len(graph.input):
        raise ValueError("the number of its graph's inputs")
    alone = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    alone.graph.CopyFrom(graph)
    del alone.graph.input[:], alone.graph.value_info[:]
    ports = dict(zip((value.name for value in graph.input), given, strict=True))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in captured(node):
        if name in weights:
            alone.graph.initializer.append(weights[name])
        else:
            ports[name] = known[name]
    alone.graph.input.extend(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
                             for name, (kind, shape) in ports.items())
    for value in alone.graph.output:
        value.ClearField("type")
    return alone
