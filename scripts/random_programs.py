# SPDX-License-Identifier: Apache-2.0
"""Run random programs on the hardware against the golden machine for as long as wanted; resumable.

    python scripts/random_programs.py --arch lanes4_lut --first 0 --count 5000
    python scripts/random_programs.py --state build/random_programs.json      # all machines, goes on where it stopped

Every case is decided by machine and seed. A mismatch is shrunk, printed as assembly, and ends the run with exit code
2."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from weft.simulate.rtl import build_rtl
from weft.tb.random.lockstep import Case, run_cases, shrink
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.seeds import SeedRun

BATCH = 100


def main(
    arch: Annotated[list[str] | None, typer.Option(help="machines of tb/random/lockstep_archs.py; default all")] = None,
    first: Annotated[int, typer.Option(help="first seed")] = 0,
    count: Annotated[int, typer.Option(help="seeds for each machine")] = 3000,
    state: Annotated[Path | None, typer.Option(help="JSON file with the next seed of each machine")] = None,
) -> None:
    """Run random programs."""
    console, archs = Console(stderr=True), lockstep_archs()
    run = SeedRun(arch, archs, first, count, state, console)
    for name in run.machines:
        simulation = build_rtl(archs[name])
        for seeds in run.batches(name, BATCH):
            began = time.monotonic()
            mismatches = run_cases(simulation, [Case.of(archs[name], seed) for seed in seeds])
            if mismatches:
                print(shrink(simulation, mismatches[0]))
                raise typer.Exit(2)
            console.print(f"{name}: seeds {seeds.start}..{seeds[-1]} equal, {time.monotonic() - began:.0f} s")
    print(json.dumps(run.next_seed))


if __name__ == "__main__":
    typer.run(main)
