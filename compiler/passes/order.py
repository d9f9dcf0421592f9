"""Pass: keep the nodes that the outputs need, in an order that the network alone decides.

Files of the same network list its branches in any order; what is compiled must not depend on that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.compiler.frontend.graph import Graph, Node


def in_order(graph: Graph) -> Graph:
    """Return the graph with each node after what it reads, and without nodes and inputs that nobody needs.

    Among the branches that a node reads the longest comes first, so that results of short ones do not wait in
    memory."""
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
    return graph.with_nodes(kept.values()).replace(inputs=tuple(port for port in graph.inputs if port.tensor in read))


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
