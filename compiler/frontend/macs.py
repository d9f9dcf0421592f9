# SPDX-License-Identifier: Apache-2.0
"""Multiply-accumulates of a model's operators, as drawn: the unit of the machine's share of a network."""

from __future__ import annotations

from weft.compiler.frontend.graph import Graph, Node, Shape
from weft.tmodel.onnx_work import MACS


def macs_of(graph: Graph, node: Node) -> int:
    """Return the multiply-accumulates of a node: a matrix product, convolution or recurrent layer; else 0.

    A node that a pass made knows its share of the work as drawn."""
    if node.macs is not None:
        return node.macs
    count = MACS.get(node.op)
    if count is None:
        return 0
    return count(node.attributes, [_shape(graph, name) for name in node.inputs],
                 [_shape(graph, name) for name in node.outputs])


def _shape(graph: Graph, name: str) -> Shape:
    """Return the shape of a tensor or constant."""
    return tuple(graph.constants[name].shape) if graph.is_constant(name) else graph.shapes.get(name, ())
