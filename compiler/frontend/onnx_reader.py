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
from onnx.reference import ReferenceEvaluator

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.graph import Graph, GraphPort, Node, Shape

OLDEST_OPSET = 7
MOST_ELEMENTS = 1 << 31
"""Of a tensor: more than any machine's DRAM holds."""
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
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
        _need_text(model.graph)
    except Exception as error:  # protobuf, the checker and external data each raise types of their own
        raise refuse(f"model file {path}", f"not a valid ONNX model ({reason(error)})",
                     "a file that onnx.checker accepts", EXPORT_AGAIN) from None
    return model


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
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:
        raise refuse("shapes of the model", reason(error), "shapes that fit their operators",
                     EXPORT_AGAIN) from None


def _value_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dimensions):
            shapes[value.name] = tuple(d.dim_value for d in dimensions)
    return shapes


def _fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Nodes whose inputs are all constant become initializers; so do Shape and Size of a tensor with a known shape."""
    graph = model.graph
    shapes = _value_shapes(graph)
    known = {tensor.name: _array(tensor) for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        values = _folded(node, known, shapes, model)
        if values is None:
            kept.append(node)
            continue
        for name, value in zip(node.output, values, strict=False):
            known[name] = np.asarray(value)
            graph.initializer.append(numpy_helper.from_array(known[name], name))
    del graph.node[:]
    graph.node.extend(kept)
    return model


def _folded(node: onnx.NodeProto, known: dict[str, np.ndarray], shapes: dict[str, Shape],
            model: onnx.ModelProto) -> list[Any] | None:
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        shape = np.array(shapes[node.input[0]], np.int64)
        span = _attributes(node)
        return [shape[span.get("start"):span.get("end")] if node.op_type == "Shape" else shape.prod()]
    if any(name and name not in known for name in node.input) or node.op_type.startswith("Random"):
        return None
    inputs = {name: known[name] for name in node.input if name}
    declared = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype),
                                                   value.shape) for name, value in inputs.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "constant", declared, outputs)
    folded = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        return list(ReferenceEvaluator(folded).run(None, inputs))
    except Exception as error:
        raise CompileError(f"node {node.name or node.output[0]!r} ({node.op_type}): its inputs are constant, but "
                           f"evaluating it failed: {error}") from None


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
    for tensor, shape in shapes.items():
        if math.prod(shape) > MOST_ELEMENTS:
            raise refuse(f"shape of tensor {tensor!r}", shape, f"at most {MOST_ELEMENTS} elements", EXPORT_AGAIN)
    if not nodes or not proto.output:
        raise refuse("the model", "no node" if not nodes else "no output", "a network with an output that is computed",
                     EXPORT_AGAIN)
    inputs = tuple(GraphPort(value.name, shapes[value.name], value.name) for value in proto.input
                   if value.name not in constants)
    outputs = tuple(GraphPort(value.name, shapes[value.name], value.name) for value in proto.output)
    return Graph(name, nodes, inputs, outputs, shapes, constants, opset)
