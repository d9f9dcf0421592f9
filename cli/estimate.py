"""The work of ``weft estimate``: the golden machine's checks, then the estimator, for program and preload."""

from __future__ import annotations

from typing import Any

from weft.cli.console import NO_CHECKSUMS, preload_text, say
from weft.cli.cycles import cycles_object, joined, node_rows, print_cycles, waits_of
from weft.cli.memory import placed, print_use, use_object
from weft.cycles.replay import Estimate
from weft.cycles.replay import estimate as replay
from weft.golden.legality import first_stop
from weft.hw.contract.dram import DramModel
from weft.runtime.devices import Progress
from weft.runtime.session import Loaded, Session


def estimated(session: Session, dram: DramModel, progress: Progress) -> tuple[list[Estimate], dict[str, Any]]:
    """Return the estimates of the network's programs, and the object of ``--json`` for all of them.

    Raise MachineStop for a program that the machine refuses, with the golden machine's cause and program counter, and
    WeftError for a network that does not fit a board's memory."""
    found, objects, preload = [], [], None
    for machine in session.machines:
        one, where, loaded = estimated_program(session, machine, dram, progress)
        found.append(one)
        objects.append(where)
        if loaded is not None:
            preload = {"instructions": loaded.program.instructions, "cycles": loaded.cycles}
    whole = joined(objects, session.arch)
    return found, {**whole, "nodes": node_rows(whole["layers"], session.arch),
                   "dram": use_object([each.dram_use for each in found]), "preload": preload,
                   "checksums": session.network.checksums}


def estimated_program(session: Session, machine: Loaded, dram: DramModel,
                      progress: Progress) -> tuple[Estimate, dict[str, Any], Estimate | None]:
    """Return the estimate of a program, where its cycles went, and the estimate of its preload, or None."""
    model = machine.model
    progress("checking the program", 0, 0)
    stop = first_stop(model.program, machine.arch)
    if stop is not None:
        raise stop
    *before, (program, origin) = placed(session, machine, dram)
    loaded = [replay(content, machine.arch, dram, origin=place) for content, place in before]
    found = replay(program, machine.arch, dram, lambda done, total: progress("estimating", done, total), origin)
    where = cycles_object(model, waits_of(model, found.cycles, found.operations))
    return found, where, loaded[0] if loaded else None


def print_estimate(where: dict[str, Any], by: str) -> None:
    """Print where the cycles went as tables, with rows for ``nodes`` or ``layers``."""
    print_cycles(where, by)
    if where["dram"]:
        print_use(where["dram"])
    if where["preload"]:
        say(f"preload: {preload_text(where['preload']['instructions'], where['preload']['cycles'])}")
    if not where["checksums"]:
        say(f"files: {NO_CHECKSUMS}")
