# SPDX-License-Identifier: Apache-2.0
"""Pass: the maximum over windows of a concatenation becomes the concatenation of its parts' maxima.

So each part's pool joins the layer that makes the part. A concatenation that only pools read is never made: its parts
are not saved and loaded just to be pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.compiler.frontend.graph import Graph, Node, Shape

CHANNELS = 1


def pool_parts(graph: Graph) -> Graph:
    """Return the network with every MaxPool of a Concat over channels as a Concat of MaxPools, nested ones too."""
    concats = {node.output: node for node in graph.nodes if _joins_tensors(graph, node)}
    if not any(node.op == "MaxPool" and node.input(0) in concats for node in graph.nodes):
        return graph
    shapes = dict(graph.shapes)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _parted(node, concats, shapes) if node.op == "MaxPool" else [node]
    return graph.with_nodes(_read(graph, nodes, concats)).replace(shapes=shapes)


def _joins_tensors(graph: Graph, node: Node) -> bool:
    """Tell whether a node is a Concat over channels of computed tensors."""
    return (node.op == "Concat" and node.attributes["axis"] % len(graph.shapes[node.output]) == CHANNELS
            and all(name in graph.shapes and not graph.is_constant(name) for name in node.inputs))


def _parted(pool: Node, concats: Mapping[str, Node], shapes: dict[str, Shape]) -> list[Node]:
    """Return the nodes that replace a MaxPool, or the pool itself."""
    concat = concats.get(pool.input(0))
    if concat is None:
        return [pool]
    batch, _, *size = shapes[pool.output]
    made: list[Node] = []
    parts: list[str] = []
    for source in concat.inputs:
        name = f"{pool.output}/pooled.{len(shapes)}"
        shapes[name] = (batch, shapes[source][CHANNELS], *size)
        made += _parted(pool.replace(inputs=(source,), outputs=(name,)), concats, shapes)
        parts.append(name)
    return [*made, concat.replace(name=pool.name, inputs=tuple(parts), outputs=pool.outputs)]


def _read(graph: Graph, nodes: Sequence[Node], concats: Mapping[str, Node]) -> list[Node]:
    """Return the nodes without the Concats that nobody reads any more."""
    read = set(graph.output_tensors())
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.output in read or node.output not in concats:
            kept.append(node)
            read.update(node.inputs)
    return kept[::-1]
