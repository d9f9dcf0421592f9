# SPDX-License-Identifier: Apache-2.0
"""Pass: a variance written as mean(x * x) - mean(x) * mean(x) becomes the mean of (x - mean(x)) squared.

Both means are of the size of x * x, and their difference has no better binary point than they have. If the mean is ten
times the deviation, nothing of 16 bits is left of the variance. Squares of x - mean(x) are small if the variance is.
Flax and many hand-made normalisations write variances so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Graph, Node, Shape
from weft.compiler.lowering.operators import RELABEL
from weft.compiler.passes.order import needed

AXES_ARE_AN_INPUT = 18
"""The opset from which ReduceSumSquare takes its axes as an input."""

EQUAL = 1e-5
"""The relative error allowed in a constant that is written in a few digits, such as 1 / count."""

REDUCTIONS = {"ReduceMean": True, "ReduceSum": False, "GlobalAveragePool": True}
"""Reductions that may make a mean, and whether they divide by the number of elements."""


class Mean(NamedTuple):
    """The mean of the tensor ``source`` over ``axes``, which count from 0."""

    source: str
    axes: tuple[int, ...]


class Variance(NamedTuple):
    """A variance found in the graph.

    ``of``: the mean that it is about; ``mean``: the tensor that holds this mean; ``made``: the tensor of the variance,
    or of its limit to at least 0."""

    of: Mean
    mean: str
    made: str


def canonicalise_variances(graph: Graph) -> Graph:
    """Return the graph with every variance computed as the mean of squared distances from the mean."""
    search = _Search(graph)
    found = {node.output: entry for node in graph.nodes if (entry := search.variance(node)) is not None}
    if not found:
        return graph
    made = _Centred(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output in found:
            nodes += made.nodes(node, found[node.output], {entry.output for entry in nodes})
        else:
            nodes.append(node)
    once = {node.output: node for node in reversed(nodes)}  # the first that makes a tensor
    nodes = [node for node in nodes if once[node.output] is node]
    return graph.replace(shapes=made.shapes).with_nodes(needed(nodes, graph.output_tensors()), made.constants)


class _Search:
    """The search of a graph for variances."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {node.output: node for node in graph.nodes}
        self.consumers = graph.consumers()

    def variance(self, node: Node) -> Variance | None:
        """Return the variance that ``node`` computes, as mean of squares minus squared mean; else None."""
        if node.op != "Sub":
            return None
        source = self._squared(node.input(1))
        mean, squares = source and self._mean(source), self._mean(node.input(0), squared=True)
        if source is None or mean is None or mean != squares:
            return None
        shapes = {self.graph.shapes[name] for name in (node.output, source)}
        if len(shapes) > 1 or not shapes & {_shape(self.graph, mean, kept) for kept in (True, False)}:
            return None
        return Variance(mean, source, self._limited(node.output))

    def _squared(self, name: str) -> str | None:
        """Return the tensor whose square the tensor ``name`` is, or None."""
        node = self.makers.get(name)
        if node is None or node.op not in ("Mul", "Pow"):
            return None
        is_square = node.input(0) == node.input(1) if node.op == "Mul" else self._number(node.input(1)) == 2
        return node.input(0) if is_square else None

    def _number(self, name: str) -> float | None:
        """Return the value of a constant with one element, or None."""
        value = self.graph.constants.get(name)
        return float(value.ravel()[0]) if value is not None and value.size == 1 else None

    def _mean(self, name: str, squared: bool = False) -> Mean | None:
        """Return the Mean that the tensor ``name`` is, or None; ``squared``: it must be a mean of squares.

        It is a reduction, perhaps times a constant."""
        node, factor = self.makers.get(name), 1.0
        if node is not None and node.op in ("Mul", "Div"):
            number = next(filter(None, map(self._number, node.inputs[node.op == "Div":])), None)
            if number is None:
                return None
            factor = number if node.op == "Mul" else 1 / number
            node = next((self.makers[entry] for entry in node.inputs if entry in self.makers), None)
        if node is None or node.op not in {*REDUCTIONS, "ReduceSumSquare"}:
            return None
        source: str | None = node.input(0)
        if squared and node.op != "ReduceSumSquare":
            source = self._squared(node.input(0))
        if source is None or squared != (node.op == "ReduceSumSquare" or source != node.input(0)):
            return None
        axes = self._axes(node)
        count = math.prod(self.graph.shapes[source][axis] for axis in axes)
        weight = factor * (1 if REDUCTIONS.get(node.op) else count)
        return Mean(source, axes) if axes and abs(weight - 1) < EQUAL else None

    def _axes(self, node: Node) -> tuple[int, ...]:
        """Return the axes of a reduction, from 0; an empty tuple if they are not known."""
        rank = len(self.graph.shapes[node.input(0)])
        if node.op == "GlobalAveragePool":
            return tuple(range(2, rank))
        axes = node.attributes.get("axes")
        if node.input(1):
            axes = self.graph.constants.get(node.input(1), np.zeros(0)).tolist()
        return tuple(sorted({int(axis) % rank for axis in axes})) if axes else ()

    def _limited(self, name: str) -> str:
        """Return the tensor max(x, 0) of ``name`` if nothing else reads ``name``, else ``name`` itself."""
        readers = self.consumers.get(name, [])
        if len(readers) != 1 or name in self.graph.output_tensors():
            return name
        reader = readers[0]
        bounds = [entry for entry in reader.inputs if entry and entry != name]
        limits = reader.op == "Relu" or (reader.op == "Max" and [*map(self._number, bounds)] == [0.0])
        return reader.output if limits and self.graph.shapes[reader.output] == self.graph.shapes[name] else name


class _Centred:
    """The writer of variances in the new form."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.makers = graph, {node.output: node for node in graph.nodes}
        self.shapes, self.constants = dict(graph.shapes), dict(graph.constants)

    def nodes(self, node: Node, variance: Variance, before: set[str]) -> list[Node]:
        """Return the nodes that replace the difference ``node``; ``before``: tensors that exist by then."""
        of, made = variance.of, variance.made
        centred = self._there(variance)
        nodes = [] if centred in before else self._differences(node, variance, centred or f"{made}/centred")
        centred = centred or f"{made}/centred"
        keeps = self.shapes[made] == _shape(self.graph, of, True)
        total, share = f"{made}/total", f"{made}/share"
        inputs: tuple[str, ...] = (centred,)
        attributes: dict[str, object] = {"keepdims": int(keeps)}
        if self.graph.opset < AXES_ARE_AN_INPUT:
            attributes["axes"] = of.axes
        else:
            inputs = centred, f"{made}/axes"
            self.constants[inputs[1]] = np.array(of.axes, np.int64)
        count = math.prod(self.shapes[of.source][axis] for axis in of.axes)
        self.constants[share] = np.array(1 / count, np.float32)
        self.shapes[total] = self.shapes[made]
        return [*nodes, node.replace(op="ReduceSumSquare", inputs=inputs, outputs=(total,), attributes=attributes),
                node.replace(op="Mul", inputs=(total, share), outputs=(made,), attributes={})]

    def _differences(self, node: Node, variance: Variance, centred: str) -> list[Node]:
        """Return the nodes that compute x - mean(x) as the tensor ``centred``."""
        source, kept = variance.of.source, _shape(self.graph, variance.of, True)
        self.shapes[centred] = self.shapes[source]
        mean, nodes = variance.mean, []
        if self.shapes[mean] != kept:
            mean, size = f"{centred}/mean", f"{centred}/size"
            self.constants[size] = np.array(kept, np.int64)
            self.shapes[mean] = kept
            nodes = [node.replace(op="Reshape", inputs=(variance.mean, size), outputs=(mean,), attributes={})]
        return [*nodes, node.replace(op="Sub", inputs=(source, mean), outputs=(centred,), attributes={})]

    def _there(self, variance: Variance) -> str | None:
        """Return the tensor x - mean(x) if the graph has it, else None."""
        kept = _shape(self.graph, variance.of, True)
        for node in self.graph.nodes:
            if node.op == "Sub" and node.input(0) == variance.of.source and (
                    self.graph.shapes.get(node.input(1)) == kept and
                    _unlabelled(node.input(1), self.makers) == _unlabelled(variance.mean, self.makers)):
                return node.output
        return None


def _unlabelled(name: str, makers: Mapping[str, Node]) -> str:
    """Return the tensor from which Reshape, Squeeze and the like, which keep the order of elements, make ``name``."""
    while name in makers and makers[name].op in RELABEL - {"Transpose"}:
        name = makers[name].input(0)
    return name


def _shape(graph: Graph, mean: Mean, kept: bool) -> Shape:
    """Return the shape of a mean, with its axes of size 1 if ``kept``, else without them."""
    shape = graph.shapes[mean.source]
    return tuple(1 if axis in mean.axes else size for axis, size in enumerate(shape) if kept or axis not in mean.axes)
