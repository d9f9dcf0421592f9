# SPDX-License-Identifier: Apache-2.0
"""The work of ``weft estimate``: the golden machine's checks, then the estimator, for program and preload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.cli.console import NO_CHECKSUMS, preload_text, say
from weft.cli.cycle_table import cycles_object, joined, node_rows, print_cycles, waits_of
from weft.cli.groups import group_object, joined_groups, print_group
from weft.cli.memory import placed, print_use, use_object
from weft.cycles.replay import Estimate
from weft.cycles.replay import estimate as replay
from weft.cycles.system import estimate_system
from weft.golden.legality import first_stop
from weft.hw.contract.dram import DramModel, IdealDram
from weft.runtime.devices import Progress
from weft.runtime.session import Loaded, Session
from weft.support.errors import WeftError, explain


@dataclass(frozen=True)
class Estimated:
    """The estimate of a program on each of ``cores``.

    ``where``: the object of ``--json`` for it. ``preload``: instructions and cycles of what copies its constants to
    local memory."""

    cores: tuple[Estimate, ...]
    where: dict[str, Any]
    preload: tuple[int, int] | None

    @property
    def slowest(self) -> int:
        """Return the core that takes longest, the first of several."""
        return max(range(len(self.cores)), key=lambda core: self.cores[core].cycles)


def estimated(session: Session, dram: DramModel, progress: Progress) -> tuple[list[Estimate], dict[str, Any]]:
    """Return the estimates of the network's programs, and the object of ``--json`` for all of them.

    Of several cores, each of which runs the program, a program's cores stand one behind another. Raise MachineStop for
    a program that the machine refuses, with the golden machine's cause and program counter, and WeftError for a network
    that does not fit a board's memory."""
    found = [estimated_program(session, machine, dram, progress) for machine in session.machines]
    every = [core for one in found for core in one.cores]
    preload = next((one.preload for one in reversed(found) if one.preload is not None), None)
    objects = [one.where for one in found]
    whole = joined(objects, session.arch)
    return every, {**whole, "nodes": node_rows(whole["layers"], session.arch),
                   **(joined_groups(objects) if session.arch.cores > 1 else {}),
                   "dram": use_object([each.dram_use for each in every]),
                   "preload": preload and {"instructions": preload[0], "cycles": preload[1]},
                   "checksums": session.network.checksums}


def estimated_program(session: Session, machine: Loaded, dram: DramModel, progress: Progress) -> Estimated:
    """Return the estimate of one of the network's programs."""
    progress("checking the program", 0, 0)
    for core, program in enumerate(machine.model.programs):
        stop = first_stop(program, machine.arch)
        if stop is not None:
            raise stop.of_core(core) if machine.model.others else stop
    if machine.arch.cores > 1:
        return _of_group(machine, dram, progress)
    model, (*before, (program, origin)) = machine.model, placed(session, machine, dram)
    loaded = [replay(content, machine.arch, dram, origin=place) for content, place in before]
    found = replay(program, machine.arch, dram, lambda done, total: progress("estimating", done, total), origin)
    where = cycles_object(model, waits_of(model, found.cycles, found.operations))
    return Estimated((found,), where, (loaded[0].program.instructions, loaded[0].cycles) if loaded else None)


def _of_group(machine: Loaded, dram: DramModel, progress: Progress) -> Estimated:
    """Return the estimate of a group of programs, one a core, which start together."""
    arch = machine.arch
    if not isinstance(dram, IdealDram):
        raise WeftError(explain("--board", f"a machine of {arch.cores} cores", "one core: what a board's memory does "
                                "behind ports that cores share is not modelled", "leave out --board"))
    preload = None
    if machine.preload:
        loaded = estimate_system([machine.preload] * arch.cores, arch, dram)
        preload = loaded.cores[0].program.instructions, loaded.cycles
    found = estimate_system(machine.batch.groups(arch.cores)[0], arch, dram,
                            lambda done, total: progress("estimating", done, total))
    return Estimated(found.cores, group_object(machine.model, arch, found), preload)


def print_estimate(where: dict[str, Any], by: str) -> None:
    """Print where the cycles went as tables, with rows for ``nodes`` or ``layers``."""
    if "cores" in where:
        print_group(where)
    print_cycles(where, by)
    if where["dram"]:
        print_use(where["dram"])
    if where["preload"]:
        say(f"preload: {preload_text(where['preload']['instructions'], where['preload']['cycles'])}")
    if not where["checksums"]:
        say(f"files: {NO_CHECKSUMS}")
