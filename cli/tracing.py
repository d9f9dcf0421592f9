# SPDX-License-Identifier: Apache-2.0
"""The option ``--trace``: the operations that ran, as a file for Perfetto."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from weft.cycles.replay import Estimate, estimate
from weft.cycles.system import estimate_system
from weft.hw.contract.arch import Arch
from weft.report.kinds import TRACE
from weft.report.operations import Ran
from weft.report.trace import chrome_trace
from weft.runtime.session import RunResult, Session
from weft.support.outputs import write_text

ESTIMATED, RTL = "estimated", "RTL"

Runs = Sequence[Sequence[Ran]]
"""Groups that ran one after another, of each a program a core."""


def write_run(file: Path, arch: Arch, result: RunResult) -> None:
    """Write the operations of a run in RTL, and beside them the estimator's for the same programs."""
    ran = [Ran(dataclasses.replace(model, arch=arch), program, cycles, operations)
           for (model, program), (cycles, operations) in zip(result.programs, result.operations, strict=True)]
    ends = np.cumsum([0, *result.groups])
    groups = [ran[first:end] for first, end in pairwise(ends)]
    _write(file, {RTL: groups, ESTIMATED: [_estimated(group, arch) for group in groups]})


def write_estimates(file: Path, session: Session, found: Sequence[Estimate]) -> None:
    """Write the estimated operations of the session's programs, as ``cli.estimate.estimated`` gives them."""
    waiting = iter(found)
    groups = []
    for loaded in session.machines:
        model = dataclasses.replace(loaded.model, arch=session.arch)
        groups.append([Ran(model.of_core(core), program, each.cycles, each.operations) for core, (program, each) in
                       enumerate(zip(loaded.batch.groups(session.arch.cores)[0], waiting, strict=False))])
    _write(file, {ESTIMATED: groups})


def _estimated(group: Sequence[Ran], arch: Arch) -> list[Ran]:
    """Return programs that ran side by side with the estimator's operations and cycles."""
    programs = [ran.program for ran in group]
    found = [estimate(programs[0], arch)] if arch.cores == 1 else estimate_system(programs, arch).cores
    return [dataclasses.replace(ran, cycles=each.cycles, operations=each.operations)
            for ran, each in zip(group, found, strict=True)]


def _write(file: Path, runs: Mapping[str, Runs]) -> None:
    """Write a trace: a process for each of ``runs``, and of several cores for each core of it."""
    processes = {}
    for name, groups in runs.items():
        cores = max(map(len, groups))
        for core in range(cores):
            own = [dataclasses.replace(group[core], cycles=max(ran.cycles for ran in group))
                   for group in groups if core < len(group)]
            processes[f"{name}, core {core}" if cores > 1 else name] = own
    write_text(file, json.dumps(chrome_trace(processes)) + "\n", TRACE)
