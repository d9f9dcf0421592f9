"""Bounds of an ONNX model, checked before anything of its sizes is made: a file of 100 bytes can ask for terabytes.

Import it where onnx is needed anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import external_data_helper

from weft.hw.contract.errors import WeftError, explain

MOST_ELEMENTS = 1 << 26
"""Of a tensor: more than the DRAM of any preset holds."""

MOST_TOGETHER = 1 << 28
"""Of all tensors that a network computes."""

MOST_NODES = 1 << 14

MOST_DIMENSIONS = 32
"""Of a tensor."""

EXPORT_AGAIN = "export the model again as ONNX with fixed shapes, smaller"


def _refuse(what: str, found: object, allowed: str, way_out: str = EXPORT_AGAIN) -> WeftError:
    return WeftError(explain(what, found, allowed, way_out))


# -- what stands in the file -------------------------------------------------------------------------------------------
def check_content(model: onnx.ModelProto, folder: Path | None) -> None:
    """The number of nodes, and the dimensions of every constant. Data outside the file must lie in ``folder``, whole.

    Raises WeftError.
    """
    nodes = 0
    for graph in graphs(model.graph):
        nodes += len(graph.node)
        if nodes > MOST_NODES:
            raise _refuse("the model", f"more than {MOST_NODES} nodes", f"at most {MOST_NODES}", "split the network")
        for tensor in _tensors(graph):
            check_size(f"constant {tensor.name!r}", tuple(tensor.dims))
            if external_data_helper.uses_external_data(tensor):
                _check_outside(tensor, folder)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside its nodes; protobuf itself bounds how deep they lie."""
    yield graph
    for node in graph.node:
        for inner in _inner(node):
            yield from graphs(inner)


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def has_graph(node: onnx.NodeProto) -> bool:
    """Whether it is a loop, a choice or the like."""
    return next(_inner(node), None) is not None


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    sparse = list(graph.sparse_initializer)
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                sparse.append(attribute.sparse_tensor)
            sparse += attribute.sparse_tensors
    for entry in sparse:
        check_size(f"constant {entry.values.name!r}", tuple(entry.dims))
        yield entry.values
        yield entry.indices


def _check_outside(tensor: onnx.TensorProto, folder: Path | None) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    what, location = f"data of constant {tensor.name!r}", entries.get("location", "")
    if folder is None:
        raise _refuse(what, f"a file of its own, {location!r}", "data in the model itself")
    path = (folder / location.replace("\0", "?")).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise _refuse(what, f"the file {location!r}", f"a file in {folder}", "keep the model and its data together")
    try:
        first, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        raise _refuse(what, f"offset {entries.get('offset')!r}, length {entries.get('length')!r}", "numbers") from None
    needed, size = math.prod(tensor.dims) * _bits(tensor) // 8, path.stat().st_size
    if min(first, length) < 0 or first + max(length, needed) > size or length > needed > 0:
        raise _refuse(what, f"{length} bytes from byte {first} of the {size} of {location!r}",
                      f"the {needed} bytes of its dimensions", "keep the model and its data together")


def _bits(tensor: onnx.TensorProto) -> int:
    name = onnx.TensorProto.DataType.Name(tensor.data_type) if tensor.data_type in _TYPES else ""
    if name.endswith("INT4") or name == "FLOAT4E2M1":
        return 4
    if name.endswith("INT2"):
        return 2
    return 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize if name else 8


_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


# -- what it computes --------------------------------------------------------------------------------------------------
def check_size(what: str, shape: tuple[int, ...]) -> int:
    """The elements of a tensor. Raises WeftError where they are too many."""
    elements = math.prod(shape)
    if len(shape) > MOST_DIMENSIONS:
        raise _refuse(f"shape of {what}", f"{len(shape)} dimensions", f"at most {MOST_DIMENSIONS}")
    if elements > MOST_ELEMENTS or min(shape, default=0) < 0:
        raise _refuse(f"shape of {what}", list(shape), f"at most {MOST_ELEMENTS} elements")
    return elements


def check_shapes(graph: onnx.GraphProto) -> None:
    """Every tensor whose shape is known, alone and together. Raises WeftError."""
    together = 0
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            shape = tuple(entry.dim_value for entry in value.type.tensor_type.shape.dim)
            together += check_size(f"tensor {value.name!r}", shape)
    if together > MOST_TOGETHER:
        raise _refuse("tensors of the model", f"{together} elements together", f"at most {MOST_TOGETHER}")


def check_runnable(model: onnx.ModelProto) -> None:
    """A model that is to run as it is: sizes known and bounded, no loop. Raises WeftError."""
    check_content(model, None)
    for propagate in (False, True):  # with data it computes them too, be they ever so many: so first without
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=propagate)
        check_shapes(inferred.graph)
    known = {value.name for value in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)
             if all(entry.HasField("dim_value") for entry in value.type.tensor_type.shape.dim)
             and value.type.tensor_type.HasField("shape")}
    for node in inferred.graph.node:
        if has_graph(node) or (node.output and node.output[0] not in known):
            raise _refuse(f"node {node.name!r}, operator {node.op_type}", "a result whose size is not known",
                          "operators whose shapes ONNX finds")
