# SPDX-License-Identifier: Apache-2.0
"""The command ``weft estimate``: the cycles of a compiled network without the hardware, by ``estimate.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import console
from weft.cli.options import MemoryOption, OwnLatencyOption, SetOption, TraceOption, load, override
from weft.cli.outputs import Output, check_outputs
from weft.report.kinds import TRACE
from weft.support.errors import WeftError, explain


def estimate_command(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    trace: TraceOption = None,
    board: MemoryOption = None,
    latency: OwnLatencyOption = None,
    overrides: SetOption = None,
    by: Annotated[str, typer.Option("--by", metavar="node|layer", help="A row for each node of the network's file, or "
                                    "for each layer that computes a part of one.")] = "node",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Estimate how many cycles a compiled model takes and where they go, without simulating the hardware."""
    from weft.cli.estimate import estimated, print_estimate
    from weft.cli.memory import memory_of, print_spread, spread_of
    from weft.runtime import Session

    if by not in ("node", "layer"):
        raise WeftError(explain("--by", repr(by), "node, layer", "name one of them"))
    check_outputs({"MODEL": model}, [Output("--trace", trace, TRACE)])
    dram = memory_of(board, latency)
    loaded = load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    with console.progress() as progress:
        found, where = estimated(session, dram, progress)
        spread = spread_of(board)
        cases = {name: (where if each == dram else estimated(session, each, progress)[1])["cycles"]
                 for name, each in spread.cases.items()} if spread else None
    if trace:
        from weft.cli.tracing import write_estimates

        write_estimates(trace, session, found)
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, **where, **({"spread": cases} if cases else {})}))
    else:
        print_estimate(where, f"{by}s")
        if cases:
            print_spread(cases)
