# SPDX-License-Identifier: Apache-2.0
"""The sharing of work between several cores, and the goal that a user sets for it."""

from __future__ import annotations

from typing import NamedTuple

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

AUTO, BATCH, SPLIT = "auto", "batch", "split"
CORES = (AUTO, BATCH, SPLIT)
"""``batch``: an image a core; ``split``: one image over all cores; ``auto``: the best of these for the goal.

Where cores cannot wait for each other, or something is chosen for the program of one, ``auto`` is ``batch``."""
NOT_BUILT = {"pipeline": "layers of an image on different cores"}
"""Ways that are known by name, and that no plan makes."""

THROUGHPUT, LATENCY = "throughput", "latency"
GOALS = (THROUGHPUT, LATENCY)
"""``throughput``: cycles of an image on average; ``latency``: cycles until one image is done."""


Span = tuple[int, int]


class AssignedLayer(NamedTuple):
    """A layer in an outside schedule: its ``size`` (channels, rows, columns), and which core computes which box.

    ``boxes``: core, then half-open ranges of channels, rows and columns. ``weighted``: whether it has weights."""

    name: str
    size: tuple[int, int, int]
    weighted: bool
    boxes: tuple[tuple[int, Span, Span, Span], ...]


def check_cores(mode: str, goal: str, arch: Arch) -> None:
    """Raise WeftError for an unknown mode or goal, for one that no plan serves, and for a choice where there is none.

    On one core every image takes as long alone as on average, so both goals are the same."""
    if mode in NOT_BUILT:
        raise WeftError(explain("--cores", f"{mode}: {NOT_BUILT[mode]}, which is not built", ", ".join(CORES),
                                f"take --cores {BATCH}, an image a core, or --cores {SPLIT}, one over all of them"))
    if mode not in CORES:
        raise WeftError(explain("--cores", mode, ", ".join(CORES), "name one of them, or leave it out"))
    if goal not in GOALS:
        raise WeftError(explain("--for", goal, ", ".join(GOALS), "name one of them, or leave it out"))
    if mode != AUTO and arch.cores == 1:
        raise WeftError(explain("--cores", f"{mode}, for a machine of one core", "a machine with the key cores above 1",
                                "leave it out, or take such a machine (-a zcu104_4x16)"))
    if mode == SPLIT and not can_wait(arch):
        raise WeftError(explain(f"--cores {SPLIT}", f"a machine with sync_counters {arch.sync_counters}",
                                f"as many as cores, {arch.cores}, by which these wait for each other",
                                f"add --set sync_counters={arch.cores}, or take --cores {BATCH}"))


def check_choices_fit(mode: str, goal: str, arch: Arch, option: str | None) -> None:
    """Raise WeftError for choices of one core's program, by an ``option``, where all cores may share an image."""
    if option is not None and (mode == SPLIT or mode == AUTO and goal == LATENCY and can_wait(arch)):
        raise WeftError(explain(option, f"choices for the program of one core, with --cores {mode} --for {goal}",
                                f"--cores {BATCH}, where each core runs that program", f"leave {option} out, or take "
                                f"--cores {BATCH}"))


def can_wait(arch: Arch) -> bool:
    """Tell whether every core of a machine has a counter for each of the cores, so that it can wait for all."""
    return arch.sync_counters >= arch.cores > 1
