# SPDX-License-Identifier: Apache-2.0
"""Pass: masks of attention become numbers that a binary point can hold beside the scores.

A mask adds -1e4, the lowest float or minus infinity to scores before a Softmax, or a Where puts such a number in their
place. At one binary point with that number scores have no bits left. The Softmax only tells apart what lies less than
``-VANISHING[0]`` below the largest score, so a number just beyond that gives the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler.frontend.graph import FLOAT, Graph, Node
from weft.compiler.lowering.norm import VANISHING

LEAST = -64.0
"""Only numbers below this count as masks: beside others scores keep enough bits."""

ROOM = 1.5
"""The spread of scores for which a mask is made, as a multiple of the spread that calibration saw."""

MOVES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that leave vectors along the last axis whole if they leave its size."""

MAKERS = MOVES | {"Add", "Cast", "Concat", "Expand", "Max", "Min", "Mul", "Slice", "Sub", "Tile", "Transpose", "Where"}
"""Operators that compute a mask of truth values."""

Range = tuple[float, float]
Ranges = Callable[[Sequence[str]], Mapping[str, Range]]
"""A function that returns the lowest and the highest value of tensors."""


@dataclass(frozen=True)
class Mask:
    """A constant with masks in a graph: input ``place`` of ``node``. ``scores``: the tensor that it masks.

    ``computed``: further nodes make the mask of it."""

    node: Node
    place: int
    scores: str
    computed: bool = False

    def fitted(self, value: np.ndarray, scores: Range) -> np.ndarray:
        """Return the constant ``value`` raised to what is low enough for scores of this range."""
        depth = np.float32(ROOM * (scores[1] - scores[0]) - VANISHING[0])
        if self.computed:
            return np.maximum(value, -depth)
        return _raised(value, depth) if self.node.op == "Add" else np.maximum(value, np.float32(scores[1]) - depth)


def fit_masks(graph: Graph, measure: Ranges) -> Graph:
    """Return the graph with masks before a Softmax raised to what is just low enough.

    ``measure`` gives the ranges of scores."""
    masks = _masks(graph)
    if not masks:
        return graph
    ranges = measure(sorted({mask.scores for mask in masks}))
    changed: dict[str, Node] = {}
    constants: dict[str, np.ndarray] = {}
    for mask in masks:
        old, name = mask.node, f"{mask.node.output}/mask{mask.place}"
        value = mask.fitted(graph.constants[old.input(mask.place)], ranges[mask.scores])
        constants[name] = np.minimum(constants.get(name, value), value)  # the same mask may be that of several layers
        node = changed.get(old.output, old)
        changed[old.output] = node.replace(inputs=(*node.inputs[:mask.place], name, *node.inputs[mask.place + 1:]))
    return graph.with_nodes((changed.get(node.outputs[0], node) for node in graph.nodes), constants)


def mask_inputs(graph: Graph) -> list[str]:
    """Return the names of the inputs of truth values or integers from which masks of scores are computed."""
    makers = _makers(graph)
    waiting = [mask.node.output for mask in _masks(graph) if mask.computed]
    seen = set(waiting)
    while waiting:
        node = makers.get(waiting.pop())
        found = [name for name in (node.inputs if node else ()) if name not in seen]
        waiting += found
        seen.update(found)
    return [port.name for port in graph.inputs if port.tensor in seen and graph.type(port.tensor) != FLOAT]


def _makers(graph: Graph) -> dict[str, Node]:
    """Return the node that makes each computed tensor."""
    return {name: node for node in graph.nodes for name in node.outputs}


def _masks(graph: Graph) -> list[Mask]:
    """Return the masks of all scores that a Softmax reads."""
    if not any(_is_low(value) for value in graph.constants.values()):
        return []
    makers = _makers(graph)
    return [mask for node in graph.nodes if node.op == "Softmax" and _is_over_last_axis(graph, node)
            for mask in _masks_before(graph, makers, node.input(0))]


def _is_low(value: np.ndarray) -> bool:
    """Tell whether a constant of real numbers has some that may be a mask."""
    return value.dtype == FLOAT and bool((value < LEAST).any())


def _raised(mask: np.ndarray, depth: np.float32) -> np.ndarray:
    """Return a mask with nothing lower than ``depth`` below the highest number of its row.

    A row in which everything is masked becomes 0: its scores count as if nothing were."""
    most = mask.max(-1, keepdims=True)
    return np.where(most < LEAST, np.float32(0), np.maximum(mask, most - depth))


def _is_over_last_axis(graph: Graph, node: Node) -> bool:
    """Tell whether a Softmax normalises along the last axis alone."""
    rank = len(graph.shapes[node.input(0)])
    axis = node.attributes.get("axis", 1 if graph.opset < 13 else -1)
    return bool(axis % rank == rank - 1)


def _masks_before(graph: Graph, makers: Mapping[str, Node], name: str) -> Iterator[Mask]:
    """Yield the masks of the scores ``name``; each tensor on the way to the Softmax has no other reader."""
    size = graph.shapes[name][-1]
    while (node := makers.get(name)) and graph.has_one_reader(name):
        if node.op in MOVES:
            name = node.input(0)
            if name not in graph.shapes or graph.shapes[name][-1:] != (size,):
                return
            continue
        places = {"Add": (0, 1), "Where": (1, 2)}.get(node.op, ())
        tensors = [place for place in places if not graph.is_constant(node.input(place))]
        if len(tensors) == 2 and node.op == "Add":
            yield from (mask for place in places
                        for mask in _constants_of(graph, makers, node.input(place), node.input(1 - place)))
        if len(tensors) != 1:
            return
        mask = sum(places) - tensors[0]
        value, name = graph.constants[node.input(mask)], node.input(tensors[0])
        if _is_low(value) and (node.op == "Where" or value.shape[-1:] == (size,)):
            yield Mask(node, mask, name)
        if graph.shapes[name][-1:] != (size,):
            return


def _constants_of(graph: Graph, makers: Mapping[str, Node], name: str, scores: str) -> list[Mask]:
    """Return the low constants of a mask ``name`` that follows from truth values and integers by ``MAKERS`` alone."""
    waiting, seen = [name], {name}
    found: list[Mask] = []
    while waiting:
        node = makers.get(waiting.pop())
        if node is None or node.op not in MAKERS:
            return []
        for place, read in enumerate(node.inputs):
            if graph.is_constant(read):
                found += [Mask(node, place, scores, computed=True)] if _is_low(graph.constants[read]) else []
            elif read and read not in seen and graph.type(read) == FLOAT:
                waiting.append(read)
                seen.add(read)
    return found
