# SPDX-License-Identifier: Apache-2.0
"""Convert an ONNX model to single precision, whatever the file has; the machine's numbers follow later.

Casts from one real type to another then do nothing, and become Identity."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from weft.tmodel.onnx_bounds import graphs

OTHER_REALS = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype"})


def is_half(model: onnx.ModelProto) -> bool:
    """Tell whether anything in a model has fewer bits than single precision."""
    half = OTHER_REALS - {TensorProto.DOUBLE}
    return any(kind in half for graph in graphs(model.graph) for kind in _types(graph))


def to_single(model: onnx.ModelProto) -> None:
    """Convert weights, constants, casts, inputs and outputs to single precision."""
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            _convert(tensor)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in OTHER_REALS:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    _convert(attribute.t)
                if attribute.name in TYPE_ATTRIBUTES and attribute.i in OTHER_REALS:
                    attribute.i = TensorProto.FLOAT


def _convert(tensor: onnx.TensorProto) -> None:
    """Convert a constant to single precision."""
    if tensor.data_type in OTHER_REALS:
        with np.errstate(over="ignore"):
            values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _types(graph: onnx.GraphProto) -> Iterable[int]:
    """Yield the types that occur in a graph."""
    yield from (tensor.data_type for tensor in graph.initializer)
    yield from (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output))
    for node in graph.node:
        yield from (attribute.i for attribute in node.attribute if attribute.name in TYPE_ATTRIBUTES)
