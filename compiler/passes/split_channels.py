# SPDX-License-Identifier: Apache-2.0
"""Pass: a convolution of which others only choose channels makes what each of them chooses.

A product with queries, keys and values in one matrix is then three, and each lies where its reader wants it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.rewrite import NO_WINDOW
from weft.compiler.passes.order import needed


def split_channels(graph: Graph, lanes: int) -> Graph:
    """Return the graph with such convolutions split, where that is no more work for an array of ``lanes`` lanes."""
    ends = graph.output_tensors()
    graph = graph.with_nodes(needed(graph.nodes, ends))
    consumers = graph.consumers()
    made: dict[str, list[Node]] = {}
    constants = dict(graph.constants)
    for conv in graph.nodes:
        readers = consumers.get(conv.output, [])
        if conv.op != "Conv" or conv.attributes["group"] > 1 or conv.output in ends or len(readers) < 2:
            continue
        chosen = [chosen_channels(graph, reader) for reader in readers]
        selections = [entry for entry in chosen if entry is not None]
        if len(selections) == len(readers) and _no_more_work(graph, conv, selections, lanes):
            parts = _parts(conv, readers, selections, constants)
            made |= {conv.output: [], **{part.output: [part] for part in parts}}
    return graph.with_nodes([part for node in graph.nodes for part in made.get(node.output, [node])], constants)


def chosen_channels(graph: Graph, node: Node) -> np.ndarray | None:
    """Return the channels that a node chooses from its input, None if it does anything else."""
    if node.op != "Conv" or node.attributes["group"] > 1 or any(
            tuple(np.ravel(node.attributes[key])) != tuple(np.ravel(value)) for key, value in NO_WINDOW.items()):
        return None
    weights, bias = (graph.constants[name] for name in node.inputs[1:])
    if weights.shape[2:] != (1, 1) or bias.any() or (np.count_nonzero(weights, axis=1) != 1).any() or (
            weights.max(axis=1) != 1).any():
        return None
    return weights[:, :, 0, 0].argmax(axis=1)


def _no_more_work(graph: Graph, conv: Node, selections: Sequence[np.ndarray], lanes: int) -> bool:
    """Tell whether all parts have no more tiles than the whole, which are at least those that each part reads."""
    def tiles(channels: int) -> int:
        return -(-channels // lanes)

    whole = tiles(graph.shapes[conv.output][1])
    return (sum(tiles(len(selection)) for selection in selections) <= whole
            and tiles(graph.shapes[conv.input(0)][1]) <= whole)


def _parts(conv: Node, readers: Sequence[Node], selections: Sequence[np.ndarray],
           constants: dict[str, np.ndarray]) -> list[Node]:
    """Return the convolution that makes each reader's result; add its weights and bias to ``constants``."""
    ends = np.cumsum([0, *map(len, selections)])
    counts = np.rint(ends * ((conv.macs or 0) / ends[-1])).astype(int)
    found = []
    for number, (reader, selection) in enumerate(zip(readers, selections, strict=True)):
        names = [f"{reader.output}/of_{part}" for part in ("weights", "bias")]
        for name, source in zip(names, conv.inputs[1:], strict=True):
            values = constants[source]
            constants[name] = values[selection] if len(values) > 1 else values
        found.append(conv.replace(inputs=(conv.input(0), *names), outputs=reader.outputs,
                                  macs=int(counts[number + 1] - counts[number])))
    return found
