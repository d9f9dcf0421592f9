# SPDX-License-Identifier: Apache-2.0
"""Inference of an ONNX model's shapes, types and constants, all together.

A known shape makes constants of the nodes that ask for it, and such a constant makes shapes known. So both are found in
rounds, until nothing new comes. Large constants are kept aside, because shape inference copies the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.errors import reason, refuse
from weft.compiler.frontend.constants import EXPORT_AGAIN, Folder
from weft.compiler.frontend.graph import FLOAT, Shape
from weft.compiler.frontend.last_windows import leave_out_last, may_round_up
from weft.compiler.frontend.onnx_writer import TOLD
from weft.tmodel.onnx_bounds import captured, check_opset, check_shapes
from weft.tmodel.onnx_runnable import ports_of, uninferred_shapes

MOST_ROUNDS = 64

FIRST_OF_ALL_TYPES = 9
"""The first opset in which a node Constant may have integers."""

MOST_PROPAGATED = 1 << 16
"""The most elements of a list that onnx may compute while it infers shapes; each takes it some 70 bytes."""


@dataclass(frozen=True)
class Known:
    """The knowledge of a model: ``nodes`` that are no constants, shapes, constants, and types that are not FLOAT.

    Types have numpy's names."""

    nodes: tuple[onnx.NodeProto, ...]
    shapes: Mapping[str, Shape]
    types: Mapping[str, str]
    constants: Mapping[str, np.ndarray]


def find_known(model: onnx.ModelProto) -> Known:
    """Return the shapes, types and constants of a model whose inputs have fixed shapes; the model is changed.

    Raise WeftError for shapes that do not fit their operators, and for tensors that are too large."""
    proto = model.graph
    folder = Folder(model, {tensor.name: _array(tensor) for tensor in proto.initializer}, {})
    given = {value.name for value in proto.input}
    del proto.initializer[:]
    if check_opset(model) < FIRST_OF_ALL_TYPES:
        _fold_constants(proto, folder)
    _tell(proto, folder.known, given)
    known = -1
    for _ in range(MOST_ROUNDS):
        _leave_out_last_windows(model)
        model = _infer_shapes(model)
        proto, shapes = model.graph, _value_shapes(model.graph)
        _name_types(proto, folder.known)
        kept, made = folder.fold_all(proto.node, shapes)
        _tell(proto, made, given)
        del proto.node[:]
        proto.node.extend(kept)
        if not made and len(shapes) == known:
            break
        known = len(shapes)
    shapes = _value_shapes(proto)
    _drop_empty(proto, {**{key: value.shape for key, value in folder.known.items()}, **shapes})
    drop_unread_nodes(proto)
    return Known(tuple(proto.node), shapes, _value_types(proto), folder.known)


def _fold_constants(graph: onnx.GraphProto, folder: Folder) -> None:
    """Fold nodes Constant of any type; onnx would refuse integers, which old exporters write there as shapes."""
    kept = [node for node in graph.node if node.op_type != "Constant" or folder.fold(node) is None]
    del graph.node[:]
    graph.node.extend(kept)


def _drop_empty(graph: onnx.GraphProto, shapes: Mapping[str, Shape]) -> None:
    """Take what has no elements out of every Concat, such as the cache of a first step."""
    for node in graph.node:
        kept = [name for name in node.input if math.prod(shapes.get(name, ()))]
        if node.op_type == "Concat" and 0 < len(kept) < len(node.input):
            del node.input[:]
            node.input.extend(kept)
            if len(kept) == 1:
                node.op_type = "Identity"
                del node.attribute[:]


def drop_unread_nodes(graph: onnx.GraphProto) -> None:
    """Remove the nodes that no output needs."""
    needed, kept = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update((*node.input, *captured(node)))
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _tell(graph: onnx.GraphProto, constants: Mapping[str, np.ndarray], given: set[str]) -> None:
    """Put constants that may be shapes into the model; of others only their type and shape."""
    for name, value in constants.items():
        if value.size <= TOLD:
            graph.initializer.append(numpy_helper.from_array(value, name))
        elif name not in given:
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))


def _infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every shape that onnx finds. Raise WeftError for a wrong or too large one."""
    inferred = model
    _forget_open(model.graph)
    for propagate in (False, True):  # with data it computes them too, be they ever so many: so first without
        if propagate and _joins_long_lists(inferred.graph):
            break  # constants are folded in any case
        try:
            inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=propagate)
        except Exception as error:
            raise refuse("shapes of the model", reason(error), "shapes that fit their operators",
                         EXPORT_AGAIN) from None
        check_shapes(inferred.graph)
    found = {value.name: value for value in uninferred_shapes(inferred, ports_of(inferred.graph))}
    for value in inferred.graph.value_info:
        if value.name in found:
            value.CopyFrom(found.pop(value.name))
    inferred.graph.value_info.extend(found.values())
    return inferred


def _leave_out_last_windows(model: onnx.ModelProto) -> None:
    """Settle pools whose last windows onnx would count and onnxruntime leaves out, one behind the other.

    What a file says of shapes is forgotten then, since some tools write what onnx says."""
    pools = [node for node in model.graph.node if may_round_up(node)]
    while pools:
        try:
            shapes = _value_shapes(onnx.shape_inference.infer_shapes(model).graph)
        except Exception:  # of no common type; inference in earnest tells it
            return
        changed = next((place for place, node in enumerate(pools)
                        if node.input[0] in shapes and leave_out_last(node, shapes[node.input[0]])), None)
        if changed is None:
            return
        del pools[:changed + 1], model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")


def _joins_long_lists(graph: onnx.GraphProto) -> bool:
    """Tell whether a Concat makes a list that is longer than onnx may compute."""
    joined = {name for node in graph.node if node.op_type == "Concat" for name in node.output}
    return any(len(shape) == 1 and shape[0] > MOST_PROPAGATED
               for name, shape in _value_shapes(graph).items() if name in joined)


def _forget_open(graph: onnx.GraphProto) -> None:
    """Remove names of unknown sizes from an earlier round, which onnx would keep."""
    kept = [value for value in graph.value_info if _is_known(value)]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for value in graph.output:
        if not _is_known(value):
            value.type.tensor_type.ClearField("shape")


def _is_known(value: onnx.ValueInfoProto) -> bool:
    """Tell whether all sizes of a tensor are known."""
    return value.type.tensor_type.HasField("shape") and all(
        entry.HasField("dim_value") for entry in value.type.tensor_type.shape.dim)


def _value_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    """Return the known shapes of a graph's tensors."""
    shapes: dict[str, Shape] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if _is_known(value):
            shapes[value.name] = tuple(entry.dim_value for entry in value.type.tensor_type.shape.dim)
    return shapes


def _name_types(graph: onnx.GraphProto, constants: Mapping[str, np.ndarray]) -> None:
    """Let every CastLike to a known type become a Cast, so that one of a constant is folded."""
    kinds = {value.name: value.type.tensor_type.elem_type
             for value in (*graph.input, *graph.value_info, *graph.output)}
    kinds |= {name: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in constants.items()}
    for node in graph.node:
        if node.op_type == "CastLike" and kinds.get(node.input[1]):
            node.op_type = "Cast"
            node.attribute.append(onnx.helper.make_attribute("to", kinds[node.input.pop()]))


def _value_types(graph: onnx.GraphProto) -> dict[str, str]:
    """Return numpy's names of the types that are not FLOAT."""
    kinds = {value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
             for value in (*graph.input, *graph.value_info, *graph.output) if value.type.tensor_type.elem_type}
    return {name: kind for name, kind in kinds.items() if kind != FLOAT}


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    """Return a constant as an array. Raise CompileError if it cannot be read."""
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:
        raise refuse(f"constant {tensor.name!r} of dimensions {list(tensor.dims)}", reason(error),
                     "data that fill its dimensions", EXPORT_AGAIN) from None
