# SPDX-License-Identifier: Apache-2.0
"""The option --schedule of ``weft compile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

if TYPE_CHECKING:
    from weft.compiler.cores import AssignedLayer


def following(file: Path | None, machine: Arch, cores: str) -> tuple[str, tuple[AssignedLayer, ...]]:
    """Return how cores share the work, and what a schedule's file gives to each; without a file ``cores`` and nothing.

    Raise WeftError for a file that does not hold together, and where cores are not to share an image."""
    if file is None:
        return cores, ()
    from weft.compiler.cores import AUTO, SPLIT
    from weft.schedule.assign import assigned_layers
    from weft.schedule.check import faults_of
    from weft.schedule.read import read_schedule

    if cores not in (AUTO, SPLIT):
        raise WeftError(explain("--schedule", f"a schedule with --cores {cores}", f"--cores {SPLIT}",
                                "leave --cores out"))
    read = read_schedule(file)
    faults = faults_of(read)
    if faults:
        raise WeftError(explain(f"schedule file {file}", f"{len(faults)} faults, the first at {faults[0].text()}",
                                "a schedule that holds together", "mend what weft ir check says"))
    return SPLIT, assigned_layers(read, machine.cores)
