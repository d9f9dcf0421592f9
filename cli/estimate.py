"""What ``weft estimate`` does: the golden machine's checks, then the estimator, for the program and its preload."""

from __future__ import annotations

from typing import Any

from weft.cli.console import NO_CHECKSUMS, preload_text
from weft.cli.cycles import cycles_object, print_cycles, waits_of
from weft.compiler.estimator.machine import DramTiming
from weft.compiler.estimator.replay import Estimate
from weft.compiler.estimator.replay import estimate as replay
from weft.golden.legality import first_stop
from weft.runtime.devices import Progress
from weft.runtime.session import Session


def estimated(session: Session, dram: DramTiming, progress: Progress) -> tuple[Estimate, dict[str, Any]]:
    """When every operation of the model's program runs, and the object of ``--json``.

    Raises MachineStop for a program that the machine refuses, with the golden machine's cause and program counter.
    """
    model = session.model
    progress("checking the program", 0, 0)
    stop = first_stop(model.program, session.arch)
    if stop is not None:
        raise stop
    loaded = replay(session.preload, session.arch, dram) if session.preload else None
    found = replay(model.program, session.arch, dram, lambda done, total: progress("estimating", done, total))
    preload = None if loaded is None else {"instructions": loaded.program.instructions, "cycles": loaded.cycles}
    where = cycles_object(model, waits_of(model, found.cycles, found.operations))
    return found, {**where, "preload": preload, "checksums": model.checksums}


def print_estimate(where: dict[str, Any]) -> None:
    """The same for a person."""
    print_cycles(where)
    if where["preload"]:
        print("preload:", preload_text(where["preload"]["instructions"], where["preload"]["cycles"]))
    if not where["checksums"]:
        print("files:", NO_CHECKSUMS)
