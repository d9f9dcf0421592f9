# SPDX-License-Identifier: Apache-2.0
"""The rule for random programs of cores that lack a post and its wait, run in RTL all the same.

Where RTL then leaves other words than golden with all of them, the static checker had refused the programs."""

from __future__ import annotations

import random
from typing import NamedTuple

from weft.golden.dram import differences
from weft.golden.races import RaceError, check_races
from weft.golden.system import GoldenSystem
from weft.simulate.rtl import run_groups_on_rtl
from weft.tb.random.random_signals import signalled_programs
from weft.tb.random.signals_rule import CYCLE_LIMIT, LENGTH, SYSTEMS, assembled, filled, stalls


class Outcome(NamedTuple):
    """An outcome of programs without one post and its wait: ``refused`` by the checker, and other words in RTL."""

    refused: bool
    differs: bool


def run_without(machine: str, seed: int) -> Outcome | None:
    """Return the outcome of a seed's programs without a link that is drawn, None if they have none.

    Odd seeds lack one that orders some two accesses."""
    arch = SYSTEMS[machine]
    made = signalled_programs(arch, seed, LENGTH)
    links = [link for link in made.links if link.needed or seed % 2 == 0]
    if not links:
        return None
    lacking = assembled(arch, made.without(random.Random(seed).choice(links)))
    try:
        check_races(lacking, arch)
        refused = False
    except RaceError:
        refused = True
    ours, theirs = filled(arch, seed), filled(arch, seed)
    GoldenSystem(arch, *ours).run(assembled(arch, made.programs))
    run_groups_on_rtl(arch, [lacking], *theirs, memories=[stalls(seed)], cycle_limit=CYCLE_LIMIT, timeout_seconds=300)
    return Outcome(refused, any(differences(a, b, 1) for a, b in zip(ours, theirs, strict=True)))


def judge(machine: str, seeds: range) -> list[str]:
    """Return the seeds whose programs the checker let through, though RTL leaves other words, in words."""
    return [f"seed {seed}: let through without a post and its wait, and RTL differs" for seed in seeds
            if run_without(machine, seed) == Outcome(refused=False, differs=True)]
