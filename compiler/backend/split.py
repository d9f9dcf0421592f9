# SPDX-License-Identifier: Apache-2.0
"""The step that splits an image over all cores, where that was asked for or is sooner done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.compiler.backend.encode import MachineCode, machine_code
from weft.compiler.choices import FORMULA, Choices
from weft.compiler.cores import AUTO, LATENCY, SPLIT, can_wait
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.variables import live_ranges
from weft.compiler.memory.verifier import verify_allocations
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.request import Request
from weft.compiler.scheduler.length import check_length
from weft.compiler.scheduler.schedule import Schedule, schedule_layers
from weft.compiler.split.assigned import Followed, follow
from weft.compiler.split.order import ordered
from weft.compiler.split.plan import SplitPlan, plan_split
from weft.compiler.split.shares import choose_shares
from weft.compiler.split.sync import synchronised
from weft.compiler.split.verify import verify_cores
from weft.compiler.tiling.search import Search
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class Cores:
    """One image over all cores: their plan, and the schedule and code of each.

    None and empty where it is not split. ``followed``: what an outside schedule gave."""

    plan: SplitPlan | None = None
    schedules: tuple[Schedule, ...] = ()
    codes: tuple[MachineCode, ...] = ()
    followed: Followed | None = None

    def text(self) -> str:
        """Return the programs of all cores as text."""
        return "".join(f"core {core}: {code.text()}{schedule.text()}"
                       for core, (schedule, code) in enumerate(zip(self.schedules, self.codes, strict=True)))


ALONE = Cores()
"""The result for a network that is not split."""


def split(request: Request, choices: Choices, graph: Graph, layers: Layers, consts: Consts, numbers: Numbers,
          arch: Arch, alone: MachineCode) -> Cores:
    """Return the programs of all cores if the request asks for them, or for what they do sooner than ``alone``.

    ``choices`` are for ``alone``: with some of them it is taken. Raise CompileError if a memory is too small for
    programs that were asked for."""
    if request.cores == SPLIT:
        return split_layers(request, graph, layers, consts, numbers, arch)
    if request.cores != AUTO or not can_wait(arch) or choices != FORMULA:
        return ALONE
    try:
        made = split_layers(request, graph, layers, consts, numbers, arch)
    except CompileError:
        return ALONE
    return made if cycles(made.codes, arch) < _alone_cycles(alone, request.goal, arch) else ALONE


def _alone_cycles(alone: MachineCode, goal: str, arch: Arch) -> int:
    """Return what an image takes by the program of one core: on one of them alone, or on average where all run it."""
    if goal == LATENCY:
        return cycles([alone], arch)
    from weft.cycles.system import cycles_an_image  # programs of one core need not wait for its import

    return cycles_an_image([alone.content] * arch.cores, arch)


def split_layers(request: Request, graph: Graph, layers: Layers, consts: Consts, numbers: Numbers,
                 arch: Arch) -> Cores:
    """Return the programs of all cores, checked. Raise CompileError if a memory is too small for them."""
    search, lives = Search(), live_ranges(graph, layers, arch, request.keep_tensors)
    followed = follow(layers, request.assigned, arch) if request.assigned else None
    shares = choose_shares(layers, consts, arch, search, followed.shares if followed else {})
    plan = plan_split(lives, layers, consts, arch, shares, search)
    verify_allocations(plan.cores[0].dram0.values(), arch.dram0_depth, "DRAM0")
    for core in plan.cores:
        verify_allocations(core.local.values(), arch.local_depth, "local memory")
    schedules = ordered(synchronised([
        schedule_layers(numbers, own, arch, 0, len(layers), plan.resting(core), plan.exchanges[core])
        for core, own in enumerate(plan.cores)]), arch)
    verify_cores(schedules, arch, [plan.cores[0].dram0[port.tensor] for port in graph.inputs], len(consts.vectors))
    codes = tuple(machine_code(schedule.table, schedule.layers, arch) for schedule in schedules)
    for code in codes:
        check_length(len(code.layers), arch)
    return Cores(plan, tuple(schedules), codes, followed)


def cycles(codes: Sequence[MachineCode], arch: Arch) -> int:
    """Return the cycles until programs of as many cores, which start together, have all ended."""
    from weft.cycles.system import estimate_system  # as above

    return estimate_system([code.content for code in codes], arch).cycles
