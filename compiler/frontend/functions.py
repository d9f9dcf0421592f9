# SPDX-License-Identifier: Apache-2.0
"""Write out functions of an ONNX model: its own, and operators of ONNX that the compiler has no row for.

ONNX defines such an operator as a function of others. Exporters of today write attention as one node; its function has
the products and the Softmax that the machine computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import inliner

from weft.compiler.errors import refuse
from weft.tmodel.onnx_bounds import MOST_NODES, graphs, inner_graphs

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""

WRITTEN_OUT = frozenset({"Attention", "RotaryEmbedding", "SwiGLU"})
"""Operators of ONNX that become the nodes of the function that defines them."""


def write_out_own_functions(model: onnx.ModelProto) -> None:
    """Replace the calls of the model's own functions, in ``model`` itself, by the nodes of these functions.

    A function may be of another opset than the model. Raise CompileError for more nodes than a model may have, and for
    a function that calls itself."""
    if not model.functions:
        return
    functions, sizes = {_key(function): function for function in model.functions}, dict[Key, int]()
    for function in model.functions:
        _measure(function, functions, sizes, ())
    _check_count(sum(_nodes_of(node, sizes) for graph in graphs(model.graph) for node in graph.node), "the model")
    model.CopyFrom(inliner.inline_local_functions(model, convert_version=True))


def write_out_operators(model: onnx.ModelProto) -> None:
    """Replace nodes of ``WRITTEN_OUT``, in ``model`` itself, by the nodes that define them.

    The inputs of the model must have sizes. A model whose shapes do not fit stays as it is."""
    if not any(node.op_type in WRITTEN_OUT for node in model.graph.node):
        return
    try:
        typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
        typed.graph.value_info.extend(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                                      for tensor in typed.graph.initializer)  # whose types the inliner asks for
        made = inliner.inline_selected_functions(typed, [("", name) for name in sorted(WRITTEN_OUT)],
                                                 inline_schema_functions=True)
    except Exception:  # of no common type: shapes that do not fit, which the reader tells with their node
        return
    _check_count(len(made.graph.node), "the model")
    del made.graph.value_info[:]
    model.CopyFrom(made)


def _key(function: onnx.FunctionProto) -> Key:
    """Return what the calls of a function name."""
    return function.domain, function.name, function.overload


def _nodes_of(node: onnx.NodeProto, sizes: Mapping[Key, int]) -> int:
    """Return how many nodes a node becomes."""
    return sizes.get((node.domain, node.op_type, node.overload), 1)


def _measure(function: onnx.FunctionProto, functions: Mapping[Key, onnx.FunctionProto], sizes: dict[Key, int],
             callers: Iterable[Key]) -> None:
    """Note in ``sizes`` how many nodes a function becomes, and those that it calls.

    ``callers``: the functions in which it is called. Raise CompileError if it is one of them."""
    key = _key(function)
    if key in sizes:
        return
    if key in callers:
        raise refuse(f"function {function.name!r} of the model", "a call of itself", "functions that call others",
                     "export the model again without it")
    within = [node for entry in function.node for node in _with_inner(entry)]
    for node in within:
        called = functions.get((node.domain, node.op_type, node.overload))
        if called is not None:
            _measure(called, functions, sizes, (*callers, key))
    sizes[key] = sum(_nodes_of(node, sizes) for node in within)
    _check_count(sizes[key], f"function {function.name!r} of the model")


def _with_inner(node: onnx.NodeProto) -> Iterable[onnx.NodeProto]:
    """Yield a node, and the nodes of the graphs in its attributes."""
    yield node
    for graph in inner_graphs(node):
        yield from (inner for part in graphs(graph) for inner in part.node)


def _check_count(count: int, what: str) -> None:
    """Raise CompileError if ``what`` becomes too many nodes."""
    if count > MOST_NODES:
        raise refuse(what, f"more than {MOST_NODES} nodes when functions are written out", f"at most {MOST_NODES}",
                     "split the network")
