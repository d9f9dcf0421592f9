# SPDX-License-Identifier: Apache-2.0
"""Compile random small networks and judge them by the rules of tb/random; resumable.

    python scripts/random_networks.py --arch lanes3 --first 0 --count 250
    python scripts/random_networks.py --count 250 --state build/random_networks.json   # all machines, goes on
    python scripts/random_networks.py --arch lanes8 --rtl --count 4                    # hardware against golden

The rule is tb/random/network_rule.py's; for networks in bytes and those that onnxruntime quantised (int8) it is
tb/random/byte_networks.py's. Every case is decided by machine and seed. A network that fails is printed with the
command that repeats it, and the run ends with exit code 2; one that the compiler refuses ends it with 1."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from weft.tb.random import byte_networks
from weft.tb.random.network_rule import ARCHS, judge, judge_on_rtl
from weft.tb.random.random_networks import Case
from weft.tb.random.seeds import SeedRun

BATCH = 50
RULES = {**dict.fromkeys(ARCHS, judge), **dict.fromkeys(byte_networks.ARCHS, byte_networks.judge),
         "int8": lambda case: byte_networks.judge_quantised(case.seed)}
"""Machine -> the rule of its networks."""


def main(
    arch: Annotated[list[str] | None, typer.Option(help="machines of tb/random/network_rule.py and "
                                                        "byte_networks.py; default all")] = None,
    first: Annotated[int, typer.Option(help="first seed")] = 0,
    count: Annotated[int, typer.Option(help="seeds for each machine")] = 250,
    rtl: Annotated[bool, typer.Option(help="the simulated hardware against the golden machine")] = False,
    state: Annotated[Path | None, typer.Option(help="JSON file with the next seed of each machine")] = None,
) -> None:
    """Judge random networks."""
    console = Console(stderr=True)
    run = SeedRun(arch, ARCHS if rtl else RULES, first, count, state, console)
    for name in run.machines:
        for seeds in run.batches(name, BATCH):
            began, wide = time.monotonic(), math.inf
            for seed in seeds:
                verdict = (judge_on_rtl if rtl else RULES[name])(Case(name, seed))
                if verdict.problem or verdict.refusal:
                    print(verdict)
                    raise typer.Exit(2 if verdict.problem else 1)
                wide = min(wide, verdict.wide_decibels)
            least = f"least {wide:.1f} dB, " if math.isfinite(wide) else ""
            console.print(f"{name}: seeds {seeds.start}..{seeds[-1]} pass, {least}{time.monotonic() - began:.0f} s")
    print(json.dumps(run.next_seed))


if __name__ == "__main__":
    typer.run(main)
