# SPDX-License-Identifier: Apache-2.0
"""Read an ONNX file as a graph: open sizes are set (``inputs.py``), shapes inferred and constants folded.

Opsets 7 and newer are read. Differences between opsets that concern us (a number may be an attribute in one and an
input in another) are evened out where the operator is handled, by ``passes/normalise.py``."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.branches import conditions_of, inline_choices
from weft.compiler.frontend.check_quantizers import check_quantizers
from weft.compiler.frontend.contributed import write_in_onnx
from weft.compiler.frontend.dynamic import to_real
from weft.compiler.frontend.einsum import with_products
from weft.compiler.frontend.functions import write_out_operators, write_out_own_functions
from weft.compiler.frontend.graph import FLOAT, Graph, GraphPort, Node, Shape
from weft.compiler.frontend.inputs import settle_inputs, true_inputs, type_name
from weft.compiler.frontend.known import Known, drop_unread_nodes, find_known
from weft.compiler.frontend.precision import to_single
from weft.compiler.frontend.qoperators import to_qdq
from weft.compiler.frontend.quantizers import with_fake_quantizers
from weft.compiler.frontend.same_sizes import write_pads
from weft.compiler.frontend.states import states_of
from weft.compiler.request import Sizes, Values
from weft.support.errors import WeftError
from weft.support.files import read_bytes
from weft.tmodel.onnx_bounds import captured, check_content, check_names, check_opset, graphs

MOST_BYTES = 512 << 20
"""The most bytes of a model's file: more constants than any preset's DRAM holds."""
FIRST_WITH_CONSTANTS = 4
"""The first version of the ONNX format in which an initializer need not be an input too."""
MOST_COMPUTED = 1 << 12
"""The most nodes left after constants are folded: ResNet-152 has 520."""
EXPORT_AGAIN = "export the model again as ONNX with fixed shapes"
EXPORT_COMPUTED = "export the model again with an output that a node computes, be it Identity"
EXPORT_FILLED = "export the model again without it, or for a size of input at which it has elements"
MEAN_AXES = (0, 2, 3)
"""The axes of a MeanVarianceNormalization that names none."""
CASTS = frozenset({"Cast", "CastLike"})


def load_onnx(path: Path, outputs: Sequence[str], shapes: Sizes, fixed: Values) -> onnx.ModelProto:
    """Return the model in a file, ending at the tensors ``outputs`` if some are given.

    Its inputs have fixed sizes or ``fixed`` values, and choices with known conditions are made. Raise CompileError for
    a file that is missing, damaged or of an open shape, and for an unknown output."""
    model = _load(path)
    for graph in graphs(model.graph):
        _name_first_outputs(graph)
        _drop_last_empty(graph)
        _write_axes(graph)
        write_pads(graph)
    settle_inputs(model.graph, shapes, fixed)
    inline_choices(model)
    write_out_operators(model)
    if outputs:
        _choose_outputs(model.graph, outputs)
    drop_unread_nodes(model.graph)
    _name_apart(model.graph)
    return model


def to_graph(model: onnx.ModelProto, name: str) -> Graph:
    """Return the model as a graph: constants folded, every shape known, real numbers in single precision.

    Raise CompileError for shapes that are not known, and for an output that is an input."""
    inputs = {value.name: type_name(value) for value in true_inputs(model.graph)}
    given = dict.fromkeys(inputs, "an input of the model as it is")
    _need_computed([value.name for value in model.graph.output], given)
    outputs = {value.name: type_name(value, "output") for value in model.graph.output
               if value.type.tensor_type.elem_type}
    states = states_of(model)
    to_single(model)
    to_real(model)
    check_quantizers(model)
    to_qdq(model)
    graph = with_fake_quantizers(_to_graph(model, find_known(model), name, inputs, outputs))
    return with_products(graph).replace(states=states)


def _load(path: Path) -> onnx.ModelProto:
    """Return the checked model of a file. Raise CompileError if it is no valid model."""
    content = read_bytes(path, "model file", "give an .onnx, .pb or .tflite file", MOST_BYTES)
    try:
        model = onnx.ModelProto.FromString(content)
        differs = check_content(model, path.parent) or bool(model.functions)
        write_out_own_functions(model)
        with warnings.catch_warnings(action="ignore"):  # of unknown keys of external data, whose names it prints
            onnx.load_external_data_for_model(model, str(path.parent))
        differs |= write_in_onnx(model)
        _check(model, None if differs else content)
        _need_text(model.graph)
        check_names(model.graph)
        check_opset(model)
    except WeftError as error:
        raise CompileError(str(error)) from None
    except Exception as error:  # protobuf, the checker and external data each raise types of their own
        raise refuse(f"model file {path}", f"not a valid ONNX model ({reason(error)})",
                     "a file that onnx.checker accepts", EXPORT_AGAIN) from None
    return model


def _check(model: onnx.ModelProto, content: bytes | None) -> None:
    """Let onnx check a model, whose file has this ``content`` if it is unchanged. Raise onnx's own error.

    Two things pass that onnxruntime runs, and onnx alone refuses: outputs without a type or a shape, and initializers
    that are no inputs. The latter came with version 4 of the format, so that older files are read as of version 4."""
    old, bare = 0 < model.ir_version < FIRST_WITH_CONSTANTS, {}
    for value in model.graph.output:
        if value.type.WhichOneof("value") in (None, "tensor_type") and not value.type.tensor_type.HasField("shape"):
            bare[value.name] = onnx.TypeProto.FromString(value.type.SerializeToString())
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    if old:
        model.ir_version = FIRST_WITH_CONSTANTS
    # of the model itself onnx would write the bytes once more
    onnx.checker.check_model(model if content is None or old or bare else content)
    for value in model.graph.output:
        if value.name in bare:
            value.type.CopyFrom(bare[value.name])


def _need_text(graph: onnx.GraphProto) -> None:
    """Raise CompileError for a name that is not UTF-8, which protobuf gives as bytes."""
    names = [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
    for node in graph.node:
        names += [node.name, node.op_type, *node.input, *node.output]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"name {name!r} is no UTF-8")


def _name_first_outputs(graph: onnx.GraphProto) -> None:
    """Name the first output of each node, by which nodes are known; recurrent layers may leave it out."""
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    for number, node in enumerate(graph.node):
        if node.output and not node.output[0]:
            name = f"{node.name or node.op_type}/unread{number}"
            while name in used:
                name += "_"
            node.output[0] = name


def _name_apart(graph: onnx.GraphProto) -> None:
    """Give nodes of one name names of their own, as messages and the host's part know nodes by them."""
    used: set[str] = set()
    for node in graph.node:
        name = node.name or next(iter(node.output), "")
        while name in used:
            name = f"{name}/{node.output[0]}" if node.output else f"{name}/"
            node.name = name
        used.add(name)


def _drop_last_empty(graph: onnx.GraphProto) -> None:
    """Remove empty inputs at the end of nodes, for which onnxruntime 1.31 may crash.

    It happens with a LayerNormalization."""
    for node in graph.node:
        while node.input and not node.input[-1]:
            del node.input[-1]


def _write_axes(graph: onnx.GraphProto) -> None:
    """Write the axes of each MeanVarianceNormalization that leaves them out, which onnx would not infer."""
    for node in graph.node:
        if node.op_type == "MeanVarianceNormalization" and all(entry.name != "axes" for entry in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("axes", MEAN_AXES))


def _choose_outputs(graph: onnx.GraphProto, outputs: Sequence[str]) -> None:
    """Let the model end at the given tensors. Raise CompileError for an unknown one."""
    made = dict.fromkeys(name for node in graph.node for name in node.output if name)
    for name in outputs:
        if name not in made:
            raise unknown_output(name, [value.name for value in graph.output], list(made))
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)


def unknown_output(name: str, ends: Sequence[str], names: Sequence[str]) -> CompileError:
    """Return the error for an output that a network with these ``ends`` and other ``names`` does not have."""
    near = difflib.get_close_matches(name, names, 1, 0.6)
    return refuse("--end", repr(name), f"a tensor of the network, such as its ends {', '.join(map(repr, ends))}",
                  f"did you mean {near[0]!r}?" if near else "choose one of them")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes. Raise CompileError if they cannot be read."""
    try:
        found = {attribute.name: _plain(onnx.helper.get_attribute_value(attribute)) for attribute in node.attribute}
    except Exception as error:
        raise refuse(f"attributes of node {node.name!r}, {node.op_type}", reason(error), "values of their types",
                     EXPORT_AGAIN) from None
    for name, value in found.items():
        if any(isinstance(number, float) and math.isnan(number)
               for number in (value if isinstance(value, tuple) else (value,))):
            raise refuse(f"attribute {name} of node {node.name!r}, {node.op_type}", "NaN", "numbers", EXPORT_AGAIN)
    return found


def _plain(value: Any) -> Any:
    """Return an attribute with bytes as str, lists as tuples and tensors as arrays."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _node(node: onnx.NodeProto, types: Mapping[str, str]) -> Node:
    """Return a node of the graph; a cast to the type that the tensor has becomes Identity."""
    name = node.name or node.output[0]
    if node.op_type in CASTS and types.get(node.input[0], FLOAT) == types.get(node.output[0], FLOAT):
        return Node(name, "Identity", (node.input[0],), tuple(node.output))
    within = captured(node)
    return Node(name, node.op_type, (*node.input, *within), tuple(node.output), _attributes(node),
                captured=len(within))


def _need_computed(outputs: Sequence[str], others: Mapping[str, str]) -> None:
    """Raise CompileError if an output is one of ``others``, name -> what it is, which no node makes at run time."""
    computed = [name for name in outputs if name not in others]
    for name in outputs:
        if name in others:
            raise refuse(f"output {name!r}", others[name], "an output that a node computes",
                         f"end the network at the others with --end {','.join(computed)}" if computed
                         else EXPORT_COMPUTED)


def _need_elements(nodes: Sequence[Node], shapes: Mapping[str, Shape], read: Collection[str]) -> None:
    """Raise CompileError if a result that is ``read``, by a node or as an output, has no elements.

    The way out is to end the network before it, if a node is there."""
    made: set[str] = set()
    for node in nodes:
        for empty in (name for name in node.outputs if name in read and not math.prod(shapes.get(name, ()))):
            before = [name for name in node.inputs if name in made]
            raise refuse(f"shape of tensor {empty!r} (node {node.name!r}, {node.op})", shapes[empty],
                         "at least one element",
                         f"end the network before it with --end {','.join(before)}" if before else EXPORT_FILLED)
        made.update(node.outputs)


def _ends_before(nodes: Sequence[Node], last: Node, outputs: Sequence[str]) -> list[str]:
    """Return the ends of a network without ``last``: outputs that do not depend on it, and what it reads of others."""
    made: set[str] = set()
    behind = set(last.outputs)
    for node in nodes:
        if behind.intersection(node.inputs):
            behind.update(node.outputs)
        made.update(node.outputs)
    kept = [name for name in outputs if name in made - behind]
    return list(dict.fromkeys([*kept, *(name for name in last.inputs if name in made)]))


def _to_graph(model: onnx.ModelProto, known: Known, name: str, inputs: Mapping[str, str],
              outputs: Mapping[str, str]) -> Graph:
    """Return the graph of a model, given what is known of it. Raise CompileError for unknown shapes."""
    shapes, types, constants = known.shapes, known.types, known.constants
    nodes = tuple(_node(node, types) for node in known.nodes)
    for node in nodes:
        missing = [output for output in node.outputs[:1] if output not in shapes]
        if missing:
            fix = conditions_of(nodes, node, list(inputs))
            ends = _ends_before(nodes, node, [value.name for value in model.graph.output])
            raise refuse(f"shape of tensor {missing[0]!r} (node {node.name!r}, {node.op})",
                         "a size that values decide, or one that ONNX cannot infer", "a size that is known beforehand",
                         f"fix what it is chosen by: {fix}" if fix else
                         f"end the network before it: --end {','.join(ends)}" if ends else EXPORT_AGAIN)
    ends = [value.name for value in model.graph.output]
    read = {name for node in nodes for name in node.inputs}.union(ends)
    _need_elements(nodes, shapes, read)
    if len(nodes) > MOST_COMPUTED:
        raise refuse("the model", f"{len(nodes)} nodes that are no constants", f"at most {MOST_COMPUTED}",
                     "split the network, or end it earlier with --end")
    constants = {key: value for key, value in constants.items() if key in read}
    for constant in sorted(constants):
        if constants[constant].dtype.kind == "f" and np.isnan(constants[constant]).any():
            raise refuse(f"constant {constant!r}", "NaN", "numbers", EXPORT_AGAIN)
    if not nodes or not model.graph.output:
        raise refuse("the model", "no output" if nodes else "no node other than constants",
                     "a network with an output that is computed", EXPORT_COMPUTED)
    known_ends = {name: "a constant, which no run changes" for name in ends if name in constants}
    _need_computed(ends, known_ends | {name: "a constant of the file" for name in ends if name not in shapes})
    sources = tuple(GraphPort(key, shapes[key], key, type=kind) for key, kind in inputs.items())
    ports = tuple(GraphPort(end, shapes[end], end, type=outputs.get(end) or types.get(end, FLOAT)) for end in ends)
    made = {name for node in nodes for name in node.outputs} | inputs.keys()
    return Graph(name, nodes, sources, ports, shapes, constants, check_opset(model),
                 {key: kind for key, kind in types.items() if key in made})
