# SPDX-License-Identifier: Apache-2.0
"""The command ``weft inspect``: describe a network and where it would run, without compiling it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli import console
from weft.cli.options import (
    EndOption,
    FixOption,
    JsonOption,
    ModelArgument,
    SetOption,
    ShapeOption,
    ends,
    fixed_inputs,
    input_shapes,
    override,
)
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

if TYPE_CHECKING:
    from weft.compiler.frontend.graph import Graph, GraphPort
    from weft.compiler.partition import Partition

FIRST = ", and its first numbers, which are not 0, in --input"
"""The note for a state whose first value is not 0."""


def inspect_command(
    model: ModelArgument,
    arch: Annotated[str | None, typer.Option("-a", "--arch", metavar="ARCH", help="A preset's name or a .tarch file; "
                                             "default: only operators decide.")] = None,
    output: EndOption = "",
    shape: ShapeOption = None,
    fix: FixOption = None,
    as_json: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Show operators, shapes and multiply-accumulates of a network, and what would run where and why."""
    from weft.compiler.pipeline import partition_model
    from weft.compiler.request import Request

    if overrides and arch is None:
        raise WeftError(explain("--set", f"{overrides[0]!r} without a machine", "--set with -a", "name a machine (-a)"))
    machine = None if arch is None else override(Arch.load(arch), overrides)
    with console.working("reading the network"):
        graph, partition = partition_model(Request(model, outputs=ends(output), shapes=input_shapes(shape),
                                               fixed=fixed_inputs(fix)), machine)
    found = _object(model, graph, partition)
    if as_json:
        print(json.dumps(found))
    else:
        _print(found, partition)


def _object(model: Path, graph: Graph, partition: Partition) -> dict[str, Any]:
    """Return the object of ``--json``."""
    from weft.cli.places import places_object

    return {
        "schema": console.SCHEMA, "name": model.stem, "opset": graph.opset, "nodes": len(graph.nodes),
        "inputs": [_port(port) for port in graph.inputs], "outputs": [_port(port) for port in graph.outputs],
        "states": [state._asdict() for state in graph.states],
        "parameters": sum(value.size for value in graph.constants.values()),
        "operators": _operators(partition),
        **places_object(partition),
    }


def _operators(partition: Partition) -> dict[str, dict[str, int]]:
    """Return, for each operator, the number of nodes, on the machine and on the host, and multiply-accumulates."""
    rows: dict[str, Counter[str]] = {}
    for place in sorted(partition.places, key=lambda place: place.operator):
        rows.setdefault(place.operator, Counter(machine=0, host=0)).update(
            {"count": 1, place.where: 1, "macs": place.macs})
    return {operator: dict(row) for operator, row in rows.items()}


def _port(port: GraphPort) -> dict[str, Any]:
    """Return an input's or output's name, type and shape."""
    return {"name": port.name, "type": port.type, "shape": list(port.shape)}


def _print(found: dict[str, Any], partition: Partition) -> None:
    """Print the description as tables."""
    from weft.cli.places import print_places, print_rich

    ports = {f"{kind} {port['name']}": f"{'x'.join(map(str, port['shape']))} {port['type']}"
             for kind in ("input", "output") for port in found[f"{kind}s"]}
    states = {f"state {state['input']}": f"--state {state['output']}:{state['input']}{'' if state['zero'] else FIRST}"
              for state in found["states"]}
    console.print_table(found["name"], {"opset": str(found["opset"]), **ports, **states, "nodes": str(found["nodes"]),
                                        "parameters": f"{found['parameters']:,}", "MACs": f"{found['macs']:,}"})
    print()
    print_rich(("operator", "nodes", "machine", "host", "MACs"),
               [(name, *(f"{row[key]:,}" for key in ("count", "machine", "host", "macs")))
                for name, row in found["operators"].items()])
    print()
    print_places(partition)
