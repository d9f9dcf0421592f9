# SPDX-License-Identifier: Apache-2.0
"""Pass: what is a multiple of one tensor on either side of zero, and the tensor itself above, becomes one PRelu.

With equal slopes it is a leaky ReLU, and so is a PRelu of the file.

TensorFlow has no PRelu, so files write it as relu(x) + a (x - abs(x)), as relu(x) - a relu(-x) or as max(x, a x). Each
of these operators would be a layer, and each of their results would be rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import FLOAT, Graph, Node
from weft.compiler.passes.order import needed

EQUAL = 1e-6
"""The relative error allowed in the slope above zero, which is a sum of constants in single precision."""


class Slopes(NamedTuple):
    """The slopes of a tensor: it is ``source`` times ``above`` where that is positive, else times ``below``."""

    source: str
    above: np.ndarray
    below: np.ndarray


def canonicalise_slopes(graph: Graph) -> Graph:
    """Return the graph with a PRelu in place of every sum, difference, maximum or minimum that is one."""
    search, constants, nodes = _Search(graph), dict[str, np.ndarray](), list[Node]()
    for node in graph.nodes:  # each after what it reads
        search.add(node)
        found = search.prelu(node)
        nodes.append(node if found is None else _simplest(node, *found, constants))
    changed = any(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
    return graph.with_nodes(needed(nodes, graph.output_tensors()), constants) if changed else graph


def _simplest(node: Node, source: str, slope: np.ndarray, constants: dict[str, np.ndarray]) -> Node:
    """Return what replaces a node that is a PRelu of ``source``; ``constants`` gets what it reads.

    Equal slopes may be those of a simpler operator."""
    first = float(slope.flat[0])
    new = node.replace(inputs=(source,), attributes={}, origin=node.origin or node.op)
    if np.ptp(slope) == 0 and first in OPERATORS:
        return new.replace(op=OPERATORS[first])
    if np.ptp(slope) == 0 and 0 < first < 1:
        return new.replace(op="LeakyRelu", attributes={"alpha": first})
    if node.op == "PRelu":
        return node
    constants[f"{node.output}/slope"] = slope.astype(np.float32)
    return new.replace(op="PRelu", inputs=(source, f"{node.output}/slope"))


class _Search:
    """The search of a graph for tensors that are multiples of another one on either side of zero.

    ``multiples``: by tensor, what is a multiple of it on both sides alike, and the factor; itself is the first."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[str, Slopes] = {}
        self.multiples: dict[str, dict[str, np.ndarray]] = {}

    def add(self, node: Node) -> None:
        """Note what a node makes."""
        found = self._made(node)
        if found is not None:
            self.known[node.output] = found
            if np.array_equal(found.above, found.below):
                self._of(found.source)[node.output] = found.above

    def prelu(self, node: Node) -> tuple[str, np.ndarray] | None:
        """Return the tensor and the slope below zero if a node is a PRelu, None if it is none."""
        if node.op == "PRelu" and (slope := self.graph.constants.get(node.input(1))) is not None and slope.size:
            return node.input(0), slope
        found = self.known.get(node.output) if node.op in JOINS else None
        if found is None:
            return None
        shape = self.graph.shapes[node.output]
        for name, factor in self._of(found.source).items():
            slope = _below(found, factor) if name != node.output and self.graph.shapes[name] == shape else None
            if slope is not None and np.broadcast_shapes(slope.shape, shape) == shape:
                return name, slope
        return None

    def _of(self, source: str) -> dict[str, np.ndarray]:
        return self.multiples.setdefault(source, {source: np.ones(())})

    def _made(self, node: Node) -> Slopes | None:
        """Return what a node makes, None if it is no multiple of something."""
        if node.op not in RULES or len(node.outputs) > 1 or self.graph.type(node.output) != FLOAT:
            return None
        values = [self.graph.constants.get(name) for name in node.inputs]
        given = [self.known.get(name, Slopes(name, np.ones(()), np.ones(()))) if value is None
                 else value.astype(np.float64) for name, value in zip(node.inputs, values, strict=True) if name]
        return RULES[node.op](node, given)


def _below(found: Slopes, factor: np.ndarray) -> np.ndarray | None:
    """Return the slope below zero of what is found, seen from ``factor`` times its source; None if it is no PRelu."""
    for sign, own, other in ((1, found.above, found.below), (-1, found.below, found.above)):
        if (sign * factor > 0).all():
            slope, alike = other / factor, abs(own - factor) <= EQUAL * abs(factor)
            return slope if alike.all() and (abs(slope - 1) > EQUAL).any() else None
    return None


Given = list[Slopes | np.ndarray]


def _of_one(rule: Callable[[Slopes, Node], tuple[np.ndarray, np.ndarray]]) -> Callable[[Node, Given], Slopes | None]:
    """Return the rule of an operator of one tensor."""
    def made(node: Node, given: Given) -> Slopes | None:
        first = given[0] if len(given) == 1 else None
        return Slopes(first.source, *rule(first, node)) if isinstance(first, Slopes) else None
    return made


def _of_two(above: Callable[..., np.ndarray], below: Callable[..., np.ndarray],
            zero: bool = False) -> Callable[[Node, Given], Slopes | None]:
    """Return the rule of an operator of two multiples of one tensor; ``zero``: one of both may be the constant 0."""
    def made(_: Node, given: Given) -> Slopes | None:
        if len(given) != 2:
            return None
        source = next((each.source for each in given if isinstance(each, Slopes)), None)
        if source is None:
            return None
        both = [Slopes(source, np.zeros(()), np.zeros(())) if zero and isinstance(each, np.ndarray) and not each.any()
                else each for each in given]
        left, right = both
        if not isinstance(left, Slopes) or not isinstance(right, Slopes) or left.source != right.source:
            return None
        return Slopes(source, above(left.above, right.above), below(left.below, right.below))
    return made


def _scaled(node: Node, given: Given) -> Slopes | None:
    """Return what a product with a constant is, or a quotient by one."""
    if len(given) != 2:
        return None
    tensor, factor = given if isinstance(given[0], Slopes) or node.op == "Div" else given[::-1]
    if not isinstance(tensor, Slopes) or isinstance(factor, Slopes) or node.op == "Div" and not factor.all():
        return None
    factor = 1 / factor if node.op == "Div" else factor
    return Slopes(tensor.source, tensor.above * factor, tensor.below * factor)


def _leaky(slope: np.ndarray | float, found: Slopes) -> tuple[np.ndarray, np.ndarray]:
    """Return the slopes of a leaky ReLU of a multiple, whose sign above zero is that of its slope there."""
    return (np.where(found.above > 0, found.above, slope * found.above),
            np.where(found.below < 0, found.below, slope * found.below))


def _prelu(_: Node, given: Given) -> Slopes | None:
    """Return what a PRelu of a multiple is."""
    if len(given) != 2 or not isinstance(given[0], Slopes) or isinstance(given[1], Slopes):
        return None
    return Slopes(given[0].source, *_leaky(given[1], given[0]))


RULES: Mapping[str, Callable[[Node, Given], Slopes | None]] = {
    "Identity": _of_one(lambda found, _: (found.above, found.below)),
    "Relu": _of_one(lambda found, _: _leaky(0.0, found)),
    "LeakyRelu": _of_one(lambda found, node: _leaky(float(node.attributes.get("alpha", 0.01)), found)),
    "Abs": _of_one(lambda found, _: (abs(found.above), -abs(found.below))),
    "Neg": _of_one(lambda found, _: (-found.above, -found.below)),
    "PRelu": _prelu, "Mul": _scaled, "Div": _scaled,
    "Add": _of_two(np.add, np.add), "Sub": _of_two(np.subtract, np.subtract),
    "Max": _of_two(np.maximum, np.minimum, zero=True), "Min": _of_two(np.minimum, np.maximum, zero=True),
}
"""Operator -> what it makes of multiples and constants, or None. Below zero the smaller slope has the larger value."""

OPERATORS = {0.0: "Relu", -1.0: "Abs"}
"""Slope below zero -> the operator with that slope for all elements."""

JOINS = frozenset({"Add", "Sub", "Max", "Min"})
"""The operators that become a PRelu. Others are one operator already."""
