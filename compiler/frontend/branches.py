# SPDX-License-Identifier: Apache-2.0
"""Inline choices of an ONNX model: an ``If`` with a known condition becomes the nodes of the branch that it takes.

A condition is known if constants, fixed inputs and shapes determine it. Other choices stay, and are the host's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx import helper

from weft.compiler.frontend.graph import Node
from weft.compiler.frontend.known import drop_unread_nodes, find_known
from weft.tmodel.onnx_bounds import graphs, has_graph

CHOICE = "If"


def inline_choices(model: onnx.ModelProto) -> None:
    """Replace, in ``model`` itself, every If with a known condition by the nodes of the branch that it takes.

    Ifs in such a branch are replaced too. The inputs of the model must have sizes. Raise WeftError for shapes that do
    not fit."""
    while any(node.op_type == CHOICE for node in model.graph.node):
        conditions = _known_conditions(model)
        if not conditions:
            return
        names = Counter(_all_names(model.graph))
        nodes = list(model.graph.node)
        del model.graph.node[:]
        for node in nodes:
            if node.op_type == CHOICE and node.input[0] in conditions:
                _inline(model.graph, node, conditions[node.input[0]], names)
            else:
                model.graph.node.append(node)


def conditions_of(nodes: Sequence[Node], choice: Node, inputs: Sequence[str]) -> str:
    """Return the options that fix the ``inputs`` on which a choice depends.

    The result is "" for other nodes, and for a choice that depends on no input."""
    if choice.op != CHOICE:
        return ""
    needed = {choice.input(0)}
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    return " ".join(f"--fix {name}=VALUE" for name in inputs if name in needed)


def _known_conditions(model: onnx.ModelProto) -> dict[str, bool]:
    """Return the values of known conditions, by tensor, of those Ifs that stand in the main graph itself.

    A condition is known if constants, fixed inputs and shapes determine it, and no other If comes before it."""
    small = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = small.graph
    unknown: set[str] = set()
    conditions: set[str] = set()
    for node in model.graph.node:
        if node.op_type == CHOICE and node.input[0] not in unknown:
            conditions.add(node.input[0])
        if has_graph(node) or unknown.intersection(node.input):
            unknown.update(node.output)
        else:
            graph.node.append(node)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(conditions))
    drop_unread_nodes(graph)
    read = {name for node in graph.node for name in node.input} | conditions
    graph.input.extend(value for value in model.graph.input if value.name in read)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    graph.sparse_initializer.extend(entry for entry in model.graph.sparse_initializer if entry.values.name in read)
    made = {name for node in graph.node for name in node.output}
    for value in [value for value in graph.output if value.name not in made]:
        graph.output.remove(value)  # inputs and constants, which shape inference takes for no output
    constants = find_known(small).constants
    return {name: bool(constants[name].reshape(-1)[0]) for name in sorted(conditions)
            if name in constants and constants[name].size == 1}


def _inline(graph: onnx.GraphProto, node: onnx.NodeProto, condition: bool, names: Counter[str]) -> None:
    """Append the branch that ``node`` takes to the graph. ``names``: how often each name occurs in the model."""
    wanted = "then_branch" if condition else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    for attribute in node.attribute:
        names.subtract(_all_names(attribute.g))
    _rename(branch, _new_names(branch, node, names))
    graph.initializer.extend(branch.initializer)
    graph.sparse_initializer.extend(branch.sparse_initializer)
    graph.node.extend(branch.node)
    made = {name for entry in branch.node for name in entry.output}
    for value, output in zip(branch.output, node.output, strict=True):
        if output and (value.name != output or output not in made):
            graph.node.append(helper.make_node("Identity", [value.name], [output], name=f"{node.name}/{output}"))
    names.update(_all_names(branch))


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every name of a tensor or a node in ``graph`` and in the graphs within it, as often as it occurs."""
    for inner in graphs(graph):
        yield from (*_weights(inner), *(value.name for value in (*inner.input, *inner.output)))
        yield from (name for node in inner.node for name in (node.name, *node.input, *node.output))


def _weights(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of a graph's constants."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (entry.values.name for entry in graph.sparse_initializer)


def _new_names(branch: onnx.GraphProto, node: onnx.NodeProto, taken: Counter[str]) -> dict[str, str]:
    """Return old -> new names of what the branch makes. Its results get the names that ``node`` gives them."""
    made = [name for entry in branch.node for name in entry.output if name]
    prefix = node.name or node.output[0]
    names: dict[str, str] = {}
    for value, output in zip(branch.output, node.output, strict=True):
        if output and value.name in made and value.name not in names:
            names[value.name] = output
    for name in (*_weights(branch), *made):
        if name not in names and taken[name] > 0:
            names[name] = _free(f"{prefix}/{name}", taken)
    for entry in branch.node:
        if taken[entry.name] > 0:
            entry.name = _free(f"{prefix}/{entry.name or entry.output[0]}", taken)
    return {old: new for old, new in names.items() if old != new}


def _free(name: str, taken: Counter[str]) -> str:
    """Return a name that is not taken, by appending underscores."""
    while taken[name] > 0:
        name += "_"
    return name


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors in a graph and in the graphs within it, except tensors that an inner graph makes itself."""
    for tensor in (*graph.initializer, *(entry.values for entry in graph.sparse_initializer), *graph.output):
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for inner in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            own = {*_weights(inner), *(value.name for value in inner.input),
                   *(name for entry in inner.node for name in entry.output)}
            _rename(inner, {old: new for old, new in names.items() if old not in own})
    del graph.value_info[:]
