# SPDX-License-Identifier: Apache-2.0
"""Partition: cut the network into subgraphs for the machine and for the host, which uses onnxruntime.

Only with ``--host-fallback`` does the host compute anything. Then it gets what the compiler refuses, and subgraphs of
the machine without a multiply-accumulate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.compiler.errors import CompileError, refuse_node
from weft.compiler.frontend.branches import conditions_of
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.macs import macs_of
from weft.compiler.frontend.onnx_writer import part_to_onnx
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.lowering.operators import ROWS, refusals
from weft.tmodel.host_part import HostPart
from weft.tmodel.onnx_runnable import check_bytes

BESIDE = "no multiply-accumulates, beside parts of the host"
LAST_JOIN = "joins results of the machine, in front of a part of the host"
JOINED_END = "joins lists of results, or is made of such a list, and no multiply-accumulate follows"
HOST, MACHINE = "host", "machine"
IN_FILES = {FAKE_QUANTIZE: "QuantizeLinear"}
"""Canonical operators -> the name that users know from files."""

Attempt = Callable[[Graph, bool], Sequence[CompileError]]
"""A function of a subgraph that returns the errors of nodes that the machine cannot compute.

The flag says whether to return only the first, or all at once, each as if the earlier ones were done elsewhere."""

PATIENCE = 16
"""The number of refusals that are found one by one.

A node may become possible once another one is the host's; but every refusal costs another look at all later nodes."""


@dataclass(frozen=True)
class Place:
    """A node's placement: the number of its subgraph, host or machine, and why on the host (empty on the machine)."""

    node: str
    operator: str
    part: int
    where: str
    why: str
    macs: int


@dataclass(frozen=True)
class Partition:
    """The subgraphs of a network in the order in which they run; ``places`` of its nodes in the graph's order.

    A Graph runs on the machine, a HostPart on the host. Each reads tensors of earlier ones, and inputs of the network,
    by their names."""

    parts: tuple[Graph | HostPart, ...]
    places: tuple[Place, ...]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The subgraphs of the machine."""
        return tuple(part for part in self.parts if isinstance(part, Graph))

    @property
    def hosts(self) -> tuple[HostPart, ...]:
        """The subgraphs of the host."""
        return tuple(part for part in self.parts if isinstance(part, HostPart))

    @cached_property
    def macs(self) -> int:
        """The multiply-accumulates of the whole network."""
        return sum(place.macs for place in self.places)

    @property
    def machine_share(self) -> float:
        """The machine's share of the multiply-accumulates, 0 to 1; of the nodes if there are none."""
        weights = [place.macs if self.macs else 1 for place in self.places]
        mine = sum(weight for place, weight in zip(self.places, weights, strict=True) if place.where == MACHINE)
        return mine / sum(weights) if weights else 0.0

    def text(self) -> str:
        """Return a line for each subgraph."""
        lines = []
        for number, part in enumerate(self.parts):
            if isinstance(part, Graph):
                lines.append(f"part {number}: {len(part.nodes)} nodes on the machine")
            else:
                lines.append(f"part {number}: on the host, {part.text()}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Part:
    """The subgraph of the machine on which the compiler's steps work: ``number``, from 1, of ``count``."""

    number: int
    count: int
    graph: Graph

    def text(self) -> str:
        """Return the number and count as text."""
        return f"part {self.number} of {self.count}\n"


def whole(graph: Graph) -> Partition:
    """Return the partition with everything on the machine. Raise CompileError for the first node it cannot compute."""
    for error in refusals(graph).values():
        raise error
    return Partition((graph,), tuple(_place(graph, node, 0, "") for node in graph.nodes))


def partition_graph(graph: Graph, attempt: Attempt) -> Partition:
    """Return the partition with as much on the machine as ``attempt`` accepts, in the fewest subgraphs.

    Raise CompileError if nothing is left for the machine, or for errors of no single node. Raise WeftError if the host
    would have to do more than it may (``onnx_runnable.py``)."""
    reasons = {name: error.why for name, error in refusals(graph).items()}
    first = next(iter(reasons), None)
    reasons = {**_joined_ends(graph), **reasons}
    accepted: set[frozenset[str]] = set()
    names = {node.name for node in graph.nodes}
    for turn in itertools.count():
        phases = _settled(graph, reasons)
        parts = _parts(graph, phases)
        mine = [part for part in parts if isinstance(part, Graph)]
        if not mine:
            raise _nothing_left(graph, first, reasons)
        every = turn >= PATIENCE
        found = (_refused(part, attempt, accepted, every) for part in mine)
        refused = [error for errors in found for error in errors] if every else next(filter(None, found), [])
        if not refused:
            for host in (part for part in parts if isinstance(part, HostPart)):
                check_bytes(host.model)
            return Partition(tuple(parts), _places(graph, phases, parts, reasons))
        for error in refused:
            if error.node in reasons or error.node not in names:
                raise error
            first = first or error.node
            reasons.update(dict.fromkeys(_at_fault(graph, error, reasons), error.why))
    raise AssertionError("every turn gives the host a node more")


def _refused(part: Graph, attempt: Attempt, accepted: set[frozenset[str]], every: bool) -> Sequence[CompileError]:
    """Return the errors of a subgraph's nodes, empty if the machine computes it; ``accepted`` caches the answer."""
    key = frozenset([*(node.output for node in part.nodes), *(f"{port.name} out" for port in part.outputs)])
    if key in accepted:
        return []
    errors = attempt(part, every)
    if not errors:
        accepted.add(key)
    return errors


def _at_fault(graph: Graph, error: CompileError, reasons: Mapping[str, str]) -> list[str]:
    """Return the names of the nodes that the host gets for a refusal: the node at fault, or those in front of it.

    A node with multiply-accumulates stays the machine's if it is refused for the order of what it reads, and nodes that
    only move elements made that order."""
    node = next(node for node in graph.nodes if node.name == error.node)
    makers = {name: maker for maker in graph.nodes for name in maker.outputs}
    moves: list[str] = []
    reads = list(node.inputs) if error.of_order and macs_of(graph, node) else []
    while reads:
        maker = makers.get(reads.pop())
        if maker is not None and ROWS[maker.op].moves and maker.name not in (*reasons, *moves):
            moves.append(maker.name)
            reads += maker.inputs
    return moves or [error.node]


def _nothing_left(graph: Graph, first: str | None, reasons: Mapping[str, str]) -> CompileError:
    """Return the error that nothing is left for the machine, with a way out; ``first``: the node refused first."""
    node = next(node for node in graph.nodes if node.name == first)
    fix = conditions_of(graph.nodes, node, [port.name for port in graph.inputs])
    return refuse_node(node, "with --host-fallback", f"nothing left for the machine ({reasons[node.name]})",
                       "a network of which the machine computes a part",
                       f"fix what it is chosen by: {fix}" if fix else "run this network with onnxruntime, or compile "
                       "for an architecture that has what it needs")


# -- phases ------------------------------------------------------------------------------------------------------------
def _settled(graph: Graph, reasons: dict[str, str]) -> dict[str, int]:
    """Return the phase of every node by its first output: even ones on the host, odd ones on the machine.

    Phases of the machine without multiply-accumulates become the host's, if others have some; without any, the largest
    stays. ``reasons``, node name -> why it is the host's, are added to."""
    while True:
        phases = _phases(graph, reasons)
        work: dict[int, tuple[int, int]] = {}
        for node in graph.nodes:
            phase = phases[node.output]
            if phase % 2:
                macs, nodes = work.get(phase, (0, 0))
                work[phase] = macs + macs_of(graph, node), nodes + 1
        poor = {phase for phase, (macs, _) in work.items() if not macs}
        if len(poor) == len(work) and not any(macs_of(graph, node) for node in graph.nodes):
            poor -= {max(poor, key=lambda phase: (work[phase], -phase), default=0)}
        moved = [node for node in graph.nodes if phases[node.output] in poor]
        reasons.update((node.name, BESIDE) for node in moved)
        joined = [] if moved else _last_joins(graph, phases, reasons)
        reasons.update((node.name, LAST_JOIN) for node in joined)
        if not moved and not joined:
            return phases


def _last_joins(graph: Graph, phases: Mapping[str, int], reasons: Mapping[str, str]) -> list[Node]:
    """Return the concatenations before a host subgraph that no node of the machine reads.

    On the host they are a copy, on the machine thousands of layers if their channels lie across lanes."""
    there, consumers = set(phases.values()), graph.consumers()
    return [node for node in graph.nodes
            if node.op == "Concat" and node.name not in reasons and phases[node.output] + 1 in there
            and all(reader.name in reasons for reader in consumers.get(node.output, []))]


def _joined_ends(graph: Graph) -> dict[str, str]:
    """Return name -> why for nodes that join detection heads' lists [1, many, few] at the network's end.

    Each head is transposed and all are joined; no multiply-accumulate follows. Onnxruntime does it in no time, the
    machine needs a copy for every few pixels."""
    works: set[str] = set()
    for node in reversed(graph.nodes):
        if macs_of(graph, node) or works.intersection(node.outputs):
            works.update(node.inputs)
    moved = {name for node in graph.nodes if node.op in ("Reshape", "Transpose") for name in node.outputs}
    ends: set[str] = set()
    found: dict[str, str] = {}
    for node in graph.nodes:
        joins = (node.op == "Concat" and len(node.inputs) > 1 and moved.issuperset(node.inputs)
                 and len(graph.shapes[node.output]) == 3 and node.attributes["axis"] in (1, -2))
        if (joins or ends.intersection(node.inputs)) and not works.intersection(node.outputs):
            ends.update(node.outputs)
            found[node.name] = JOINED_END
    return found


def _phases(graph: Graph, reasons: Mapping[str, str]) -> dict[str, int]:
    """Return the phase of every output, as early as what its node reads allows."""
    made: dict[str, int] = {}
    phases = {}
    for node in graph.nodes:
        before = max((made[name] for name in node.inputs if name in made), default=0)
        mine = node.name not in reasons
        phase = before if before % 2 == mine else before + 1
        made.update(dict.fromkeys(node.outputs, phase))
        phases[node.output] = phase
    return phases


def _parts(graph: Graph, phases: Mapping[str, int]) -> list[Graph | HostPart]:
    """Return the subgraphs in the order of their phases."""
    used = sorted(set(phases.values()))
    if len(used) == 1 and used[0] % 2:
        return [graph]
    found: list[Graph | HostPart] = []
    of_phase: dict[int, list[Node]] = {phase: [] for phase in used}
    for node in graph.nodes:
        of_phase[phases[node.output]].append(node)
    for phase, nodes in of_phase.items():
        reads, makes = _borders(graph, nodes, phases)
        found.append(_machine(graph, nodes, reads, makes) if phase % 2 else _host(graph, nodes, reads, makes))
    return found


def _borders(graph: Graph, nodes: list[Node], phases: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return (reads, makes) of the nodes of one phase.

    The first are tensors that they read and do not make. The second are tensors that they make and that nodes of other
    phases or the network's user read."""
    made = {name for node in nodes for name in node.outputs if name}
    reads = list(dict.fromkeys(name for node in nodes for name in node.inputs
                               if name and name not in made and not graph.is_constant(name)))
    readers, ends = graph.consumers(), graph.output_tensors()
    return reads, [name for node in nodes for name in node.outputs if name and (name in ends or any(
        phases[reader.output] != phases[node.output] for reader in readers.get(name, [])))]


def _machine(graph: Graph, nodes: Iterable[Node], reads: list[str], makes: list[str]) -> Graph:
    """Return the subgraph of the machine with these nodes, inputs and outputs."""
    given = {port.tensor: port for port in graph.inputs}
    ordered = [*(port.tensor for port in graph.inputs if port.tensor in reads),
               *(name for name in reads if name not in given)]
    final = {port.tensor: port for port in reversed(graph.outputs)}
    return graph.part(nodes).replace(
        inputs=tuple(given.get(name) or GraphPort(name, graph.shapes[name], name) for name in ordered),
        outputs=tuple(final.get(name) or GraphPort(name, graph.shapes[name], name) for name in makes))


def _host(graph: Graph, nodes: list[Node], reads: list[str], makes: list[str]) -> HostPart:
    """Return the host's subgraph with these nodes, inputs and outputs, as an ONNX model."""
    model = part_to_onnx(graph, nodes, reads, makes)
    return HostPart(model.SerializeToString(deterministic=True), tuple(reads), tuple(makes), (),
                    tuple(IN_FILES.get(node.op, node.op) for node in nodes), tuple(node.name for node in nodes))


def _places(graph: Graph, phases: Mapping[str, int], parts: list[Graph | HostPart],
            reasons: Mapping[str, str]) -> tuple[Place, ...]:
    """Return where each node runs, in the graph's order."""
    number = {phase: index for index, phase in enumerate(sorted(set(phases.values())))}
    assert len(number) == len(parts)
    return tuple(_place(graph, node, number[phases[node.output]], reasons.get(node.name, "")) for node in graph.nodes)


def _place(graph: Graph, node: Node, part: int, why: str) -> Place:
    """Return where a node runs; ``why`` is empty for the machine."""
    return Place(node.name, IN_FILES.get(node.op, node.op), part, HOST if why else MACHINE, why, macs_of(graph, node))
