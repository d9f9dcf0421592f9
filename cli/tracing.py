"""The option ``--trace``: the operations that ran, as a file for Perfetto."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.cycles.replay import Estimate, estimate
from weft.hw.contract.arch import Arch
from weft.report.kinds import TRACE
from weft.report.operations import Ran
from weft.report.trace import chrome_trace
from weft.runtime.session import RunResult, Session
from weft.support.outputs import write_text

ESTIMATED, RTL = "estimated", "RTL"


def write_run(file: Path, arch: Arch, result: RunResult) -> None:
    """Write the operations of a run in RTL, and beside them the estimator's for the same programs."""
    ran = [Ran(dataclasses.replace(model, arch=arch), program, cycles, operations)
           for (model, program), (cycles, operations) in zip(result.programs, result.operations, strict=True)]
    _write(file, {RTL: ran, ESTIMATED: [_of(each, estimate(each.program, arch)) for each in ran]})


def write_estimates(file: Path, session: Session, found: Sequence[Estimate]) -> None:
    """Write the estimated operations of each of the session's programs."""
    programs = [Ran(dataclasses.replace(loaded.model, arch=session.arch), loaded.model.program, each.cycles,
                    each.operations) for loaded, each in zip(session.machines, found, strict=True)]
    _write(file, {ESTIMATED: programs})


def _of(ran: Ran, found: Estimate) -> Ran:
    """Return a program with the estimator's operations and cycles."""
    return dataclasses.replace(ran, cycles=found.cycles, operations=found.operations)


def _write(file: Path, processes: Mapping[str, Sequence[Ran]]) -> None:
    """Write a trace of processes."""
    write_text(file, json.dumps(chrome_trace(processes)) + "\n", TRACE)
