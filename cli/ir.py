# SPDX-License-Identifier: Apache-2.0
"""``weft ir``: schedules of a mesh of cores as JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli import console
from weft.cli.options import JsonOption, help_without_command
from weft.support.errors import WeftError, explain

if TYPE_CHECKING:
    from weft.schedule.faults import Fault
    from weft.schedule.model import Schedule

app = typer.Typer(invoke_without_command=True, help="Schedules of a mesh: check.")
app.callback()(help_without_command)


@app.command("check")
def check_command(
    schedule: Annotated[Path, typer.Argument(metavar="FILE.json", help="A schedule, of either dialect.",
                                             show_default=False)],
    network: Annotated[Path | None, typer.Option("--network", metavar="MODEL", help="The network that it is for, whose "
                                                 "names, shapes and windows it must keep; default: none.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether a schedule holds together: boxes, transfers, buffers, order.

    Each fault is told with its core, workload and transfer."""
    from weft.schedule.check import faults_of
    from weft.schedule.read import read_schedule

    read = read_schedule(schedule)
    faults = faults_of(read, graph_of(network) if network else None)
    summary = summary_of(read, faults)
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, **summary}))
    else:
        for fault in faults:
            console.say(fault.text())
    if faults:
        first = f"{faults[0].place}: {faults[0].found}"
        raise WeftError(explain(f"schedule file {schedule}", f"{len(faults)} faults, the first at {first}",
                                "a schedule that holds together",
                                "mend the faults, or write the file again with the scheduler that made it"))
    if not as_json:
        console.say(f"fine: {', '.join(f'{value} {key}' for key, value in summary['counts'].items())} on a mesh of "
                    f"{read.xlen} x {read.ylen}, dialect {read.dialect}")


def graph_of(network: Path) -> Any:
    """Return the graph of a network's file. Raises CompileError."""
    from weft.compiler.frontend.reader import read_model

    return read_model(network)


def summary_of(schedule: Schedule, faults: list[Fault]) -> dict[str, Any]:
    """Return the object of ``--json``: what the file holds, and what is wrong in it."""
    return {"dialect": schedule.dialect, "xlen": schedule.xlen, "ylen": schedule.ylen,
            "counts": {"cores": len(schedule.cores), "layers": len(schedule.layers),
                       "workloads": len(schedule.by_id), "transfers": len(schedule.sent) + len(schedule.read)},
            "faults": [fault.object() for fault in faults]}
