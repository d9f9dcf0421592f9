# SPDX-License-Identifier: Apache-2.0
"""Quotients whose divisor passes through 0 on calibration inputs: a lookup table of fixed point cannot hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft.compiler.errors import ON_HOST, CompileError, refuse_node
from weft.compiler.frontend.graph import Graph, Node

ABOVE_0 = frozenset({"Exp", "Sigmoid", "Softplus", "Sqrt"})
"""Operators whose results need not be measured; a root of 0 makes an infinite sample, which is refused anyway."""


def poles(graph: Graph, measure: Callable[[Sequence[str]], Mapping[str, tuple[float, float]]]) -> dict[
        str, CompileError]:
    """Return the error of each node, by its name, that divides by 0 or by numbers on both sides of it.

    ``measure`` runs the graph to find ranges of tensors; it is not called where nothing is divided by a computed
    tensor."""
    above = {node.output for node in graph.nodes if node.op in ABOVE_0}
    divisors = {node.name: name for node in graph.nodes for name in [_divisor(node)]
                if name and name not in above and not graph.is_constant(name) and 0 not in graph.shapes.get(name, (0,))}
    ranges = measure(list(dict.fromkeys(divisors.values()))) if divisors else {}
    nodes = {node.name: node for node in graph.nodes}
    return {name: refuse_node(nodes[name], "range of what it divides by", "{:.6g}..{:.6g}".format(*ranges[divisor]),
                              "a range without 0", f"calibrate with inputs that keep it away from 0, or {ON_HOST}")
            for name, divisor in divisors.items() if ranges[divisor][0] <= 0 <= ranges[divisor][1]}


def _divisor(node: Node) -> str:
    """Return the name of the tensor by which a node divides, empty if it does not divide."""
    return {"Reciprocal": node.input(0), "Div": node.input(1)}.get(node.op, "")
