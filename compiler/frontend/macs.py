"""Multiply-accumulates of a model's operators, as drawn: what the machine's share of a network is counted in."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.compiler.frontend.graph import Graph, Node, Shape

ATTENTION_PRODUCTS = 2
"""Of queries and keys, and of their weights and the values."""


def macs_of(graph: Graph, node: Node) -> int:
    """Those of one node; 0 for what is no product of matrices, convolution or recurrent layer."""
    count = COUNTED.get(node.op)
    return 0 if count is None else count(graph, node)


def _shape(graph: Graph, name: str) -> Shape:
    return tuple(graph.constants[name].shape) if graph.is_constant(name) else graph.shapes.get(name, ())


def _output(graph: Graph, node: Node) -> int:
    return math.prod(graph.shapes.get(node.output, ()))


def _weights(number: int, of: Callable[[Graph, Node], int]) -> Callable[[Graph, Node], int]:
    """Every element of ``of`` meets all weights of a channel, which are the product of ``shape[1:]`` of an input."""
    return lambda graph, node: of(graph, node) * math.prod(_shape(graph, node.input(number))[1:])


def _input(graph: Graph, node: Node) -> int:
    return math.prod(_shape(graph, node.input(0)))


def _matrix(graph: Graph, node: Node) -> int:
    return _output(graph, node) * (_shape(graph, node.input(0)) or (0,))[-1]


def _gemm(graph: Graph, node: Node) -> int:
    shape = _shape(graph, node.input(0))
    return _output(graph, node) * shape[0 if node.attributes.get("transA") else -1]


def _recurrent(graph: Graph, node: Node) -> int:
    """Per step and direction: gates x hidden x (input + hidden)."""
    if node.attributes.get("layout"):
        batch, steps, size = _shape(graph, node.input(0))
    else:
        steps, batch, size = _shape(graph, node.input(0))
    directions, rows, hidden = _shape(graph, node.input(2))
    return steps * batch * directions * rows * (size + hidden)


def _einsum(graph: Graph, node: Node) -> int:
    """Every index that stands in the equation, once; 0 where there is only one operand."""
    terms = node.attributes["equation"].replace(" ", "").split("->")[0].split(",")
    if len(terms) < 2 or "." in node.attributes["equation"]:
        return 0
    sizes = {index: size for term, name in zip(terms, node.inputs, strict=True)
             for index, size in zip(term, _shape(graph, name), strict=True)}
    return math.prod(sizes.values())


def _attention(graph: Graph, node: Node) -> int:
    queries, keys = _shape(graph, node.input(0)), _shape(graph, node.input(1))
    return ATTENTION_PRODUCTS * math.prod(queries) * keys[-2]


COUNTED: dict[str, Callable[[Graph, Node], int]] = {
    "Attention": _attention, "Conv": _weights(1, _output), "ConvInteger": _weights(1, _output),
    "ConvTranspose": _weights(1, _input), "Einsum": _einsum, "GRU": _recurrent, "Gemm": _gemm, "LSTM": _recurrent,
    "MatMul": _matrix, "MatMulInteger": _matrix, "QLinearConv": _weights(3, _output), "QLinearMatMul": _matrix,
    "RNN": _recurrent,
}
