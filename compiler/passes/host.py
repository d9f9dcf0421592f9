"""Pass: cut off the end of the network that the machine does not compute; the driver runs it with onnxruntime.

Softmax and the like at the end are always the host's; with ``--host-fallback`` whatever else is refused, and all that
reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.compiler.errors import CompileError, refuse_node
from weft.compiler.frontend.graph import Graph, Node, Port
from weft.compiler.frontend.onnx_writer import part_to_onnx
from weft.compiler.passes.operators import USE_HOST

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


def fall_back(graph: Graph, attempt: Callable[[Graph], object]) -> tuple[Graph, HostPart | None]:
    """The largest part that ``attempt`` accepts, and the rest for the host: nodes that it refuses, and their readers.

    Raises CompileError when nothing is left for the machine, or for what is no node's fault.
    """
    forced: set[str] = set()
    while True:
        machine, host = split_host(graph, frozenset(forced), anything=True)
        if not machine.nodes:
            first = next(node for node in graph.nodes if node.name in forced)
            raise refuse_node(first, "with --host-fallback", "nothing left for the machine",
                              "a network that begins with supported operators",
                              "compile without --host-fallback to see why")
        try:
            attempt(machine)
        except CompileError as error:
            if not error.node or error.node in forced or all(node.name != error.node for node in graph.nodes):
                raise
            forced.add(error.node)
            continue
        return machine, host


def split_host(graph: Graph, forced: frozenset[str] = frozenset(), anything: bool = False,
               ) -> tuple[Graph, HostPart | None]:
    """The machine's graph and the host's part, None when there is nothing for the host to do.

    ``forced`` names nodes that are the host's; with ``anything`` any operator may stand behind the host's.
    """
    host = _host_nodes(graph, forced, anything)
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


def _host_nodes(graph: Graph, forced: frozenset[str], anything: bool) -> list[Node]:
    host: list[Node] = []
    made: set[str] = set()
    for node in graph.nodes:
        behind = made.intersection(node.inputs)
        if not behind and node.op not in STARTS and node.name not in forced:
            continue
        if node.op not in FOLLOWS and not anything:
            raise refuse_node(node, "behind an operator that runs on the host", f"input {min(behind)!r}",
                              f"only {', '.join(sorted(FOLLOWS))} behind {', '.join(sorted(STARTS))}",
                              USE_HOST)
        host.append(node)
        made.update(filter(None, node.outputs))
    return host
