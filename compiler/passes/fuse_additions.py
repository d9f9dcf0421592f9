# SPDX-License-Identifier: Apache-2.0
"""Pass: the sum of two convolutions becomes one convolution, so that the first result is not saved and read again.

Both inputs are written into one tensor (Assemble), each from lane 0 of a tile on, and the convolution reads the
channels of both. Convolutions of the same input add their weights. A smaller kernel gets zeros around it, which are
neither stored nor computed. Parts of one tensor share a binary point, and so do the weights, so only tensors and
weights of similar size are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Graph, Node

ALIKE = 4.0
"""The largest ratio of two magnitudes that are joined: at most two bits behind the binary point are lost."""

Ranges = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Tensor -> lowest and highest value of every channel."""


class Sum(NamedTuple):
    """An Add of the results of two convolutions that have no other reader."""

    add: Node
    first: Node
    second: Node

    @property
    def sources(self) -> tuple[str, str]:
        """The inputs of the two convolutions."""
        return self.first.input(0), self.second.input(0)


def fuse_additions(graph: Graph, lanes: int, measure: Callable[[Sequence[str]], Ranges]) -> Graph:
    """Return the network in which each sum of two convolutions is one convolution.

    ``measure`` gives the ranges of tensors and is only called if there are sums of two convolutions."""
    found = _sums(graph)
    if not found:
        return graph
    names = list(dict.fromkeys(name for entry in found for name in entry.sources))
    sizes = {name: float(max(np.abs(low).max(), np.abs(high).max())) for name, (low, high) in measure(names).items()}
    joined: dict[str, Sum] = {}
    parts: set[str] = set()
    for entry in found:
        apart = len(set(entry.sources)) == 1 or not parts.intersection(entry.sources)
        if apart and _alike(*(sizes[name] for name in entry.sources)) and _alike(*_weight_sizes(graph, entry)):
            joined[entry.add.output] = entry
            parts.update(entry.sources if len(set(entry.sources)) == 2 else ())
    return _rewritten(graph, joined, lanes)


def _alike(left: float, right: float) -> bool:
    """Tell whether two magnitudes are similar enough to share a binary point."""
    return max(left, right) <= ALIKE * min(left, right)


def _weight_sizes(graph: Graph, entry: Sum) -> tuple[float, ...]:
    """Return the largest magnitude of each convolution's weights."""
    return tuple(float(np.abs(graph.constants[node.input(1)]).max()) for node in entry[1:])


def _sums(graph: Graph) -> list[Sum]:
    """Return the sums of two convolutions that can be joined, whatever their sizes."""
    makers = {node.output: node for node in graph.nodes}
    fixed = {port.tensor for port in graph.inputs} | graph.output_tensors()
    fixed |= {name for node in graph.nodes if node.op in ("Assemble", "View")
              for name in (node.output, *(node.inputs if node.op == "Assemble" else ()))}
    found = []
    for node in graph.nodes:
        convs = [makers.get(name) for name in node.inputs] if node.op == "Add" else []
        own = [conv for conv in convs if conv is not None and conv.op == "Conv" and conv.attributes["group"] == 1
               and graph.has_one_reader(conv.output)]
        if len(own) == 2 and _fits(graph, own[0], own[1], fixed):
            found.append(Sum(node, own[0], own[1]))
    return found


def _fits(graph: Graph, first: Node, second: Node, fixed: set[str]) -> bool:
    """Tell whether both convolutions walk over images of one size in the same way, and their inputs can be joined.

    ``fixed`` has the tensors that cannot become part of another one."""
    left, right = first.input(0), second.input(0)
    if left != right and (fixed.intersection((left, right)) or graph.shapes[left][2:] != graph.shapes[right][2:]):
        return False
    same = all(first.attributes[key] == second.attributes[key] for key in ("strides", "dilations"))
    kernels = first.attributes["kernel_shape"], second.attributes["kernel_shape"]
    return same and (set(first.attributes["dilations"]) == {1} or
                     (kernels[0] == kernels[1] and first.attributes["pads"] == second.attributes["pads"]))


def _rewritten(graph: Graph, joined: Mapping[str, Sum], lanes: int) -> Graph:
    """Return the graph with the sums ``joined`` (by output) as one convolution each."""
    gone = {conv.output for entry in joined.values() for conv in entry[1:]}
    nodes: list[Node] = []
    constants: dict[str, np.ndarray] = {}
    shapes = dict(graph.shapes)
    for node in graph.nodes:
        if node.output in gone:
            continue
        entry = joined.get(node.output)
        if entry is None:
            nodes.append(node)
            continue
        source, starts = _source(graph, entry, lanes, nodes, shapes)
        nodes.append(_convolution(graph, entry, source, shapes[source][1], starts, constants))
    return graph.with_nodes(nodes, constants).replace(shapes=shapes)


def _source(graph: Graph, entry: Sum, lanes: int, nodes: list[Node],
            shapes: dict[str, tuple[int, ...]]) -> tuple[str, tuple[int, int]]:
    """Return the tensor with the channels of both inputs, and the first channel of each in it."""
    left, right = entry.sources
    if left == right:
        return left, (0, 0)
    _, channels, height, width = graph.shapes[left]
    start = -(-channels // lanes) * lanes
    name = f"{entry.add.output}/inputs"
    places = ((0, 0, width, 1), (start, 0, width, 1))
    nodes.append(Node(entry.add.name, "Assemble", (left, right), (name,), {"places": places}))
    shapes[name] = (1, start + graph.shapes[right][1], height, width)
    return name, (0, start)


def _convolution(graph: Graph, entry: Sum, source: str, channels: int, starts: tuple[int, int],
                 constants: dict[str, np.ndarray]) -> Node:
    """Return the convolution of ``source`` that computes a sum; add its weights and bias to ``constants``."""
    convs, add = entry[1:], entry.add
    before = [max(conv.attributes["pads"][axis] for conv in convs) for axis in range(2)]
    after = [max(conv.attributes["kernel_shape"][axis] - conv.attributes["pads"][axis] for conv in convs)
             for axis in range(2)]
    kernel = (before[0] + after[0], before[1] + after[1])
    made = graph.shapes[add.output][1]
    weights, bias = np.zeros((made, channels, *kernel)), np.zeros(made)
    for conv, start in zip(convs, starts, strict=True):
        own = graph.constants[conv.input(1)]
        rows, columns = (slice(before[axis] - conv.attributes["pads"][axis],
                               before[axis] - conv.attributes["pads"][axis] + own.shape[2 + axis]) for axis in range(2))
        weights[:, start:start + own.shape[1], rows, columns] += own
        bias += graph.constants[conv.input(2)]
    names = (f"{add.output}/joined_weights", f"{add.output}/joined_bias")
    constants |= dict(zip(names, (weights.astype(np.float32), bias.astype(np.float32)), strict=True))
    size, image = graph.shapes[add.output][2:], graph.shapes[convs[0].input(0)][2:]
    strides, dilations = (convs[0].attributes[key] for key in ("strides", "dilations"))
    ends = [max((size[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - before[axis]
                - image[axis], 0) for axis in range(2)]
    macs = sum(conv.macs or 0 for conv in convs)
    origin = next((conv.origin for conv in convs if conv.macs), convs[0].origin)
    return Node(f"{convs[0].name}+{convs[1].name}", "Conv", (source, *names), (add.output,),
                {**convs[0].attributes, "kernel_shape": kernel, "pads": (*before, *ends)}, origin, macs)
