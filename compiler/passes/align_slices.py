# SPDX-License-Identifier: Apache-2.0
"""Decide where the channels of a convolution's result lie, if later operators read slices of them.

A slice that begins within a tile of lanes may touch one tile more than its channels fill, and each tile costs its
readers a pass. So each slice begins at a lane 0 of its own, if the whole tensor takes no more tiles for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.indices.index import run_on_indices
from weft.compiler.lowering.operators import ROWS

SLICES = ("Slice", "Split")
KEEP_CHANNELS = ("BatchNormalization", "Identity")
"""Operators that keep each channel where it is, beside elementwise operators of one tensor."""


def aligned_channels(graph: Graph, lanes: int) -> dict[str, np.ndarray]:
    """Return, for convolutions' results, [channels]: the place of each channel.

    Results whose channels keep their order have no entry."""
    if not any(node.op in SLICES for node in graph.nodes):
        return {}
    consumers, outputs = graph.consumers(), graph.output_tensors()
    found = {node.output: _places(graph, consumers, node.output, lanes) for node in graph.nodes
             if _is_dense(node) and node.output not in outputs}
    return {name: places for name, places in found.items() if places is not None}


def _places(graph: Graph, consumers: Mapping[str, Sequence[Node]], name: str, lanes: int) -> np.ndarray | None:
    """Return the places of a tensor's channels such that its slices begin at lane 0; None if that is not possible."""
    readers = list(_readers(graph, consumers, name))
    if not all(map(_follows, readers)):
        return None
    slices = [channels_of(graph, node, number) for node in readers if node.op in SLICES
              for number in range(len(node.outputs))]
    if not slices or None in slices:
        return None
    count = graph.shapes[name][1]
    parts = list(pairwise(sorted({0, count, *(bound for part in slices if part for bound in part)})))
    begins = lanes * np.cumsum([0, *(-(-(end - begin) // lanes) for begin, end in parts)])
    gains = any(-(-end // lanes) - begin // lanes > -(-(end - begin) // lanes) for begin, end in filter(None, slices))
    if not gains or begins[-1] > -(-count // lanes) * lanes:
        return None
    return np.concatenate([first + np.arange(end - begin)
                           for first, (begin, end) in zip(begins[:-1], parts, strict=True)])


def _readers(graph: Graph, consumers: Mapping[str, Sequence[Node]], name: str) -> Iterator[Node]:
    """Yield the nodes that read a tensor, or that read what elementwise operators make of it."""
    for reader in consumers.get(name, []):
        if _is_elementwise(graph, reader):
            yield from _readers(graph, consumers, reader.output)
        else:
            yield reader


def _is_elementwise(graph: Graph, node: Node) -> bool:
    """Tell whether a node leaves channels in their places. An output of the network does not count."""
    computed = [name for name in node.inputs if name and not graph.is_constant(name)]
    return (ROWS[node.op].elementwise or node.op in KEEP_CHANNELS) and len(computed) == 1 and (
        node.output not in graph.output_tensors())


def _is_dense(node: Node) -> bool:
    """Tell whether a node is a convolution without groups."""
    return node.op == "Conv" and node.attributes.get("group", 1) == 1


def _follows(reader: Node) -> bool:
    """Tell whether a reader can take channels from any place at no cost."""
    return _is_dense(reader) or reader.op in (*SLICES, "MaxPool") or (
        reader.op == "Concat" and reader.attributes["axis"] == 1)


def channels_of(graph: Graph, node: Node, number: int) -> tuple[int, int] | None:
    """Return the first and the last channel + 1 of output ``number`` of a Slice or Split.

    Return None if its channels are not in a row."""
    shape = graph.shapes[node.input(0)]
    index = np.broadcast_to(np.arange(shape[1]).reshape(-1, *(1,) * (len(shape) - 2)), shape)
    constants = {place: graph.constants[name] for place, name in enumerate(node.inputs) if place and name}
    taken = run_on_indices(node, graph.opset, index, constants, node.attributes)[number]
    channels = np.unique(taken)
    begin, end = int(channels[0]), int(channels[-1]) + 1
    in_order = np.broadcast_to(np.arange(begin, end).reshape(-1, *(1,) * (len(shape) - 2)), taken.shape[:1] + (
        end - begin, *taken.shape[2:]))
    return (begin, end) if np.array_equal(taken, in_order) else None
