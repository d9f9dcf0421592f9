# SPDX-License-Identifier: Apache-2.0
"""Lower FakeQuantize: on INT8 machines it gives the scale of a tensor, on others its range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.lowering.gather import lie_as_they_are
from weft.compiler.lowering.rewrite import Rewrite

Ranges = Mapping[str, tuple[float, float]]
"""Tensor -> lowest and highest value."""


def fake_quantize(state: Rewrite, node: Node) -> None:
    """Lower FakeQuantize of all elements where they lie."""
    source, index = lie_as_they_are(state, node)
    made = state.emit(node, FAKE_QUANTIZE, [source], node.attributes, state.shapes[source])
    state.hold(node.output, made, index)


def as_ranges(graph: Graph, measure: Callable[[Sequence[str]], Ranges]) -> Graph:
    """Return the network of real numbers, limited where its quantised twin saturates.

    A lowest number of 0 becomes a Relu, since tools write it so. Other limits stay if values seen by ``measure`` exceed
    them by more than a step."""
    found = [node for node in graph.nodes if node.op == FAKE_QUANTIZE]
    if not found:
        return graph
    seen = measure(list(dict.fromkeys(node.input(0) for node in found)))
    constants: dict[str, np.ndarray] = {}
    nodes = [_limited(node, seen[node.input(0)], constants) if node.op == FAKE_QUANTIZE else node
             for node in graph.nodes]
    return graph.with_nodes(nodes, constants)


def _limited(node: Node, seen: tuple[float, float], constants: dict[str, np.ndarray]) -> Node:
    """Return the Relu, Identity or Clip that replaces a FakeQuantize, given the range of its input."""
    scale = scale_of(node)
    below, above = seen[0] < scale.low - scale.scale, seen[1] > scale.high + scale.scale
    if not above and scale.low == 0:
        return _as(node, "Relu")
    if not above and not below:
        return _as(node, "Identity")
    names = [f"{node.output}/low", f"{node.output}/high"]
    constants |= dict(zip(names, np.array((scale.low, scale.high), np.float32), strict=True))
    return _as(node.replace(inputs=(node.input(0), *names)), "Clip")


def _as(node: Node, op: str) -> Node:
    """Return a node with another operator and no attributes."""
    return node.replace(op=op, attributes={})
