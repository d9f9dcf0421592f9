# SPDX-License-Identifier: Apache-2.0
"""Write an Einsum of two tensors as a product of matrices, between what moves elements.

Each index of the equation is of one kind: both tensors and the result have it (a batch of matrices), only the tensors
(it is summed over), or one tensor and the result (rows or columns)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Graph, Node, Shape

OPERANDS = 2


def with_products(graph: Graph) -> Graph:
    """Return the graph with each Einsum that is a product of two tensors as a MatMul; others stay."""
    if not any(node.op == "Einsum" for node in graph.nodes):
        return graph
    made = _Made(graph)
    for node in graph.nodes:
        terms = _terms(graph, node) if node.op == "Einsum" else None
        if terms is None:
            made.nodes.append(node)
        else:
            made.product(node, *terms)
    return graph.replace(shapes=made.shapes).with_nodes(made.nodes, made.constants)


def _terms(graph: Graph, node: Node) -> tuple[str, str, str] | None:
    """Return the indices of both tensors and of the result, or None if the node is no product of two tensors.

    An index that only one tensor has is in the result, and each index has one size."""
    read, _, result = str(node.attributes["equation"]).replace(" ", "").partition("->")
    terms = read.split(",")
    if len(terms) != OPERANDS or "." in read:
        return None
    counts = Counter(terms[0] + terms[1])
    if "->" not in str(node.attributes["equation"]):
        result = "".join(sorted(index for index, count in counts.items() if count == 1))
    shapes = [graph.shape(name) for name in node.inputs]
    if any(len(set(term)) != len(term) or len(term) != len(shape) for term, shape in zip(terms, shapes, strict=True)):
        return None
    first, second = (dict(zip(term, shape, strict=True)) for term, shape in zip(terms, shapes, strict=True))
    alone = {index for index, count in counts.items() if count == 1}
    if not alone <= set(result) or any(first[index] != second[index] for index in first.keys() & second.keys()):
        return None
    return terms[0], terms[1], result


@dataclass
class _Made:
    """The nodes that a graph becomes, and its shapes and constants with the new ones."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(init=False)

    def __post_init__(self) -> None:
        """Copy the shapes, which are added to."""
        self.shapes = dict(self.graph.shapes)

    def product(self, node: Node, left: str, right: str, result: str) -> None:
        """Add the nodes of an Einsum with the indices ``left``, ``right`` and ``result``."""
        sizes: dict[str, int] = {}
        for term, name in zip((left, right), node.inputs, strict=True):
            sizes |= dict(zip(term, self.graph.shape(name), strict=True))
        both = [index for index in left if index in right]
        batch, inner = ([index for index in both if (index in result) == kept] for kept in (True, False))
        rows, columns = ([index for index in term if index not in both] for term in (left, right))
        groups = (batch, rows, inner), (batch, inner, columns)
        factors = [self._matrices(node, number, (left, right)[number], groups[number], sizes) for number in (0, 1)]
        product, whole = f"{node.output}/product", f"{node.output}/whole"
        self.shapes[product] = _sizes((batch, rows, columns), sizes)
        self.nodes.append(Node(node.name, "MatMul", tuple(factors), (product,)))
        order = [*batch, *rows, *columns]
        self._reshape(node, product, whole, [sizes[index] for index in order])
        self._transpose(node, whole, node.output, [order.index(index) for index in result])

    def _matrices(self, node: Node, number: int, term: str, groups: Sequence[Sequence[str]],
                  sizes: Mapping[str, int]) -> str:
        """Return operand ``number`` as a stack of matrices: each of three ``groups`` of its indices is an axis."""
        name, order = node.inputs[number], [term.index(index) for group in groups for index in group]
        turned, made = f"{node.output}/turned{number}", f"{node.output}/matrices{number}"
        if self.graph.is_constant(name):
            self.constants[made] = self.graph.constants[name].transpose(order).reshape(_sizes(groups, sizes))
            return made
        self._transpose(node, name, turned, order)
        self._reshape(node, turned, made, _sizes(groups, sizes))
        return made

    def _transpose(self, node: Node, source: str, target: str, order: Sequence[int]) -> None:
        """Add a Transpose; a number has no axes, and a Transpose of none cannot be written."""
        shape = self.shapes[source]
        self.shapes[target] = tuple(shape[axis] for axis in order)
        operator, attributes = ("Transpose", {"perm": tuple(order)}) if order else ("Identity", {})
        self.nodes.append(Node(f"{node.name}/{target}", operator, (source,), (target,), attributes))

    def _reshape(self, node: Node, source: str, target: str, shape: Sequence[int]) -> None:
        """Add a Reshape."""
        self.shapes[target] = tuple(shape)
        self.constants[f"{target}/shape"] = np.array(shape, np.int64)
        self.nodes.append(Node(f"{node.name}/{target}", "Reshape", (source, f"{target}/shape"), (target,)))


def _sizes(groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> Shape:
    """Return the size of each group of indices: the product of theirs."""
    return tuple(math.prod(sizes[index] for index in group) for group in groups)
