# SPDX-License-Identifier: Apache-2.0
"""Which part of a network runs where, drawn, against plain rules: what parts read and make, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from weft.compiler.errors import CompileError, refuse_node
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.partition import BESIDE, HOST, MACHINE, Partition, partition_graph
from weft.tmodel.host_part import HostPart

SHAPE = (1, 4, 3, 3)


def network(draw: np.random.Generator) -> tuple[Graph, set[str]]:
    """Nodes of the last few tensors and the inputs, and the names of those that the machine is to refuse."""
    names, nodes, bad = ["x", "z"], [], set()
    for number in range(int(draw.integers(2, 12))):
        kind = int(draw.integers(8))
        read = [names[int(place)] for place in draw.integers(max(len(names) - 4, 0), len(names), 2)]
        name = f"n{number}"
        op, inputs, more = [("Conv", (read[0], "w"), {"kernel_shape": (1, 1), "group": 1}), ("Relu", (read[0],), {}),
                            ("Add", (read[0], read[1]), {})][min(kind % 4, 2)]
        nodes.append(Node(name, op, inputs, (f"t{number}",), more))
        names.append(f"t{number}")
        if draw.random() < 0.25:
            bad.add(name)
    used = {name for node in nodes for name in node.inputs}
    ends = [node.output for node in nodes if node.output not in used or draw.random() < 0.15]
    shapes = dict.fromkeys(names, SHAPE)
    return Graph("net", tuple(nodes), tuple(GraphPort(name, SHAPE, name) for name in ("x", "z")),
                 tuple(GraphPort(f"out of {name}", SHAPE, name) for name in ends), shapes,
                 {"w": np.zeros((4, 4, 1, 1), np.float32)}, 13), bad


def attempt_of(bad: set[str], asked: list[bool]) -> Any:
    def attempt(part: Graph, every: bool) -> Sequence[CompileError]:
        asked.append(every)
        found = [refuse_node(node, "what", "found", "allowed", "way out") for node in part.nodes if node.name in bad]
        return found if every else found[:1]
    return attempt


def reads_and_makes(part: Graph | HostPart) -> tuple[list[str], list[str]]:
    if isinstance(part, HostPart):
        return [*part.inputs], [*part.outputs]
    return [port.tensor for port in part.inputs], [port.tensor for port in part.outputs]


def check_parts(graph: Graph, found: Partition) -> None:
    """Each part has what it reads from the network's inputs and the parts before, and makes what others need alone."""
    nodes = {node.name: node for node in graph.nodes}
    of_part: dict[int, list[Node]] = {}
    for place in found.places:
        of_part.setdefault(place.part, []).append(nodes[place.node])
    assert sorted(of_part) == [*range(len(found.parts))] and [place.node for place in found.places] == [*nodes]
    ends, there = {port.tensor for port in graph.outputs}, {port.tensor for port in graph.inputs}
    for number, part in enumerate(found.parts):
        own = of_part[number]
        made, read = {node.output for node in own}, {name for node in own for name in node.inputs if name != "w"}
        later = {name for other, after in of_part.items() if other != number for node in after for name in node.inputs}
        reads, makes = reads_and_makes(part)
        needed = read - made if len(found.parts) > 1 else there  # a whole network is left as it is
        assert len(set(reads)) == len(reads) and set(reads) == needed <= there
        assert makes == [node.output for node in own if node.output in ends | later]
        assert {place.where for place in found.places if place.part == number} == {
            HOST if isinstance(part, HostPart) else MACHINE}
        if isinstance(part, HostPart):
            assert part.nodes == tuple(node.name for node in own)
        else:
            assert part.nodes == tuple(own)
            names = {port.tensor: port.name for port in graph.outputs}
            assert [port.name for port in part.outputs] == [names.get(name, name) for name in makes]
        there |= set(makes)
    assert ends <= there


def fewest(graph: Graph, mine: dict[str, bool]) -> int:
    """Count how often at most a way from an input to a node goes from host to machine or back, and one more."""
    depth: dict[str, int] = {}
    sides: dict[str, bool] = {}
    for node in graph.nodes:
        side = mine[node.name]
        depth[node.output] = max([int(side), *(depth[name] + (sides[name] != side) for name in node.inputs
                                               if name in depth)])
        sides[node.output] = side
    return len(set(depth.values()))


@pytest.mark.parametrize("patience", [16, 0])
def test_parts_of_drawn_networks(patience: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has what the machine refuses, and parts without work where others have some."""
    monkeypatch.setattr("weft.compiler.partition.PATIENCE", patience)
    counts = []
    for seed in range(150):
        graph, bad = network(np.random.default_rng(seed))
        works, asked = {node.name for node in graph.nodes if node.op == "Conv"}, list[bool]()
        if not {node.name for node in graph.nodes} - bad or works and not works - bad:
            with pytest.raises(CompileError, match="nothing left for the machine"):
                partition_graph(graph, attempt_of(bad, asked))
            continue
        found = partition_graph(graph, attempt_of(bad, asked))
        check_parts(graph, found)
        counts.append(len(found.parts))
        mine = {place.node: place.where == MACHINE for place in found.places}
        assert len(found.parts) == fewest(graph, mine), seed
        assert all(bool(place.why) == (place.where == HOST) for place in found.places)
        assert not any(mine[name] for name in bad)
        assert {place.node for place in found.places if place.why not in ("", BESIDE)} <= bad
        assert asked[-1] == (patience == 0)
        for part in found.graphs:
            assert not works - bad or any(node.op == "Conv" for node in part.nodes)
        total, own = (sum(place.macs for place in found.places if place.where in sides)
                      for sides in ((HOST, MACHINE), (MACHINE,)))
        assert found.macs == total == sum(36 * 4 for node in graph.nodes if node.op == "Conv")
        share = own / total if total else sum(mine.values()) / len(mine)
        assert found.machine_share == pytest.approx(share)
    assert len(counts) > 80 and {1, 2, 3, 4} <= {*counts}
