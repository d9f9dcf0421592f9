"""Pass: cut off the end of the network that the machine does not compute; the driver runs it with onnxruntime.

Only where the user asks for it, with ``--host-fallback``. Then the host gets Softmax and the like, whatever else the
compiler refuses, and all that reads either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.compiler.errors import CompileError, refuse_node
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.onnx_writer import part_to_onnx
from weft.compiler.passes.operators import HOST_OPERATORS
from weft.runtime.host_part import HostPart, named


@dataclass(frozen=True)
class OnHost:
    """The part of the network that the host computes, where there is one."""

    part: HostPart | None

    def text(self) -> str:
        return "" if self.part is None else f"on the host: {self.part.text()}\n"


def refuse_host(graph: Graph) -> None:
    """Raises CompileError, naming the nodes, where a part of the network is only for the host."""
    host = _host_nodes(graph, frozenset())
    if host:
        found = named([node.name for node in host], [node.op for node in host])
        raise refuse_node(host[0], "", f"a part that the machine does not compute: {found}",
                          "operators of the machine (docs/operators.md)",
                          "--host-fallback runs this part on the host, with onnxruntime; --output ends the network "
                          "before it")


def fall_back(graph: Graph, attempt: Callable[[Graph], object]) -> tuple[Graph, HostPart | None]:
    """The largest part that ``attempt`` accepts, and the rest for the host: nodes that it refuses, and their readers.

    Raises CompileError when nothing is left for the machine, or for what is no node's fault.
    """
    forced: set[str] = set()
    while True:
        machine, host = split_host(graph, frozenset(forced))
        if not machine.nodes:
            first = next(node for node in graph.nodes if node.name in forced or node.op in HOST_OPERATORS)
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


def split_host(graph: Graph, forced: frozenset[str] = frozenset()) -> tuple[Graph, HostPart | None]:
    """The machine's graph and the host's part, None when there is nothing for the host to do.

    ``forced`` names nodes that are the host's, besides HOST_OPERATORS.
    """
    host = _host_nodes(graph, forced)
    if not host:
        return graph, None
    made = {name for node in host for name in node.outputs}
    cut = list(dict.fromkeys(name for node in host for name in node.inputs
                             if name and name not in made and not graph.is_constant(name)))
    finals = {port.name: port.shape for port in graph.outputs if port.tensor in made}
    model = part_to_onnx(graph, host, {name: graph.shapes[name] for name in cut}, finals)
    kept = [port for port in graph.outputs if port.tensor not in made]
    part = HostPart(model.SerializeToString(deterministic=True), tuple(cut), tuple(finals),
                    tuple(port.name for port in kept), tuple(node.op for node in host),
                    tuple(node.name for node in host))
    ports = kept + [GraphPort(name, graph.shapes[name], name) for name in cut if name not in {p.tensor for p in kept}]
    rest = graph.with_nodes([node for node in graph.nodes if node not in host])
    return rest.replace(outputs=tuple(ports)), part


def _host_nodes(graph: Graph, forced: frozenset[str]) -> list[Node]:
    """The host's nodes, and all that read what they make."""
    host: list[Node] = []
    made: set[str] = set()
    for node in graph.nodes:
        if made.intersection(node.inputs) or node.op in HOST_OPERATORS or node.name in forced:
            host.append(node)
            made.update(filter(None, node.outputs))
    return host
