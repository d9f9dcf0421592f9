# SPDX-License-Identifier: Apache-2.0
"""Pass: keep the nodes that the outputs need, in an order that the network alone decides.

Files of the same network list its branches in any order; what is compiled must not depend on that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft.compiler.frontend.graph import Graph, Node


def in_order(graph: Graph) -> Graph:
    """Return the graph with each node after what it reads, and without nodes and inputs that nobody needs.

    Among the branches that a node reads the longest comes first, so that results of short ones do not wait in
    memory. Copies of inputs into an output come before it is known what else that output holds."""
    makers = {node.output: node for node in graph.nodes}
    depths = _depths(graph)
    kept: dict[str, Node] = {}

    def branches(name: str) -> Iterator[str]:
        return iter(sorted(filter(makers.__contains__, makers[name].inputs), key=depths.__getitem__, reverse=True))

    waiting = [(port.tensor, branches(port.tensor)) for port in reversed(graph.outputs) if port.tensor in makers]
    while waiting:
        name, left = waiting[-1]
        missing = next((entry for entry in left if entry not in kept), None)
        if missing is not None:
            waiting.append((missing, branches(missing)))
        else:
            kept.setdefault(name, makers[name])
            waiting.pop()
    read = graph.output_tensors().union(*(node.inputs for node in kept.values()))
    inputs = tuple(port for port in graph.inputs if port.tensor in read)
    return graph.with_nodes(_copies_first(graph, list(kept.values()))).replace(inputs=inputs)


def _copies_first(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Return the nodes with copies of inputs moved up, for Assembles that are outputs, as a cache that grows.

    They go in front of the first node that reads what the other parts read. So nobody waits for them afterwards, and
    the output has its place in memory in any case."""
    makers = {node.output: node for node in nodes}
    ends = graph.output_tensors()
    for whole in [node for node in nodes if node.op == "Assemble" and node.output in ends]:
        parts = [makers[name] for name in whole.inputs if name in makers]
        copies = [[*_of_inputs(part, makers)] for part in parts]
        sources = {name for part, found in zip(parts, copies, strict=True) if not found for name in part.inputs}
        moved = [node for found in copies for node in found]
        place = min((number for number, node in enumerate(nodes) if sources.intersection(node.inputs)),
                    default=len(nodes))
        moved = [node for node in moved if nodes.index(node) > place]
        if moved:
            rest = [node for node in nodes if node not in moved]
            place = rest.index(nodes[place])
            nodes = [*rest[:place], *moved, *rest[place:]]
    return nodes


def _of_inputs(node: Node, makers: Mapping[str, Node]) -> Iterator[Node]:
    """Yield ``node`` and the View that it reads, if there is one, if nothing else computed what it reads; else none."""
    first, *others = node.inputs
    source = makers.get(first)
    if any(name in makers for name in others):
        return
    if source is None:
        yield node
    elif source.op == "View" and source.input(0) not in makers:
        yield from (source, node)


def _depths(graph: Graph) -> dict[str, int]:
    """Return, for each computed tensor, the number of nodes on the longest way from an input to it."""
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depths[node.output] = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
    return depths


def needed(nodes: Sequence[Node], outputs: frozenset[str]) -> list[Node]:
    """Return the nodes that ``outputs`` depend on, in their order."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.outputs):
            kept.append(node)
            read.update(node.inputs)
    return kept[::-1]
