# SPDX-License-Identifier: Apache-2.0
"""Decide where every Var lies while the program runs: DRAM0, both DRAMs, or pinned in local memory.

Pinned Vars fill local memory from the top; below them each layer has its scratch. A Var is pinned if that lowers the
modelled cost of the layers during its live range. Only layers that use the Var, or whose tiling no longer fits beside
it, are planned again: for all others the cheapest tiling stays the cheapest. A Var that is not pinned is striped over
both DRAMs if that lowers the modelled cost of the layers that use it. Its odd channel tiles then lie in DRAM1, behind
the Consts; so does a Var of one channel tile as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compiler.choices import AGAIN, FORMULA, Choices
from weft.compiler.errors import CompileError, refuse
from weft.compiler.layers.hir import Layer
from weft.compiler.memory.allocation import Allocation, DramAddress, Kept, Resident, first_fit
from weft.compiler.memory.sharing import Share, local_needs, shares, still_fitting
from weft.compiler.memory.stripes import Stripes, extended
from weft.compiler.memory.variables import LiveRange, place_variables, spread_vectors
from weft.compiler.progress import each
from weft.compiler.quantize.consts import Consts
from weft.compiler.text_form import parse_value
from weft.compiler.tiling.candidates import Tiling
from weft.compiler.tiling.costs import Need, traffic
from weft.compiler.tiling.cuts import Grain
from weft.compiler.tiling.search import Plan, Search, too_small
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch

MOST_WAITING = 0.002
"""The share of the array's cycles waiting for weights above which these come through both DRAMs."""

EVEN = 1.001
"""The ratio of modelled costs up to which a Var of one channel tile costs as much in DRAM1 as in DRAM0."""

NEARLY = 0.95
"""The share of the array's time that a port may be busy without keeping the array waiting."""


@dataclass(frozen=True)
class MemoryPlan:
    """The allocations of all Vars, and the shape and tiling of each layer.

    Allocations by Var name: in DRAM0, in DRAM1 (only spread Vars, which have both), and in local memory (pinned Vars).
    ``copy``: the allocation of a copy of all Consts in DRAM0, or None. ``beside``: what layers that run together with
    one on the array, which stands before them, have of both memories, by number. ``kept``: what of a pinned Var a core
    has that computes only a share of it, all of those that are not named. ``stripes``: the number of a layer that runs
    in stripes with those before it -> the first of them."""

    dram0: Mapping[str, Allocation]
    dram1: Mapping[str, Allocation]
    local: Mapping[str, Allocation]
    shapes: tuple[LayerShape, ...]
    plans: tuple[Plan, ...]
    copy: Allocation | None = None
    beside: Mapping[int, Share] = field(default_factory=dict)
    kept: Mapping[str, Kept] = field(default_factory=dict)
    stripes: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def homes(self) -> dict[str, DramAddress]:
        """The addresses of Vars in the DRAMs, by name."""
        return {name: DramAddress(place.base if place.size else None,
                                  self.dram1[name].base if name in self.dram1 else None)
                for name, place in self.dram0.items()}

    @cached_property
    def residents(self) -> dict[str, Resident]:
        """The places of pinned Vars in local memory, by name."""
        return {name: Resident(place.base, self.kept.get(name)) for name, place in self.local.items()}

    @property
    def dram0_end(self) -> int:
        """Vectors of DRAM0 from its first to the last that is in use, at least one."""
        copies = () if self.copy is None else (self.copy,)
        return max((place.base + place.size for place in (*self.dram0.values(), *copies)), default=1)

    def text(self) -> str:
        """Return the allocations and plans as text; :func:`parse` reads it."""
        lines = [f"{space} {place.name}: base={place.base} size={place.size} layers={place.first}..{place.last}"
                 for space, places in (("dram0", self.dram0), ("dram1", self.dram1), ("local", self.local))
                 for place in places.values()]
        if self.copy is not None:
            lines.append(f"dram0 copy of all consts: base={self.copy.base} size={self.copy.size}")
        lines += [f"beside another: layer {number} {share}" for number, share in self.beside.items()]
        lines += [f"in stripes: layer {number} with layer {first}" for number, first in self.stripes.items()]
        for shape, plan in zip(self.shapes, self.plans, strict=True):
            lines.append(f"layer {shape.layer.name}: scratch={shape.scratch} {plan}")
        return "\n".join(lines) + "\n"


class Printed(NamedTuple):
    """The content of :meth:`MemoryPlan.text`: allocations, and each layer's name, scratch in vectors and plan."""

    dram0: dict[str, Allocation]
    dram1: dict[str, Allocation]
    local: dict[str, Allocation]
    copy: tuple[int, int] | None
    beside: dict[int, Share]
    stripes: dict[int, int]
    plans: tuple[tuple[str, int, Plan], ...]


_PLACE = re.compile(r"(dram0|dram1|local) (.*): base=(\d+) size=(\d+) layers=(-?\d+)\.\.(-?\d+)")
_COPY = re.compile(r"dram0 copy of all consts: base=(\d+) size=(\d+)")
_BESIDE = re.compile(r"beside another: layer (\d+) (Share\(.*\))")
_STRIPES = re.compile(r"in stripes: layer (\d+) with layer (\d+)")
_PLAN = re.compile(r"layer (.*): scratch=(\d+) (Plan\(.*\))")


def parse(content: str) -> Printed:
    """Return the plan that :meth:`MemoryPlan.text` wrote. Raise WeftError at a line that it does not write."""
    found = Printed({}, {}, {}, None, {}, {}, ())
    for line in content.splitlines():
        if match := _PLACE.fullmatch(line):
            getattr(found, match[1])[match[2]] = Allocation(match[2], *map(int, match.group(3, 4, 5, 6)))
        elif match := _COPY.fullmatch(line):
            found = found._replace(copy=(int(match[1]), int(match[2])))
        elif match := _BESIDE.fullmatch(line):
            found.beside[int(match[1])] = parse_value(match[2], (Share,))
        elif match := _STRIPES.fullmatch(line):
            found.stripes[int(match[1])] = int(match[2])
        elif match := _PLAN.fullmatch(line):
            plan = parse_value(match[3], (Plan, Tiling, Need, Grain))
            found = found._replace(plans=(*found.plans, (match[1], int(match[2]), plan)))
        else:
            raise refuse(f"line of a memory map {line!r}", "an unknown form",
                         "a place, a copy of consts, a share or a plan", "print the map again with --dump-dir")
    return found


def plan_memory(lives: Sequence[LiveRange], layers: Sequence[Layer], consts: Consts, arch: Arch,
                choices: Choices = FORMULA, search: Search | None = None) -> MemoryPlan:
    """Return the memory plan: pinned Vars, striped Vars, and tilings, as far as ``choices`` leave them open.

    ``search``: one that earlier plans of the same layers have used, which knows what candidates cost.
    Raise CompileError if a memory is too small, and for choices that do not fit."""
    planner = planned(lives, layers, consts, arch, choices, search)
    # tilings come last, as in a search, which tries them on a plan that is there
    plans, beside = shares(planner.shapes, planner.plans, arch)
    striped = Stripes(planner.shapes, plans, local_needs(planner.shapes, plans, beside), planner.local, planner.dram1,
                      [planner.consts], planner.search)
    striped.choose({*beside, *(number - 1 for number in beside)}, choices.stripes)
    variables = place_variables(extended(lives, striped.firsts), striped.local, striped.dram1, arch)
    copy = _copy_of_consts(planner, variables.values(), choices.copy)
    layout = MemoryPlan(variables, striped.dram1, striped.local, tuple(striped.shapes), tuple(striped.plans), copy,
                        beside, stripes=striped.firsts)
    return with_tilings(layout, choices, planner.search)


def with_tilings(layout: MemoryPlan, choices: Choices, search: Search) -> MemoryPlan:
    """Return the plan with the tilings of ``choices``; layers that these leave no room run one after the other.

    Raise CompileError for a tiling that does not fit."""
    plans = list(layout.plans)
    for number, tiling in choices.tilings.items():
        shape = layout.shapes[number]
        plan = search.told(shape, tiling)
        if plan is None:
            raise misfit(f"tiling of layer {number}, {shape.layer.name!r}", str(tiling),
                         "one of the tilings that are looked at and fit beside what is resident")
        plans[number] = plan
    beside = still_fitting(layout.shapes, plans, layout.beside) if layout.beside and choices.tilings else layout.beside
    told = {layout.stripes.get(number, number) for number in choices.tilings}
    stripes = {number: first for number, first in layout.stripes.items() if first not in told}
    return replace(layout, plans=tuple(plans), beside=beside, stripes=stripes)


def planned(lives: Sequence[LiveRange], layers: Sequence[Layer], consts: Consts, arch: Arch,
            choices: Choices = FORMULA, search: Search | None = None) -> Planner:
    """Return a planner that has decided pinned Vars, striped Vars and tilings by the formulas, but for ``choices``.

    Raise CompileError if local memory or the accumulators are too small, and for choices that do not fit."""
    planner = Planner(layers, consts, arch, choices, search)
    free = [life for life in lives if not life.fixed]
    for life in each(free):
        planner.try_resident(life)
    planner.finish()
    if not arch.shared_dram:
        for life in each(free):
            planner.try_spread(life)
    return planner


def misfit(what: str, found: str, allowed: str) -> CompileError:
    """Return the error for a choice that this network or machine does not allow."""
    return refuse(what, found, allowed, AGAIN)


def allocation_of_consts(consts: Consts, layers: Sequence[Layer]) -> Allocation:
    """Return the allocation of all Consts: from 0 on in DRAM1, all the time."""
    return Allocation("%consts", 0, len(consts.vectors), -1, len(layers))


def _copy_of_consts(planner: Planner, placed: Iterable[Allocation], wanted: bool | None) -> Allocation | None:
    """Return the allocation of a copy of all Consts in DRAM0, behind all Vars; None for no copy.

    It is made if the array would otherwise wait for weights and DRAM0 has room and a port of its own; ``wanted``: what
    was chosen instead, None for the formula."""
    if planner.arch.shared_dram or wanted is False:
        return None
    beats = planner.arch.vector_beats
    moved = [traffic(shape, plan.tiling) for shape, plan in zip(planner.shapes, planner.plans, strict=True)]
    waiting = sum(max(0.0, (entry.dram1_read + entry.consts) * beats - entry.array * shape.inside * NEARLY)
                  for entry, shape in zip(moved, planner.shapes, strict=True))
    base = max((place.base + place.size for place in placed), default=0)
    copy = replace(planner.consts, base=base)
    spared = waiting <= MOST_WAITING * sum(entry.array for entry in moved)
    if (spared and not wanted) or base + copy.size > planner.arch.dram0_depth:
        return None
    return copy


class Planner:
    """Shapes and plans of all layers, given the Vars pinned (``local``) and striped (``dram1``) so far.

    ``floors`` [layers]: the scratch of each layer in vectors; ``needs`` [layers]: how much of it its tiling takes.
    ``shares`` [layers]: what of a layer's output is computed, None for all of it. Planners may have a ``search`` in
    common. ``kept``: what of a Var would be pinned, None for all of each; a Var that it does not name stays out."""

    def __init__(self, layers: Sequence[Layer], consts: Consts, arch: Arch, choices: Choices = FORMULA,
                 search: Search | None = None, shares: Sequence[Box] | None = None,
                 kept: Mapping[str, Kept] | None = None) -> None:
        self.arch = arch
        self.choices = choices
        self.search = search or Search()
        self.kept = kept
        self.consts = allocation_of_consts(consts, layers)
        self.local: dict[str, Allocation] = {}
        self.dram1: dict[str, Allocation] = {}
        self.recent: list[Allocation] = []
        self.shapes: list[LayerShape] = []
        self.users: dict[str, list[int]] = {}
        for number, (layer, own) in enumerate(zip(each(layers), consts.layers, strict=True)):
            self.shapes.append(self.search.shape(layer, own, arch, shares[number] if shares else None))
            for root in {var.root: None for var in (*layer.inputs, *layer.outputs)}:
                self.users.setdefault(root, []).append(number)
        plans = [self.search.plan(self.shapes[number]) for number, _ in enumerate(each(layers))]
        if None in plans:
            raise too_small(self.shapes, arch)
        self.plans = [plan for plan in plans if plan is not None]
        self.floors = np.full(len(layers), arch.local_depth, np.int64)
        self.needs = np.array([plan.need.local_total for plan in self.plans], np.int64)

    def try_resident(self, life: LiveRange) -> None:
        """Pin a Var if the layers of its live range become cheaper together.

        Vars must come in the order in which they are made."""
        depth = self.arch.local_depth
        wanted = self.choices.residents.get(life.name)
        if wanted is False or self.kept is not None and life.name not in self.kept:
            return
        size = self.kept[life.name].vectors if self.kept else life.var.vectors(self.arch.array_size)
        self.recent = [place for place in self.recent if place.last >= life.first]
        mirrored = [replace(place, base=depth - place.base - place.size) for place in self.recent]
        base = depth - first_fit(mirrored, size, life.first, life.last) - size
        if base <= 0:
            self._insist(wanted, life, False)
            return
        name, span = life.var.name, slice(life.first, life.last + 1)
        crowded = life.first + np.flatnonzero(self.needs[span] > base)
        affected = sorted({*crowded.tolist(), *self.users.get(name, ())})
        accepted = self._accept({number: self._beside(number, name, base) for number in affected}, wanted)
        self._insist(wanted, life, accepted)
        if accepted:
            self.local[name] = Allocation(name, base, size, life.first, life.last)
            self.recent.append(self.local[name])
            self.floors[span] = np.minimum(self.floors[span], base)

    def try_spread(self, life: LiveRange) -> None:
        """Stripe a Var over both DRAMs, or put one of a single channel tile into DRAM1.

        It is done if the layers that use the Var become cheaper together. A Var of one tile whose maker reads from
        DRAM0 goes to DRAM1 unless that costs something: loads of the next layer then begin while those of the maker
        still keep the other port busy."""
        name, size = life.name, spread_vectors(life.var, self.arch.array_size)
        wanted = self.choices.spread.get(name)
        if name in self.local or wanted is False:
            return
        base = first_fit([self.consts, *self.dram1.values()], size, life.first, life.last)
        if base + size > self.arch.dram1_depth:
            return
        alone = life.var.tiles(self.arch.array_size) == 1
        dearest = EVEN if alone and self._reads_dram0(self.users[name][0]) else 1
        if self._accept({number: self.shapes[number].spreading(life.var) for number in self.users[name]}, wanted,
                        dearest):
            self.dram1[name] = Allocation(name, base, size, life.first, life.last)

    def _reads_dram0(self, number: int) -> bool:
        """Tell whether the core's input of a layer comes from DRAM0 as a whole."""
        shape = self.shapes[number]
        return not (shape.input_is_resident or shape.odd_tiles(shape.layer.core.input))

    @staticmethod
    def _insist(wanted: bool | None, life: LiveRange, accepted: bool) -> None:
        """Raise CompileError for a Var that somebody chose to pin and for which there is no room."""
        if wanted and not accepted:
            raise misfit(f"resident {life.name!r}", f"{life.var.height} x {life.var.width} pixels beside others",
                         "tensors that fit into local memory together")

    def _accept(self, shapes: Mapping[int, LayerShape], wanted: bool | None = None, dearest: float = 1) -> bool:
        """Replace the shapes of some layers if these together become cheaper, or are ``wanted``.

        They must cost less than ``dearest`` times what they did. Tell whether it was done."""
        plans = {number: plan for number, shape in shapes.items() if (plan := self.search.plan(shape)) is not None}
        before, now = sum(self.plans[number].cost for number in plans), sum(plan.cost for plan in plans.values())
        taken = len(plans) == len(shapes) and (now < dearest * before or bool(wanted))
        if taken:
            for number, plan in plans.items():
                self.shapes[number], self.plans[number] = shapes[number], plan
                self.needs[number] = plan.need.local_total
        return taken

    def _beside(self, number: int, name: str, base: int) -> LayerShape:
        """Return the shape of layer ``number`` with a further Var pinned, from ``base`` on."""
        shape = self.shapes[number]
        return replace(shape, resident=shape.resident | {name}, scratch=min(int(self.floors[number]), base))

    def finish(self) -> None:
        """Plan all layers again with the final pinned Vars, since with them another tiling may be a layer's best."""
        everything = frozenset(self.local)
        self.shapes = [replace(shape, resident=everything, scratch=int(floor))
                       for shape, floor in zip(self.shapes, self.floors, strict=True)]
        self.plans = [plan for shape in self.shapes if (plan := self.search.plan(shape)) is not None]
