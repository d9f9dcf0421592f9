"""Pass: the nodes that the outputs need, in an order that the network alone decides.

Files of the same network list its branches in any order; what is compiled must not depend on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.compiler.frontend.graph import Graph, Node


def in_order(graph: Graph) -> Graph:
    """Each node comes after what it reads. Of the branches that it reads the longest comes first, so that results of
    short ones do not wait in memory for long. Nodes that no output depends on are dropped, and inputs that nobody
    reads."""
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
    """Nodes on the longest way from an input to each computed tensor."""
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depths[node.output] = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
    return depths


def needed(nodes: Sequence[Node], outputs: frozenset[str]) -> list[Node]:
    """In their order, without those that nobody reads."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.outputs):
            kept.append(node)
            read.update(node.inputs)
    return kept[::-1]
