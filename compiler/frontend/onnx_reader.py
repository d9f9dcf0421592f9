"""ONNX file -> graph: sizes that are open given (``inputs.py``), shapes inferred and constants folded (``known.py``).

Opsets 7 and newer. Differences between opsets that concern us (where a number is an attribute in one and an input
in another) are evened out where the operator is handled, by ``passes/normalise.py``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from weft.support.errors import WeftError
from weft.support.files import read_bytes
from weft.tmodel.onnx_bounds import captured, check_content, check_names, check_opset, graphs

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.branches import conditions_of, inline_choices
from weft.compiler.frontend.check_quantizers import check_quantizers
from weft.compiler.frontend.dynamic import to_real
from weft.compiler.frontend.graph import FLOAT, Graph, GraphPort, Node
from weft.compiler.frontend.inputs import settle_inputs, true_inputs, type_name
from weft.compiler.frontend.known import Known, drop_unread_nodes, find_known
from weft.compiler.frontend.precision import to_single
from weft.compiler.frontend.qoperators import to_qdq
from weft.compiler.frontend.quantizers import with_fake_quantizers
from weft.compiler.frontend.states import states_of
from weft.compiler.request import Sizes, Values

MOST_BYTES = 512 << 20
"""Of a model's file: more constants than any preset's DRAM holds."""
MOST_COMPUTED = 1 << 12
"""Nodes that are left when constants are folded: ResNet-152 has 520."""
EXPORT_AGAIN = "export the model again as ONNX with fixed shapes"
CASTS = frozenset({"Cast", "CastLike"})


def load_onnx(path: Path, outputs: Sequence[str], shapes: Sizes, fixed: Values) -> onnx.ModelProto:
    """The model in a file, ending at the tensors ``outputs`` where some are given, its inputs of fixed sizes or of
    ``fixed`` values, its choices made where their conditions are known.

    Raises CompileError for a file that is missing, broken or of an open shape, and for an output that it has not.
    """
    model = _load(path)
    for graph in graphs(model.graph):
        _name_first_outputs(graph)
        _drop_last_empty(graph)
    settle_inputs(model.graph, shapes, fixed)
    inline_choices(model)
    if outputs:
        _choose_outputs(model.graph, outputs)
    drop_unread_nodes(model.graph)
    return model


def to_graph(model: onnx.ModelProto, name: str) -> Graph:
    """The model as a graph: constants folded, every shape known, real numbers in single precision. Raises CompileError
    for shapes that are not."""
    inputs = {value.name: type_name(value) for value in true_inputs(model.graph)}
    outputs = {value.name: type_name(value, "output") for value in model.graph.output
               if value.type.tensor_type.elem_type}
    states = states_of(model)
    to_single(model)
    to_real(model)
    check_quantizers(model)
    to_qdq(model)
    graph = with_fake_quantizers(_to_graph(model, find_known(model), name, inputs, outputs))
    return graph.replace(states=states)


def _load(path: Path) -> onnx.ModelProto:
    content = read_bytes(path, "model file", "give an .onnx, .pb or .tflite file", MOST_BYTES)
    try:
        model = onnx.ModelProto.FromString(content)
        check_content(model, path.parent)
        _drop_functions(model)
        onnx.load_external_data_for_model(model, str(path.parent))
        _add_shapes_of_outputs(model)
        onnx.checker.check_model(model)
        _need_text(model.graph)
        check_names(model.graph)
        check_opset(model)
    except WeftError as error:
        raise CompileError(str(error)) from None
    except Exception as error:  # protobuf, the checker and external data each raise types of their own
        raise refuse(f"model file {path}", f"not a valid ONNX model ({reason(error)})",
                     "a file that onnx.checker accepts", EXPORT_AGAIN) from None
    return model


def _add_shapes_of_outputs(model: onnx.ModelProto) -> None:
    """Where the file leaves them out: the checker wants them, onnxruntime does not. Raises onnx's own error where they
    follow from nothing."""
    open_ones = [value for value in model.graph.output
                 if value.type.tensor_type.elem_type and not value.type.tensor_type.HasField("shape")]
    if open_ones:
        inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
        for value in open_ones:
            value.CopyFrom(inferred[value.name])
        if not all(value.type.tensor_type.HasField("shape") for value in open_ones):
            onnx.shape_inference.infer_shapes(model, strict_mode=True)


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


def _name_first_outputs(graph: onnx.GraphProto) -> None:
    """A node is known by its first output: recurrent layers leave it out where only their last state is wanted."""
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    for number, node in enumerate(graph.node):
        if node.output and not node.output[0]:
            name = f"{node.name or node.op_type}/unread{number}"
            while name in used:
                name += "_"
            node.output[0] = name


def _drop_last_empty(graph: onnx.GraphProto) -> None:
    """Drop inputs that are left out behind a node's last one: onnxruntime 1.31 ends with a fault of memory where a
    LayerNormalization has one."""
    for node in graph.node:
        while node.input and not node.input[-1]:
            del node.input[-1]


def _choose_outputs(graph: onnx.GraphProto, outputs: Sequence[str]) -> None:
    made = dict.fromkeys(name for node in graph.node for name in node.output if name)
    for name in outputs:
        if name not in made:
            raise unknown_output(name, [value.name for value in graph.output], list(made))
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)


def unknown_output(name: str, ends: Sequence[str], names: Sequence[str]) -> CompileError:
    """The error for an output that a network with these ``ends`` and other ``names`` has not."""
    near = difflib.get_close_matches(name, names, 1, 0.6)
    return refuse("--end", repr(name), f"a tensor of the network, such as its ends {', '.join(map(repr, ends))}",
                  f"did you mean {near[0]!r}?" if near else "choose one of them")


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
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _node(node: onnx.NodeProto, types: Mapping[str, str]) -> Node:
    """A cast to the type that a tensor has does nothing."""
    name = node.name or node.output[0]
    if node.op_type in CASTS and types.get(node.input[0], FLOAT) == types.get(node.output[0], FLOAT):
        return Node(name, "Identity", (node.input[0],), tuple(node.output))
    within = captured(node)
    return Node(name, node.op_type, (*node.input, *within), tuple(node.output), _attributes(node),
                captured=len(within))


def _to_graph(model: onnx.ModelProto, known: Known, name: str, inputs: Mapping[str, str],
              outputs: Mapping[str, str]) -> Graph:
    shapes, types, constants = known.shapes, known.types, known.constants
    nodes = tuple(_node(node, types) for node in known.nodes)
    for node in nodes:
        missing = [output for output in node.outputs[:1] if output not in shapes]
        if missing:
            fix = conditions_of(nodes, node, list(inputs))
            raise refuse(f"shape of tensor {missing[0]!r} (node {node.name!r}, {node.op})", "unknown",
                         "a shape that ONNX shape inference finds",
                         f"fix what it is chosen by: {fix}" if fix else EXPORT_AGAIN)
        if node.outputs and not math.prod(shapes[node.outputs[0]]):
            raise refuse(f"shape of tensor {node.outputs[0]!r} (node {node.name!r}, {node.op})",
                         shapes[node.outputs[0]], "at least one element", EXPORT_AGAIN)
    if len(nodes) > MOST_COMPUTED:
        raise refuse("the model", f"{len(nodes)} nodes that are no constants", f"at most {MOST_COMPUTED}",
                     "split the network, or end it earlier with --end")
    read = {name for node in nodes for name in node.inputs} | {value.name for value in model.graph.output}
    constants = {key: value for key, value in constants.items() if key in read}
    for constant in sorted(constants):
        if constants[constant].dtype.kind == "f" and np.isnan(constants[constant]).any():
            raise refuse(f"constant {constant!r}", "NaN", "numbers", EXPORT_AGAIN)
    if not nodes or not model.graph.output:
        raise refuse("the model", "no node" if not nodes else "no output", "a network with an output that is computed",
                     EXPORT_AGAIN)
    sources = tuple(GraphPort(key, shapes[key], key, type=kind) for key, kind in inputs.items())
    ends = tuple(GraphPort(value.name, shapes[value.name], value.name,
                           type=outputs.get(value.name) or types.get(value.name, FLOAT))
                 for value in model.graph.output)
    made = {name for node in nodes for name in node.outputs} | inputs.keys()
    return Graph(name, nodes, sources, ends, shapes, constants, check_opset(model),
                 {key: kind for key, kind in types.items() if key in made})
