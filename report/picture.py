# SPDX-License-Identifier: Apache-2.0
"""The network as a graph to draw: the machine's layers and the host's nodes in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.report.texts import shown
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

MACHINE, HOST, EDGE = "machine", "host", "network"


def nodes(network: Network) -> list[dict[str, Any]]:
    """Return the nodes of the graph; the first is the network's inputs, the last its outputs.

    Each has ``label``, ``detail``, ``where`` it runs; ``layer``: its number among the layers of all programs, or null;
    ``after``: the numbers of the nodes that it reads. If a part does not say what its layers read, each reads the one
    before; a part's inputs come from the node before the part."""
    found = [_edge("inputs", network.signature.inputs, [])]
    layers = 0
    for part in network.parts:
        before = len(found)
        if isinstance(part, HostPart):
            found += _host(part, before)
        else:
            found += _machine(part, before, layers)
            layers += len(part.layers)
    read = {number for node in found for number in node["after"]}
    ends = [number for number in range(len(found)) if number not in read]
    return [*found, _edge("outputs", network.signature.outputs, ends)]


def _edge(label: str, tensors: Sequence[Any], after: list[int]) -> dict[str, Any]:
    """Return the node of the network's inputs or outputs."""
    names = ", ".join(f"{tensor.name} {'x'.join(map(str, tensor.shape or ()))}".strip() for tensor in tensors)
    return {"label": label, "detail": shown(names), "where": EDGE, "layer": None, "after": after}


def _host(part: HostPart, before: int) -> list[dict[str, Any]]:
    """Return the nodes of a part of the host, after node ``before`` - 1."""
    return [{"label": shown(name), "detail": shown(operator), "where": HOST, "layer": None,
             "after": [before + index - 1]}
            for index, (name, operator) in enumerate(zip(part.nodes, part.operators, strict=True))]


def _machine(part: TModel, before: int, layers: int) -> list[dict[str, Any]]:
    """Return the nodes of a program's layers, numbered from ``layers`` on."""
    found = []
    for number, row in enumerate(part.layers):
        sources = _numbers(row.get("after"), number)
        if sources is None:
            sources = [number - 1] if number else []
        after = [before + source for source in sources] or [before - 1]
        size = " → ".join("x".join(map(str, row[key])) for key in ("input", "output") if isinstance(row.get(key), list))
        found.append({"label": shown(row["name"]), "detail": shown(" ".join(filter(None, [row["kind"], size]))),
                      "where": MACHINE, "layer": layers + number, "after": after})
    return found


def _numbers(values: Any, below: int) -> list[int] | None:
    """Return a list of layers before layer ``below``; None for anything else, as rows of a file are unchecked."""
    if isinstance(values, list) and all(isinstance(value, int) and 0 <= value < below for value in values):
        return values
    return None
