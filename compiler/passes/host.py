"""Pass: cut off the end of the network that the machine does not compute; the driver runs it with onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass

from weft.compiler.errors import refuse_node
from weft.compiler.frontend.graph import Graph, Node, Port
from weft.compiler.frontend.onnx_writer import part_to_onnx

STARTS = frozenset({"Softmax", "LogSoftmax", "ArgMax", "ArgMin", "TopK"})
"""Operators that begin the host's part."""

FOLLOWS = STARTS | {"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}
"""Operators that may stand behind them."""


@dataclass(frozen=True)
class HostPart:
    """A small ONNX model: from outputs of the machine to outputs of the network.

    ``passes`` names the machine's outputs that are the network's too; ``operators`` is for people.
    """

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passes: tuple[str, ...]
    operators: tuple[str, ...]


def split_host(graph: Graph) -> tuple[Graph, HostPart | None]:
    """The machine's graph and the host's part, None when there is nothing for the host to do."""
    host = _host_nodes(graph)
    if not host:
        return graph, None
    made = {name for node in host for name in node.outputs}
    cut = list(dict.fromkeys(name for node in host for name in node.inputs
                             if name and name not in made and not graph.is_constant(name)))
    finals = {port.name: port.shape for port in graph.outputs if port.tensor in made}
    model = part_to_onnx(graph, host, {name: graph.shapes[name] for name in cut}, finals)
    kept = [port for port in graph.outputs if port.tensor not in made]
    part = HostPart(model.SerializeToString(deterministic=True), tuple(cut), tuple(finals),
                    tuple(port.name for port in kept), tuple(node.op for node in host))
    ports = kept + [Port(name, graph.shapes[name], name) for name in cut if name not in {p.tensor for p in kept}]
    rest = graph.with_nodes([node for node in graph.nodes if node not in host])
    return rest.replace(outputs=tuple(ports)), part


def _host_nodes(graph: Graph) -> list[Node]:
    host: list[Node] = []
    made: set[str] = set()
    for node in graph.nodes:
        behind = made.intersection(node.inputs)
        if not behind and node.op not in STARTS:
            continue
        if node.op not in FOLLOWS:
            raise refuse_node(node, "behind an operator that runs on the host", f"input {min(behind)!r}",
                              f"only {', '.join(sorted(FOLLOWS))} behind {', '.join(sorted(STARTS))}",
                              "cut the model before the host's operators and run the rest on the host")
        host.append(node)
        made.update(filter(None, node.outputs))
    return host
