# SPDX-License-Identifier: Apache-2.0
"""Divide local memory and accumulators between layers that run side by side (``layers/beside.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.compiler.layers.beside import beside
from weft.compiler.layers.hir import Layer
from weft.compiler.tiling.search import Plan, Search
from weft.compiler.tiling.shape import LayerShape
from weft.hw.contract.arch import Arch

PARTS = 8, 4, 2
"""The parts of both memories that layers beside one on the array are tried with: an eighth, a quarter, a half."""

BESIDE = 0.5
"""The share of the shorter side's cycles that both sides together are taken to last longer than the longer one."""

GAIN = 0.97
"""The most that layers side by side may cost of what they do one after the other."""

Smaller = tuple[Arch, Search]
"""A machine with fewer accumulators, and the search for tilings on it, which costs equal layers once."""


@dataclass(frozen=True)
class Share:
    """The vectors, from address 0 on, that layers may use of both memories while they run beside another layer."""

    local: int
    accumulators: int


def shares(shapes: Sequence[LayerShape], plans: Sequence[Plan],
           arch: Arch) -> tuple[list[Plan], dict[int, Share]]:
    """Return the layers' plans, and by number the shares of those that run beside another one.

    All have tilings that fit beside each other."""
    found: dict[int, Share] = {}
    plans = [*plans]

    @functools.cache
    def smaller(accumulators: int) -> Smaller:
        return arch.replace(accumulator_depth=accumulators), Search()

    for leader, others in together([shape.layer for shape in shapes], arch).items():
        numbers = [leader, *others]
        chosen = _together([shapes[number] for number in numbers], [plans[number] for number in numbers],
                           smaller)
        if chosen is not None:
            for number, plan in zip(numbers, chosen, strict=True):
                plans[number] = plan
            found |= dict.fromkeys(others, _share(chosen[1:]))
    return plans, found


def together(layers: Sequence[Layer], arch: Arch) -> dict[int, list[int]]:
    """Return the number of a layer on the array -> those of the layers that may run beside it."""
    found: dict[int, list[int]] = {}
    for number, leader in beside(layers, arch).items():
        found.setdefault(leader, []).append(number)
    return found


def local_needs(shapes: Sequence[LayerShape], plans: Sequence[Plan], shared: Mapping[int, Share]) -> list[int]:
    """Return [layers]: the vectors of local memory that each layer takes together with those that run beside it."""
    found = [plan.need.local_total for plan in plans]
    for leader, others in together([shape.layer for shape in shapes], shapes[0].arch).items():
        own = [number for number in others if number in shared]
        for number in own:
            found[number] = found[leader] = plans[leader].need.local_total + shared[number].local
    return found


def still_fitting(shapes: Sequence[LayerShape], plans: Sequence[Plan], shared: Mapping[int, Share]) -> dict[int, Share]:
    """Return the shares in ``shared`` that these plans leave room for.

    For each layer on the array these are the shares of all layers beside it, or none."""
    found: dict[int, Share] = {}
    for leader, others in together([shape.layer for shape in shapes], shapes[0].arch).items():
        own = {number: shared[number] for number in others if number in shared}
        if own and _fit(shapes, plans, leader, own):
            found |= own
    return found


def _fit(shapes: Sequence[LayerShape], plans: Sequence[Plan], leader: int, own: Mapping[int, Share]) -> bool:
    """Tell whether layers fit beside the one on the array; ``own``: their share."""
    share, need = next(iter(own.values())), plans[leader].need
    scratch = min(shapes[number].scratch for number in (leader, *own))
    return (need.local_total + share.local <= scratch
            and need.accumulator_total + share.accumulators <= shapes[leader].arch.accumulator_depth
            and all(plans[number].need.local_total <= share.local
                    and plans[number].need.accumulator_total <= share.accumulators for number in own))


def _share(plans: Sequence[Plan]) -> Share:
    """Return the share that is enough for each of several layers, which run one after another beside another layer."""
    return Share(max(plan.need.local_total for plan in plans), max(plan.need.accumulator_total for plan in plans))


def _together(shapes: Sequence[LayerShape], plans: Sequence[Plan],
              smaller: Callable[[int], Smaller]) -> list[Plan] | None:
    """Return plans of a layer on the array and of those beside it that fit together, the cheapest; None for no gain."""
    arch, scratch = shapes[0].arch, min(shape.scratch for shape in shapes)
    best, least = None, GAIN * sum(plan.cost for plan in plans)
    for part in PARTS:
        small = [_within(shape, scratch // part, arch.accumulator_depth // part, plan, smaller)
                 for shape, plan in zip(shapes[1:], plans[1:], strict=True)]
        beside = [plan for plan in small if plan is not None]
        if len(beside) < len(small):
            continue
        share = _share(beside)
        large = _within(shapes[0], scratch - share.local, arch.accumulator_depth - share.accumulators, plans[0],
                        smaller)
        if large is not None and (cost := _cost(large.cost, sum(plan.cost for plan in beside))) < least:
            best, least = [large, *beside], cost
    return best


def _cost(first: float, second: float) -> float:
    """Return the cycles of two that run side by side: of the one that takes longer, and a share of the other one's."""
    return max(first, second) + BESIDE * min(first, second)


def _within(shape: LayerShape, local: int, accumulators: int, before: Plan,
            smaller: Callable[[int], Smaller]) -> Plan | None:
    """Return the cheapest plan of a layer with so many vectors of both memories, None if none fits.

    Nor does one that cuts rows of pixels where the plan ``before`` did not: moves and loops would become short."""
    if local < 1 or accumulators < max(2, shape.arch.accumulator_banks):
        return None
    less, search = smaller(accumulators)
    plan = search.plan(replace(shape, scratch=local, arch=less))
    return None if plan is None or plan.tiling.grain.columns < before.tiling.grain.columns else plan
