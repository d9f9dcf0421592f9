# SPDX-License-Identifier: Apache-2.0
"""The memory plan of every core: places in DRAM0 that all share, tilings and local memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.compiler.layers.hir import Layer
from weft.compiler.memory.plan import MemoryPlan, Planner
from weft.compiler.memory.variables import LiveRange, place_variables
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.emit import Exchange
from weft.compiler.split.exchange import Flows
from weft.compiler.split.shares import Shares
from weft.compiler.split.touched import NOTHING, touched
from weft.compiler.tiling.search import Search
from weft.compiler.tiling.share import whole_box
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class SplitPlan:
    """``shares`` of every layer, and the memory plan of each core; all have the same places in DRAM0.

    ``exchanges`` [cores][layers]: what goes from core to core of tensors that stay in local memory."""

    shares: Shares
    cores: tuple[MemoryPlan, ...]
    exchanges: tuple[tuple[Exchange, ...], ...]

    def resting(self, core: int) -> frozenset[int]:
        """Return the layers of which a core computes nothing."""
        return frozenset(number for number, boxes in enumerate(self.shares) if boxes[core] is None)


def plan_split(lives: Sequence[LiveRange], layers: Sequence[Layer], consts: Consts, arch: Arch, shares: Shares,
               search: Search) -> SplitPlan:
    """Return the plans of all cores. Raise CompileError if a memory is too small.

    A core that rests in a layer is planned as if it computed what the first core does, as tables that it loads there
    serve later layers too."""
    planned = [[boxes[core] or boxes[0] or whole_box(layer, arch)
                for layer, boxes in zip(layers, shares, strict=True)] for core in range(arch.cores)]
    flows = Flows([[touched(search.shape(layer, own, arch, boxes[core])) if boxes[core] else NOTHING
                    for layer, own, boxes in zip(layers, consts.layers, shares, strict=True)]
                   for core in range(arch.cores)], [life.var for life in lives], arch.array_size)
    variables = place_variables(_apart(lives, arch), (), (), arch)
    plans = []
    for core, boxes in enumerate(planned):
        kept = flows.kept(core)
        planner = Planner(layers, consts, arch, search=search, shares=boxes, kept=kept)
        for life in lives:
            if not life.fixed:
                planner.try_resident(life)
        planner.finish()
        plans.append(MemoryPlan(variables, {}, planner.local, tuple(planner.shapes), tuple(planner.plans),
                                kept={name: kept[name] for name in planner.local}))
    return SplitPlan(shares, tuple(plans), tuple(tuple(flows.exchanges(core, [*plan.local]))
                                                 for core, plan in enumerate(plans)))


def _apart(lives: Sequence[LiveRange], arch: Arch) -> Sequence[LiveRange]:
    """Return live ranges in which every tensor has a place of its own, if DRAM0 has room for that.

    A place that is used again makes cores wait for all that read what lay there before."""
    if sum(life.var.vectors(arch.array_size) for life in lives) > arch.dram0_depth:
        return lives
    end = max((life.last for life in lives), default=0)
    return [replace(life, first=-1, last=end) for life in lives]
