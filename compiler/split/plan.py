# SPDX-License-Identifier: Apache-2.0
"""The memory plan of every core: places in DRAM0 that all share, tilings and local memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.compiler.layers.hir import Layer
from weft.compiler.memory.layout import MemoryPlan, Planner
from weft.compiler.memory.variables import LiveRange, place_variables
from weft.compiler.quantize.consts import Consts
from weft.compiler.split.shares import Shares
from weft.compiler.tiling.search import Search
from weft.compiler.tiling.share import whole_box
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class SplitPlan:
    """``shares`` of every layer, and the memory plan of each core; all have the same places in DRAM0."""

    shares: Shares
    cores: tuple[MemoryPlan, ...]

    def resting(self, core: int) -> frozenset[int]:
        """Return the layers of which a core computes nothing."""
        return frozenset(number for number, boxes in enumerate(self.shares) if boxes[core] is None)


def plan_split(lives: Sequence[LiveRange], layers: Sequence[Layer], consts: Consts, arch: Arch, shares: Shares,
               search: Search) -> SplitPlan:
    """Return the plans of all cores. Raise CompileError if a memory is too small.

    A core that rests in a layer is planned as if it computed what the first core does, as tables that it loads there
    serve later layers too."""
    variables = place_variables(_apart(lives, arch), (), (), arch)
    cores = []
    for core in range(arch.cores):
        own = [boxes[core] or boxes[0] or whole_box(layer, arch)
               for layer, boxes in zip(layers, shares, strict=True)]
        planner = Planner(layers, consts, arch, search=search, shares=own)
        cores.append(MemoryPlan(variables, {}, {}, tuple(planner.shapes), tuple(planner.plans)))
    return SplitPlan(shares, tuple(cores))


def _apart(lives: Sequence[LiveRange], arch: Arch) -> Sequence[LiveRange]:
    """Return live ranges in which every tensor has a place of its own, if DRAM0 has room for that.

    A place that is used again makes cores wait for all that read what lay there before."""
    if sum(life.var.vectors(arch.array_size) for life in lives) > arch.dram0_depth:
        return lives
    end = max((life.last for life in lives), default=0)
    return [replace(life, first=-1, last=end) for life in lives]
