"""Multiply-accumulates of a model's operators, as drawn: what the machine's share of a network is counted in."""

from __future__ import annotations

from weft.tmodel.onnx_work import MACS

from weft.compiler.frontend.graph import Graph, Node, Shape


def macs_of(graph: Graph, node: Node) -> int:
    """Return those of one node; 0 for what is no product of matrices, convolution or recurrent layer."""
    count = MACS.get(node.op)
    if count is None:
        return 0
    return count(node.attributes, [_shape(graph, name) for name in node.inputs],
                 [_shape(graph, name) for name in node.outputs])


def _shape(graph: Graph, name: str) -> Shape:
    return tuple(graph.constants[name].shape) if graph.is_constant(name) else graph.shapes.get(name, ())
