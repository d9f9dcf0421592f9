# SPDX-License-Identifier: Apache-2.0
"""Pass: the root of a sum of few squares, such as the magnitude of a spectrum, becomes turns of a plane.

Squares take twice the bits of what is squared: at one binary point of 16 bits a magnitude of a hundredth of the
largest one has no bits left. A turn has none of this. (a, b) with a, b >= 0 lies at an angle of 0 to 90 degrees. Turned
back by half of that it lies within 45 degrees of the axis, the sign of the second number can be dropped, and so on.
After TURNS turns the first number is the length, but for the cosine of a small angle. All are sums and magnitudes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.operators import OPERATORS
from weft.compiler.passes.order import needed

TURNS = 5
"""The last angle is at most 2.8 degrees: lengths are right to 0.06 %, 69 dB."""

TURN = "/turn"
"""Part of the names of all tensors of turns."""

MOST_SQUARES = 4
"""The most squares under a root that become turns; of more numbers tables are cheaper."""

NEGLIGIBLE = 2.0 ** -17
"""The share of the largest length below which a constant under the root is left out: half a step of 16 bits."""

SUMS = frozenset({"Add", "Sum", "ReduceSum", "ReduceSumSquare"})
"""Operators that may add up squares."""

BENT = frozenset({"Log", "Sqrt"})
"""Functions that tell small arguments apart beside large ones."""

KEEP_ORDER = frozenset({"Clip", "Max", "Relu"})
REDUCE = frozenset({"AveragePool", "ReduceMean", "ReduceSum"})
MIX = frozenset({"Add", "Conv", "Div", "Gemm", "MatMul", "Mul"})
"""Operators that, with constants that are not negative, give sums of magnitudes or powers."""

Ranges = Callable[[Sequence[str]], Mapping[str, tuple[float, float]]]
"""A function that returns the lowest and the highest value of tensors."""


@dataclass(frozen=True)
class Root:
    """A root of squares in a graph: ``node`` makes it, from what the nodes ``moved`` make of the sum of squares.

    ``total``: the tensor of the sum; ``numbers``: what is squared; ``constant`` is added to the squares."""

    node: Node
    moved: tuple[Node, ...]
    total: str
    numbers: tuple[str, ...]
    constant: float
    is_power: bool = False
    """Whether ``node`` makes the sum itself, the square of the length."""


def turn_magnitudes(graph: Graph, measure: Ranges | None = None) -> Graph:
    """Return the graph with roots of few squares computed by turns.

    ``measure`` gives the ranges of sums, to find constants too small to be seen; without it they are left out."""
    search = _Search(graph)
    roots = [root for node in graph.nodes if (root := search.root(node) or search.power(node)) is not None]
    if not roots:
        return graph
    offset = [root.total for root in roots if root.constant]
    most = {name: high for name, (_, high) in measure(offset).items()} if measure and offset else {}
    made = _Turns(graph, dict(graph.shapes), dict(graph.constants))
    replaced = {root.node.output: root for root in roots}
    nodes: list[Node] = []
    for node in graph.nodes:
        root = replaced.get(node.output)
        if root is None:
            nodes.append(node)
        else:
            limit = NEGLIGIBLE * math.sqrt(max(most.get(root.total, math.inf), 0.0))
            nodes += made.of(root, math.sqrt(root.constant) if math.sqrt(root.constant) > limit else 0.0)
    found = graph.replace(shapes=made.shapes).with_nodes(nodes, made.constants)
    return found.with_nodes(needed(found.nodes, found.output_tensors()))


class _Search:
    """The search of a graph for roots of squares."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {name: node for node in graph.nodes for name in node.outputs}
        self.readers = graph.consumers()

    def root(self, node: Node) -> Root | None:
        """Return the root of squares that ``node`` computes, else None."""
        if node.op == "ReduceL2":
            found = self._over_axis(node, node.input(0))
            return None if found is None else Root(node, (), node.output, found, 0.0)
        if node.op != "Sqrt" and not (node.op == "Pow" and self._number(node.input(1)) == 0.5):
            return None
        moved: list[Node] = []
        name, constant = node.input(0), 0.0
        while (maker := self.makers.get(name)) is not None:
            if self._only_moves(maker):
                moved.insert(0, maker)
            elif (offset := self._offset(maker)) is not None:
                constant += offset[1]
                name = offset[0]
                continue
            else:
                break
            name = maker.input(0)
        numbers = self._squares(name)
        if numbers is None or not math.isfinite(constant) or constant < 0:
            return None
        return Root(node, tuple(moved), name, numbers, constant)

    def power(self, node: Node) -> Root | None:
        """Return the sum of squares that ``node`` computes, if a function that bends at 0 reads what it adds up to."""
        if node.op not in SUMS:
            return None
        numbers = self._squares(node.output)
        if numbers is None or not self._bends(node.output):
            return None
        return Root(node, (), node.output, numbers, 0.0, is_power=True)

    def _bends(self, name: str) -> bool:
        """Tell whether logarithms or their like, and nothing else, read sums of a tensor's elements."""
        if name in self.graph.output_tensors():
            return False
        readers = self.readers.get(name, [])
        return bool(readers) and all(
            (reader.op in BENT or (reader.op == "Pow" and 0 < (self._number(reader.input(1)) or 0) < 1))
            or (self._adds_up(reader, name) and self._bends(reader.output)) for reader in readers)

    def _adds_up(self, node: Node, name: str) -> bool:
        """Tell whether a node moves elements, limits them, or adds them up with constant weights that are not negative.

        ``name``: the tensor of the elements."""
        others = [self.graph.constants.get(entry) for entry in node.inputs if entry and entry != name]
        if any(value is None for value in others) or len(node.outputs) > 1 or node.op not in OPERATORS:
            return False
        if node.op in KEEP_ORDER or OPERATORS[node.op].moves:
            return True
        if node.op in REDUCE:
            return True
        return node.op in MIX and all(value is not None and value.size and value.min() >= 0 for value in others)

    def _only_moves(self, node: Node) -> bool:
        """Tell whether a node only puts elements of its first input, the only computed one, at other places."""
        return (node.op in OPERATORS and OPERATORS[node.op].moves and len(node.outputs) == 1
                and all(self.graph.is_constant(name) for name in node.inputs[1:] if name))

    def _offset(self, node: Node) -> tuple[str, float] | None:
        """Return the tensor to which ``node`` adds a constant, and the constant; a lower limit of 0 adds nothing."""
        tensors = [name for name in node.inputs if name and not self.graph.is_constant(name)]
        if len(tensors) != 1 or self.graph.shapes.get(tensors[0]) != self.graph.shapes.get(node.output):
            return None
        numbers = [self._number(name) for name in node.inputs if name and name != tensors[0]]
        if node.op == "Add" and len(node.inputs) == 2 and numbers[0] is not None:
            return tensors[0], numbers[0]
        if node.op == "Relu" or (node.op == "Max" and numbers == [0.0]):
            return tensors[0], 0.0
        return None

    def _number(self, name: str) -> float | None:
        """Return the value of a constant with one element, or None."""
        value = self.graph.constants.get(name)
        return float(value.ravel()[0]) if value is not None and value.size == 1 else None

    def _squares(self, name: str) -> tuple[str, ...] | None:
        """Return the tensors of whose squares ``name`` is the sum, if they are 2 to MOST_SQUARES; else None."""
        node = self.makers.get(name)
        if node is None:
            return None
        if node.op == "ReduceSumSquare":
            return self._over_axis(node, node.input(0))
        if node.op == "ReduceSum":
            squared = self._squared(node.input(0))
            return None if squared is None else self._over_axis(node, squared)
        terms = self._terms(name)
        numbers = [self._squared(term) for term in terms]
        shapes = {self.graph.shapes.get(entry) for entry in (name, *filter(None, numbers))}
        if None in numbers or len(shapes) > 1 or not 2 <= len(numbers) <= MOST_SQUARES:
            return None
        return tuple(filter(None, numbers))

    def _terms(self, name: str) -> list[str]:
        """Return the tensors that a chain of Add and Sum adds up to make ``name``, at most MOST_SQUARES + 1."""
        terms = [name]
        while len(terms) <= MOST_SQUARES:
            sums = [term for term in terms if term in self.makers and self.makers[term].op in ("Add", "Sum")]
            if not sums:
                break
            place = terms.index(sums[0])
            terms[place:place + 1] = [entry for entry in self.makers[sums[0]].inputs if entry]
        return terms

    def _squared(self, name: str) -> str | None:
        """Return the tensor whose square the tensor ``name`` is, or None."""
        node = self.makers.get(name)
        if node is None or node.op not in ("Mul", "Pow"):
            return None
        is_square = node.input(0) == node.input(1) if node.op == "Mul" else self._number(node.input(1)) == 2
        return node.input(0) if is_square else None

    def _over_axis(self, node: Node, source: str) -> tuple[str, ...] | None:
        """Return names for the parts of ``source`` along the axis that ``node`` reduces, if they are few; else None.

        A name is the tensor's and the part's number; ``_Turns`` makes these tensors."""
        shape = self.graph.shapes[source]
        axes = node.attributes.get("axes")
        if node.input(1):
            axes = self.graph.constants.get(node.input(1), np.zeros(0)).tolist()
        if not axes or len(axes) != 1:
            return None
        axis = int(axes[0]) % len(shape)
        if not 2 <= shape[axis] <= MOST_SQUARES:
            return None
        keeps = bool(node.attributes.get("keepdims", 1))
        return tuple(f"{source}/part{number}/{axis}{'/kept' * keeps}" for number in range(shape[axis]))


@dataclass
class _Turns:
    """The writer of turns."""

    graph: Graph
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, np.ndarray]
    parts: set[str] = field(default_factory=set)

    def of(self, root: Root, constant: float) -> list[Node]:
        """Return the nodes that make a root of squares; ``constant``: a further number that is squared, if not 0."""
        nodes: list[Node] = []
        for name in root.numbers:
            if name not in self.graph.shapes and name not in self.parts:
                nodes.append(self._part(root.node, name))
        lengths = [self._new(root, nodes, "Abs", (name,), f"side{number}") for number, name in enumerate(root.numbers)]
        operands: list[str | float] = [*lengths, *([constant] if constant else [])]
        length = functools.reduce(lambda left, right: self._length(root, nodes, str(left), right), operands)
        if root.is_power:
            nodes.append(Node(root.node.name, "Mul", (str(length),) * 2, (root.node.output,), {}, root.node.op))
            return nodes
        if not root.moved:
            nodes[-1] = nodes[-1].replace(outputs=(root.node.output,))
            return nodes
        for number, move in enumerate(root.moved, 1):
            made = root.node.output if number == len(root.moved) else f"{root.node.output}/{move.output}"
            self.shapes[made] = self.graph.shapes[move.output]
            nodes.append(move.replace(inputs=(str(length), *move.inputs[1:]), outputs=(made,)))
            length = made
        return nodes

    def _part(self, node: Node, name: str) -> Node:
        """Return the node that takes a part of a tensor along an axis, see ``_Search._over_axis``."""
        self.parts.add(name)
        keeps = name.endswith("/kept")
        source, number, axis = name.removesuffix("/kept").rsplit("/", 2)
        index = int(number.removeprefix("part"))
        self.constants[f"{name}/index"] = np.array([index] if keeps else index, np.int64)
        shape = list(self.graph.shapes[source])
        shape[int(axis):int(axis) + 1] = [1] if keeps else []
        self.shapes[name] = tuple(shape)
        return Node(node.name, "Gather", (source, f"{name}/index"), (name,), {"axis": int(axis)}, node.op)

    def _new(self, root: Root, nodes: list[Node], op: str, inputs: tuple[str, ...], part: str) -> str:
        """Append a node that makes a tensor of the sum's shape; return the tensor's name."""
        name = f"{root.node.output}/{part}"
        self.shapes[name] = self.shapes[inputs[0]]
        nodes.append(Node(root.node.name, op, inputs, (name,), {}, root.node.op))
        return name

    def _length(self, root: Root, nodes: list[Node], left: str, right: str | float) -> str:
        """Append the nodes that make the length of (``left``, ``right``), which are not negative; return its name."""
        angle, gain, prefix = math.pi / 2, 1.0, f"{TURN.removeprefix('/')}{len(nodes)}"

        def times(operand: str | float, factor: float, part: str) -> str:
            """Return a tensor or constant times a factor, as the name of a tensor or constant."""
            if isinstance(operand, str) and factor == 1:
                return operand
            constant = f"{root.node.output}/{prefix}.{part}/factor"
            value = factor if isinstance(operand, str) else operand * factor
            self.constants[constant] = np.array(value, np.float32)
            return self._new(root, nodes, "Mul", (operand, constant), f"{prefix}.{part}/scaled") if isinstance(
                operand, str) else constant

        for turn in range(TURNS):
            angle /= 2
            slope, gain = math.tan(angle), gain / math.cos(angle)
            across = times(right, slope, f"across{turn}")
            along = self._new(root, nodes, "Add", (left, across), f"{prefix}.along{turn}")
            if turn < TURNS - 1:
                back = times(left, slope, f"back{turn}")
                # the sign is dropped: a tensor stands first, whichever of the two it is
                beside = self._new(root, nodes, "Sub", (back, times(right, 1.0, f"right{turn}")),
                                   f"{prefix}.beside{turn}")
                right = self._new(root, nodes, "Abs", (beside,), f"{prefix}.right{turn}")
            left = along
        return times(left, 2 / (gain * (1 + math.cos(angle))), "length")
