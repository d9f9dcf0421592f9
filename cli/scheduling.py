# SPDX-License-Identifier: Apache-2.0
"""``weft schedule``: the schedule of a compiled network as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import console
from weft.cli.options import (
    ArchOption,
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
from weft.cli.outputs import Output, check_outputs
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain
from weft.support.outputs import write_text


def schedule_command(
    model: ModelArgument,
    arch: ArchOption,
    output_file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.json", help="The schedule to write.")],
    output: EndOption = "",
    shape: ShapeOption = None,
    fix: FixOption = None,
    as_json: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Write which layer runs when on a machine, what it reads, and where everything lies, as a schedule's JSON."""
    from weft.compiler.cores import AUTO, SPLIT, can_wait
    from weft.compiler.pipeline import run_parts
    from weft.compiler.request import Request
    from weft.schedule.read import read_schedule
    from weft.schedule.write import SCHEDULE, schedule_text

    check_outputs({"MODEL": model, "--arch": arch}, [Output("--output", output_file, SCHEDULE)])
    machine = override(Arch.load(arch), overrides)
    if machine.cores > 1 and not can_wait(machine):
        raise WeftError(explain("architecture key sync_counters", str(machine.sync_counters), f"{machine.cores}: cores "
                                "that share an image wait for each other by a counter each", "add --set sync_counters="
                                f"{machine.cores}, or schedule one of them (--set cores=1)"))
    with console.progress() as progress:
        request = Request(model, None, False, True, ends(output), shapes=input_shapes(shape), fixed=fixed_inputs(fix),
                          cores=SPLIT if machine.cores > 1 else AUTO, copies=False)
        _, parts = run_parts(request, machine, None, lambda step: progress(f"compiling: {step}", 0, 0))
        if len(parts) != 1:
            raise WeftError(explain(f"model {model}", f"{len(parts)} parts of the machine, with the host between them",
                                    "one part", "end the network before the host's first node (--end), which weft "
                                    "inspect shows"))
        progress("estimating", 0, 0)
        write_text(output_file, schedule_text(parts[0]), SCHEDULE)
    written = read_schedule(output_file)
    cycles = max(sum(workload.cycles for workload in core) for core in written.cores.values())
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, "cores": len(written.cores), "layers": len(written.layers),
                          "workloads": len(written.by_id), "cycles": cycles}))
    else:
        console.say(f"{output_file}: {len(written.by_id)} workloads of {len(written.layers)} layers on "
                    f"{len(written.cores)} core{'s' * (len(written.cores) > 1)}, {cycles:,} cycles")
