# SPDX-License-Identifier: Apache-2.0
"""How several cores share the work, and what a user asks them to make small."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

AUTO, BATCH = "auto", "batch"
CORES = (AUTO, BATCH)
"""``batch``: an image a core; ``auto``: the best for the goal, which is batch."""
NOT_BUILT = {"split": "an image over several cores", "pipeline": "layers of an image on different cores"}
"""Ways that are known by name, and that no plan makes."""

THROUGHPUT, LATENCY = "throughput", "latency"
GOALS = (THROUGHPUT, LATENCY)
"""``throughput``: cycles of an image on average; ``latency``: cycles until one image is done."""

_ONE_CORE = "for one image at a time take one larger core (-a zcu104)"


def check_cores(mode: str, goal: str, arch: Arch) -> None:
    """Raise WeftError for an unknown mode or goal, for one that no plan serves, and for a choice where there is none.

    On one core every image takes as long alone as on average, so both goals are the same."""
    if mode in NOT_BUILT:
        raise WeftError(explain("--cores", f"{mode}: {NOT_BUILT[mode]}, which is not built", ", ".join(CORES),
                                f"take --cores {BATCH}, an image a core; {_ONE_CORE}"))
    if mode not in CORES:
        raise WeftError(explain("--cores", mode, ", ".join(CORES), "name one of them, or leave it out"))
    if goal not in GOALS:
        raise WeftError(explain("--for", goal, ", ".join(GOALS), "name one of them, or leave it out"))
    if mode != AUTO and arch.cores == 1:
        raise WeftError(explain("--cores", f"{mode}, for a machine of one core", "a machine with the key cores above 1",
                                "leave it out, or take such a machine (-a zcu104_4x16)"))
    if goal == LATENCY and arch.cores > 1:
        raise WeftError(explain("--for", f"{goal}, for a machine of {arch.cores} cores", f"{THROUGHPUT}: an image runs "
                                "on one core, as long as if it were alone", f"leave it out; {_ONE_CORE}"))
