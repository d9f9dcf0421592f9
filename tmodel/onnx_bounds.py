# SPDX-License-Identifier: Apache-2.0
"""Bounds of an ONNX model, checked before anything is made: a file of 100 bytes can ask for terabytes.

It imports onnx; import it where onnx is needed anyway."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import external_data_helper

from weft.support.errors import WeftError, explain

MOST_ELEMENTS = 1 << 26
"""The most elements of a tensor: more than the DRAM of any preset holds."""

MOST_TOGETHER = 1 << 28
"""The most elements of all tensors that a network computes."""

MOST_NODES = 1 << 14

MOST_OUTPUTS = 1 << 11
"""The most outputs of a node: onnxruntime takes a second for 4000, and time grows as their square."""

MOST_TENSORS = 1 << 15
"""The most tensors that nodes make."""

MOST_DIMENSIONS = 32
"""The most dimensions of a tensor."""

MOST_NAME = 4096
"""The most characters of a name: a compiled model has no room for more."""

OLDEST_OPSET, NEWEST_OPSET = 7, onnx.defs.onnx_opset_version()

EXPORT_AGAIN = "export the model again as ONNX with fixed shapes, smaller"


def _refuse(what: str, found: object, allowed: str, way_out: str = EXPORT_AGAIN) -> WeftError:
    """Return the error for a model beyond the bounds."""
    return WeftError(explain(what, found, allowed, way_out))


# -- what stands in the file -------------------------------------------------------------------------------------------
def check_content(model: onnx.ModelProto, folder: Path | None) -> bool:
    """Check the number of nodes and outputs, and the dimensions of every constant. Raise WeftError.

    Data outside the file must lie in ``folder``, whole. Return whether there are any."""
    nodes, tensors, outside = 0, 0, False
    for graph in graphs(model.graph):
        nodes += len(graph.node)
        if nodes > MOST_NODES:
            raise _refuse("the model", f"more than {MOST_NODES} nodes", f"at most {MOST_NODES}", "split the network")
        for node in graph.node:
            tensors += len(node.output)
            if len(node.output) > MOST_OUTPUTS:
                raise _refuse(f"node {node.name or node.output[0]!r}, operator {node.op_type}",
                              f"{len(node.output)} outputs", f"at most {MOST_OUTPUTS}", "split the network")
        if tensors > MOST_TENSORS:
            raise _refuse("the model", f"more than {MOST_TENSORS} results of nodes", f"at most {MOST_TENSORS}",
                          "split the network")
        for tensor in _tensors(graph):
            check_size(f"constant {tensor.name!r}", tuple(tensor.dims))
            if external_data_helper.uses_external_data(tensor):
                _check_outside(tensor, folder)
                outside = True
    return outside


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and those inside its nodes; protobuf itself bounds how deep they lie."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from graphs(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that are attributes of a node."""
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def has_graph(node: onnx.NodeProto) -> bool:
    """Tell whether a node contains a graph: it is a loop, a choice or the like."""
    return next(inner_graphs(node), None) is not None


def captured(node: onnx.NodeProto) -> list[str]:
    """Return the tensors of the surrounding graph that a node's own graphs read, each once, in order."""
    read: dict[str, None] = {}
    for inner in inner_graphs(node):
        made = {value.name for value in inner.input} | {tensor.name for tensor in inner.initializer}
        for entry in inner.node:
            read |= dict.fromkeys(name for name in (*entry.input, *captured(entry)) if name and name not in made)
            made.update(entry.output)
        read |= dict.fromkeys(value.name for value in inner.output if value.name not in made)
    return list(read)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the constants of a graph, sparse ones and those in attributes too."""
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
    """Raise WeftError unless a constant's data lie in a file in ``folder``, whole."""
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
    """Return the bits of an element of a constant."""
    name = onnx.TensorProto.DataType.Name(tensor.data_type) if tensor.data_type in _TYPES else ""
    if name.endswith("INT4") or name == "FLOAT4E2M1":
        return 4
    if name.endswith("INT2"):
        return 2
    return 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize if name else 8


_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


# -- names and version -------------------------------------------------------------------------------------------------
def check_opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators. Raise WeftError for several, and for an unknown one."""
    opsets = {entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")}
    if len(opsets) > 1:
        raise _refuse("opsets of the model", ", ".join(map(str, sorted(opsets))), "one opset of ONNX's own operators",
                      "convert its parts to one opset with onnx.version_converter.convert_version, then join them")
    opset = max(opsets, default=0)
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise _refuse("opset of the model", opset, f"{OLDEST_OPSET} to {NEWEST_OPSET}",
                      "convert it with onnx.version_converter.convert_version, or export it for such an opset")
    return opset


def check_names(graph: onnx.GraphProto) -> None:
    """Raise WeftError unless every tensor is made once and listed once."""
    inputs, outputs = ([value.name for value in values] for values in (graph.input, graph.output))
    weights = [tensor.name for tensor in (*graph.initializer, *(entry.values for entry in graph.sparse_initializer))]
    made = [name for node in graph.node for name in node.output if name]
    given = {*inputs, *weights}
    for kind, names in (("input", inputs), ("output", outputs), ("initializer", weights), ("result of a node", made)):
        for name, count in Counter(names).items():
            if count > 1:
                raise _refuse(f"{kind} {name!r}", f"it stands in the model {count} times", "a name of its own for each",
                              RENAME)
            if len(name) > MOST_NAME or not name:
                raise _refuse(f"{kind} {name!r}", f"a name of {len(name)} characters", f"1 to {MOST_NAME}", RENAME)
            if kind == "result of a node" and name in given:
                raise _refuse(f"result {name!r} of a node", "the name of an input or initializer, too",
                              "a name of its own for each", RENAME)


RENAME = "give every tensor a name of its own, and export the model again"


# -- what it computes --------------------------------------------------------------------------------------------------
def check_size(what: str, shape: tuple[int, ...]) -> int:
    """Return the elements of a tensor. Raise WeftError if they or its dimensions are too many."""
    elements = math.prod(shape)
    if len(shape) > MOST_DIMENSIONS:
        raise _refuse(f"shape of {what}", f"{len(shape)} dimensions", f"at most {MOST_DIMENSIONS}")
    if elements > MOST_ELEMENTS or min(shape, default=0) < 0:
        raise _refuse(f"shape of {what}", list(shape), f"at most {MOST_ELEMENTS} elements")
    return elements


def check_shapes(graph: onnx.GraphProto) -> None:
    """Check every tensor whose shape is known, alone and together. Raise WeftError beyond the bounds."""
    together = 0
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            shape = tuple(entry.dim_value for entry in value.type.tensor_type.shape.dim)
            together += check_size(f"tensor {value.name!r}", shape)
    if together > MOST_TOGETHER:
        raise _refuse("tensors of the model", f"{together} elements together", f"at most {MOST_TOGETHER}")
