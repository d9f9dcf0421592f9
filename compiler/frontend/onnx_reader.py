"""ONNX file -> graph: shapes inferred, constants folded, an open batch becomes 1.

Opsets 7 and newer. Differences between opsets that concern us (where a number is an attribute in one and an input
in another) are evened out where the operator is handled, by ``passes/normalise.py``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.constants import Folder
from weft.compiler.frontend.graph import Graph, GraphPort, Node, Shape
from weft.hw.contract.errors import WeftError
from weft.runtime.files import read_bytes
from weft.runtime.onnx_bounds import check_content, check_shapes, graphs

OLDEST_OPSET = 7
MOST_BYTES = 512 << 20
"""Of a model's file: more constants than any preset's DRAM holds."""
FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})
EXPORT_AGAIN = "export the model again as ONNX with fixed shapes"


def load_onnx(path: Path, outputs: Sequence[str] = ()) -> onnx.ModelProto:
    """The model in a file, ending at the tensors ``outputs`` where some are given, its batch fixed.

    Raises CompileError for a file that is missing, broken or of an open shape, and for an output that it has not.
    """
    model = _load(path)
    _opset(model)
    if outputs:
        _choose_outputs(model.graph, outputs)
    _drop_unread_nodes(model.graph)
    fix_batch(model.graph)
    return model


def to_graph(model: onnx.ModelProto, name: str) -> Graph:
    """The model as a graph: constants folded, every shape known. Raises CompileError for shapes that are not."""
    return _to_graph(_infer_shapes(_fold_constants(_infer_shapes(model))), name, _opset(model))


def _load(path: Path) -> onnx.ModelProto:
    content = read_bytes(path, "model file", "give an .onnx or .pb file", MOST_BYTES)
    try:
        model = onnx.ModelProto.FromString(content)
        check_content(model, path.parent)
        _drop_functions(model)
        onnx.load_external_data_for_model(model, str(path.parent))
        onnx.checker.check_model(model)
        _need_text(model.graph)
    except WeftError:
        raise
    except Exception as error:  # protobuf, the checker and external data each raise types of their own
        raise refuse(f"model file {path}", f"not a valid ONNX model ({reason(error)})",
                     "a file that onnx.checker accepts", EXPORT_AGAIN) from None
    return model


def _drop_functions(model: onnx.ModelProto) -> None:
    """Functions of the model itself that nobody calls. Raises WeftError for a call: they may call each other."""
    own = {(function.domain, function.name) for function in model.functions}
    for node in (node for graph in graphs(model.graph) for node in graph.node):
        if (node.domain, node.op_type) in own:
            raise refuse(f"node {node.name!r}", f"a call of the model's function {node.op_type!r}", "operators of ONNX",
                         "write the functions out with onnx.inliner.inline_local_functions")
    del model.functions[:]


def _need_text(graph: onnx.GraphProto) -> None:
    """protobuf gives a name that is no UTF-8 as bytes."""
    names = [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
    for node in graph.node:
        names += [node.name, node.op_type, *node.input, *node.output]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"name {name!r} is no UTF-8")


def _opset(model: onnx.ModelProto) -> int:
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < OLDEST_OPSET:
        raise refuse("opset of the model", opset, f"{OLDEST_OPSET} or newer",
                     "convert it with onnx.version_converter.convert_version")
    return opset


def _choose_outputs(graph: onnx.GraphProto, outputs: Sequence[str]) -> None:
    made = dict.fromkeys(name for node in graph.node for name in node.output if name)
    for name in outputs:
        if name not in made:
            raise unknown_output(name, [value.name for value in graph.output], list(made))
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)


def _drop_unread_nodes(graph: onnx.GraphProto) -> None:
    """Those that no output needs."""
    needed, kept = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def unknown_output(name: str, ends: Sequence[str], names: Sequence[str]) -> CompileError:
    """The error for an output that a network with these ``ends`` and other ``names`` has not."""
    near = difflib.get_close_matches(name, names, 1, 0.6)
    return refuse("--output", repr(name), f"a tensor of the network, such as its ends {', '.join(map(repr, ends))}",
                  f"did you mean {near[0]!r}?" if near else "choose one of them")


def fix_batch(graph: onnx.GraphProto) -> None:
    """A batch that is open becomes 1; any other open dimension is an error."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in weights:
            continue
        _need_float(value)
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if axis == 0 and not dimension.HasField("dim_value"):
                dimension.dim_value = 1
            elif dimension.dim_value < 1:
                found = dimension.dim_value or dimension.dim_param or "unknown"
                raise refuse(f"input {value.name!r}, dimension {axis}", found, "fixed sizes of at least 1",
                             "fix the dimensions with onnx.tools.update_model_dims.update_inputs_outputs_dims")
    for value in graph.output:
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]


def _need_float(value: onnx.ValueInfoProto) -> None:
    kind = value.type.tensor_type.elem_type
    if kind not in FLOATS:
        known = kind in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(kind).lower() if known else f"number {kind}"
        found = name if value.type.HasField("tensor_type") else "no tensor"
        raise refuse(f"type of input {value.name!r}", found, "float, float16, double",
                     "compute in floating point; the machine's fixed point is chosen when compiling")


def _infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every shape that onnx finds, none of them too large. Raises WeftError."""
    inferred = model
    for propagate in (False, True):  # with data it computes them too, be they ever so many: so first without
        try:
            inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=propagate)
        except Exception as error:
            raise refuse("shapes of the model", reason(error), "shapes that fit their operators",
                         EXPORT_AGAIN) from None
        check_shapes(inferred.graph)
    return inferred


def _value_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dimensions):
            shapes[value.name] = tuple(d.dim_value for d in dimensions)
    return shapes


def _fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Nodes whose inputs are all constant become initializers; so do Shape and Size of a tensor with a known shape."""
    graph, kept = model.graph, []
    folder = Folder(model, {tensor.name: _array(tensor) for tensor in graph.initializer}, _value_shapes(graph))
    for node in graph.node:
        made = folder.fold(node)
        if made is None:
            kept.append(node)
            continue
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in made.items())
    del graph.node[:]
    graph.node.extend(kept)
    return model


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:
        raise refuse(f"constant {tensor.name!r} of dimensions {list(tensor.dims)}", reason(error),
                     "data that fill its dimensions", EXPORT_AGAIN) from None


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    try:
        return {attribute.name: _plain(onnx.helper.get_attribute_value(attribute)) for attribute in node.attribute}
    except Exception as error:
        raise refuse(f"attributes of node {node.name!r}, {node.op_type}", reason(error), "values of their types",
                     EXPORT_AGAIN) from None


def _plain(value: Any) -> Any:
    """bytes -> str, lists -> tuples, tensors -> arrays."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return tuple(value) if isinstance(value, list) else value


def _to_graph(model: onnx.ModelProto, name: str, opset: int) -> Graph:
    proto = model.graph
    shapes = _value_shapes(proto)
    constants = {tensor.name: _array(tensor) for tensor in proto.initializer}
    nodes = tuple(Node(node.name or node.output[0], node.op_type, tuple(node.input), tuple(node.output),
                       _attributes(node)) for node in proto.node)
    for node in nodes:
        missing = [output for output in node.outputs[:1] if output not in shapes]
        if missing:
            raise refuse(f"shape of tensor {missing[0]!r} (node {node.name!r}, {node.op})", "unknown",
                         "a shape that ONNX shape inference finds", EXPORT_AGAIN)
        if node.outputs and not math.prod(shapes[node.outputs[0]]):
            raise refuse(f"shape of tensor {node.outputs[0]!r} (node {node.name!r}, {node.op})",
                         shapes[node.outputs[0]], "at least one element", EXPORT_AGAIN)
    for constant in sorted({name for node in nodes for name in node.inputs} & constants.keys()):
        if constants[constant].dtype.kind == "f" and np.isnan(constants[constant]).any():
            raise refuse(f"constant {constant!r}", "NaN", "numbers", EXPORT_AGAIN)
    if not nodes or not proto.output:
        raise refuse("the model", "no node" if not nodes else "no output", "a network with an output that is computed",
                     EXPORT_AGAIN)
    inputs = tuple(GraphPort(value.name, shapes[value.name], value.name) for value in proto.input
                   if value.name not in constants)
    outputs = tuple(GraphPort(value.name, shapes[value.name], value.name) for value in proto.output)
    return Graph(name, nodes, inputs, outputs, shapes, constants, opset)
