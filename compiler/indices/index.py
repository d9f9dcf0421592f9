# SPDX-License-Identifier: Apache-2.0
"""Index arrays, which say where the elements of a tensor are stored: data movement as arithmetic while compiling.

In memory a tensor is channels x height x width. ``default_place`` gives that form of every shape: axis 1 is the
channels, the last axis the width, everything else (a batch, too) rows. Elements in other places are described by an
index array of the tensor's own shape: element -> flat position in the memory tensor, FILL for a constant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.frontend.graph import Graph, GraphPort, Node, Shape
from weft.compiler.frontend.onnx_writer import IR_VERSION, node_to_onnx
from weft.tmodel.elements import scatter
from weft.tmodel.onnx_engine import run_model
from weft.tmodel.scales import SHIFTS

FILL = -1
"""The index of an element that is a constant."""

SMALL_ENOUGH = 1 << 24
"""The most elements whose indices run through onnxruntime as float32, which holds them exactly."""


KEPT_SIZE = 1 << 14
"""The elements up to which a tensor's index results are cached, as networks repeat the same operators."""


def default_place(shape: Shape) -> tuple[int, int, int, int]:
    """Return (1, channels, height, width): how a tensor of ``shape`` lies in memory without an index array."""
    if len(shape) < 2:
        return 1, 1, 1, math.prod(shape)
    batch, channels, *rest = shape
    return 1, channels, batch * math.prod(rest[:-1]), rest[-1] if rest else 1


def default_index(shape: Shape) -> np.ndarray:
    """Return the index array (int64, of ``shape``) of a tensor that lies in its default place."""
    if len(shape) < 2:
        return np.arange(math.prod(shape)).reshape(shape)
    return np.moveaxis(np.arange(math.prod(shape)).reshape(shape[1], shape[0], *shape[2:]), 0, 1)


def in_memory_order(values: np.ndarray) -> np.ndarray:
    """Return ``values``, an array of the tensor's own shape, as [channels, height, width] in its default place.

    Axis 1 becomes the channels, the last axis the width, and all others the rows. With two axes the width is 1, and
    with fewer all elements lie in one row of one channel."""
    ordered = np.moveaxis(values, 0, 1) if values.ndim >= 2 else values
    return ordered.reshape(default_place(values.shape)[1:])


def run_on_indices(node: Node, opset: int, data: np.ndarray, constants: Mapping[int, np.ndarray],
                   attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """Run an operator that moves elements on their indices; return one int64 array for each output.

    ``data``, int64, takes the place of input 0; ``constants`` has the other inputs by number."""
    names = [f"i{number}" if name else "" for number, name in enumerate(node.inputs)]
    made = node.replace(name="moved", inputs=tuple(names), attributes=attributes,
                        outputs=tuple(f"o{number}" for number in range(len(node.outputs))))
    weights = [numpy_helper.from_array(np.asarray(value), names[number]) for number, value in constants.items()]
    graph = helper.make_graph(
        [node_to_onnx(made)], "indices", [helper.make_tensor_value_info(names[0], TensorProto.FLOAT, data.shape)],
        [onnx.ValueInfoProto(name=name) for name in made.outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    places = (_kept_places if data.size <= KEPT_SIZE else _places)(model.SerializeToString(), data.shape)
    return [np.where(place == FILL, FILL, data.ravel()[place]) for place in places]


def _places(content: bytes, shape: Shape) -> list[np.ndarray]:
    """Return where each element of the outputs o0, o1 ... of a serialised model comes from in its input i0.

    ``shape`` is that of i0; constants have FILL."""
    model = onnx.ModelProto.FromString(content)
    given = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    results = run_model(onnx.shape_inference.infer_shapes(model), {"i0": given})
    return [np.rint(results[value.name]).astype(np.int64) for value in model.graph.output]


_kept_places = lru_cache(maxsize=256)(_places)


def as_order(index: np.ndarray, size: int) -> np.ndarray | None:
    """Return an index array as a port's ``order`` in a memory tensor of ``size`` elements; None for the plain order."""
    order = index.ravel()
    return None if order.size == size and np.array_equal(order, np.arange(size)) else order


def feed(graph: Graph, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the graph's input tensors [1, channels, height, width] by name.

    ``sample`` has a value for each input port by name, of the user's shape."""
    return {port.tensor: _feed(real_values(np.asarray(sample[port.name]), port), port, graph.shapes[port.tensor])
            for port in graph.inputs}


def real_values(values: np.ndarray, port: GraphPort) -> np.ndarray:
    """Return the real numbers that a user's array means: bytes of a quantised input are dequantised."""
    if port.quantized is None:
        return values
    return port.quantized.dequantize(values.astype(np.int64) - SHIFTS[port.type]).astype(np.float32)


def _feed(values: np.ndarray, port: GraphPort, shape: Shape) -> np.ndarray:
    """Return ``values``, an array of the user, as the graph's tensor for an input port.

    The tensor has ``shape`` [1, channels, height, width], and its elements lie as ``port.order`` says. If the port has
    a packing (im2col on the host), the elements are placed in the image before packing, and then packed."""
    if port.packing is None:
        return scatter(values, port.order, shape)
    return port.packing.pack(scatter(values, port.order, (1, *port.packing.source)))
