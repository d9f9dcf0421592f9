# SPDX-License-Identifier: Apache-2.0
"""Choose the layers that run in stripes (``scheduler/stripes.py``), and keep their pinned Vars apart.

A layer that loads a tensor for the SIMD unit takes the layers on the array before it, each of which reads what the one
before makes. All of them have their Vars and buffers at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.compiler.layers.beside import LEAST, simd_cycles
from weft.compiler.memory.allocation import Allocation, first_fit
from weft.compiler.memory.variables import LiveRange
from weft.compiler.tiling.search import Plan, Search
from weft.compiler.tiling.shape import LayerShape

FEWEST = 3
"""The fewest stripes of rows that a layer must have, unless choices say otherwise."""

DEAREST = 1.05
"""The most that a tiling in stripes may cost of what the cheapest does."""

MOST = 4
"""The most layers that run in stripes together."""


@dataclass
class Stripes:
    """The layers in stripes so far, and what is planned with them.

    ``shapes`` and ``plans`` [layers]; ``needs`` [layers]: vectors of local memory that each takes, with what runs
    beside it; ``local``, ``dram1``: allocations by Var; ``fixed``: what else lies in DRAM1; ``firsts``: the number of a
    layer in stripes, unless it is the first one -> the first one that it runs with."""

    shapes: list[LayerShape]
    plans: list[Plan]
    needs: list[int]
    local: dict[str, Allocation]
    dram1: dict[str, Allocation]
    fixed: Sequence[Allocation]
    search: Search
    firsts: dict[int, int] = field(default_factory=dict)

    def choose(self, apart: Collection[int], chosen: Mapping[int, int]) -> None:
        """Put layers in stripes where they fit; those in ``apart`` run alone or beside others.

        ``chosen``: by number, the fewest stripes of a layer that loads, 0 if it is to run alone."""
        for number, shape in enumerate(self.shapes):
            by_work = FEWEST if simd_cycles(shape.layer, shape.arch.array_size) >= LEAST else 0
            fewest = chosen.get(number, by_work)
            if shape.loads and number not in apart and fewest:
                first = self._first(number, apart)
                while first < number and not self._taken(range(first, number + 1), fewest):
                    first += 1

    def _first(self, last: int, apart: Collection[int]) -> int:
        """Return the first of the layers that may run in stripes with the layer ``last``, at best itself."""
        first, tables = last, self.shapes[last].layer.function is not None
        while first > max(0, last + 1 - MOST):
            layer, reader = self.shapes[first - 1].layer, self.shapes[first].layer
            both = tables and layer.function is not None
            taken = first - 1 in apart or first - 1 in self.firsts
            if both or taken or self.shapes[first - 1].loads or layer.output not in reader.inputs:
                break
            first, tables = first - 1, tables or layer.function is not None
        return first

    def _taken(self, numbers: range, fewest: int) -> bool:
        """Put some layers in at least ``fewest`` stripes if their buffers and Vars find room beside each other."""
        arch, first, last = self.shapes[0].arch, numbers[0], numbers[-1]
        local = _apart(_mirrored(self.local, arch.local_depth), (), first, last)
        dram1 = _apart(self.dram1, self.fixed, first, last)
        local = _mirrored(local, arch.local_depth)
        moved = [place for place in local.values() if place != self.local[place.name]]
        touched = {*numbers, *(number for place in moved for number in range(max(place.first, 0), place.last + 1)
                               if number < len(self.needs))}
        floors = {number: min((place.base for place in local.values() if place.meets(number, number)),
                              default=arch.local_depth) for number in touched}
        plans = self._plans(numbers, fewest, min(floors[number] for number in numbers))
        if plans is None:
            return False
        needs = [*self.needs]
        needs[first:last + 1] = [sum(plan.need.local_total for plan in plans)] * len(numbers)
        if (max((place.base + place.size for place in dram1.values()), default=0) > arch.dram1_depth
                or any(needs[number] > floor for number, floor in floors.items())):
            return False
        self.local, self.dram1, self.needs, self.plans[first:last + 1] = local, dram1, needs, plans
        for number, floor in floors.items():
            self.shapes[number] = replace(self.shapes[number], scratch=floor)
        self.firsts |= dict.fromkeys(numbers[1:], first)
        return True

    def _plans(self, numbers: range, fewest: int, room: int) -> list[Plan] | None:
        """Return plans in stripes for some layers that take at most ``room`` vectors of local memory; None if none fit.

        The last layer runs beside the others, so it may cost as much as they do. The layer that needs most gives way to
        the others."""
        found = [self._plan(numbers, number, fewest, room) for number in numbers]
        plans = [plan for plan in found if plan is not None]
        needs = [plan.need.local_total for plan in plans]
        if len(plans) == len(numbers) and sum(needs) > room:
            largest = needs.index(max(needs))
            smaller = self._plan(numbers, numbers[largest], fewest, room - sum(needs) + needs[largest])
            plans[largest:largest + 1] = [] if smaller is None else [smaller]
        return plans if len(plans) == len(numbers) else None

    def _plan(self, numbers: range, number: int, fewest: int, room: int) -> Plan | None:
        """Return the plan of one of some layers in stripes, given ``room`` vectors of local memory, or None."""
        shape = self.shapes[number]
        others = sum(self.plans[other].cost for other in numbers[:-1]) if number == numbers[-1] else 0
        return self.search.in_stripes(replace(shape, scratch=room), shape.layer.output.height // fewest,
                                      shape.arch.accumulator_depth // len(numbers),
                                      max(DEAREST * self.plans[number].cost, others))


def extended(lives: Iterable[LiveRange], firsts: Mapping[int, int]) -> list[LiveRange]:
    """Return live ranges that begin and end with groups of layers in stripes; ``firsts``: see :class:`Stripes`."""
    lasts = {first: number for number, first in sorted(firsts.items())}
    return [replace(life, first=firsts.get(life.first, life.first),
                    last=lasts.get(firsts.get(life.last, life.last), life.last)) for life in lives]


def _mirrored(places: Mapping[str, Allocation], depth: int) -> dict[str, Allocation]:
    """Return allocations counted from the other end of a memory."""
    return {name: replace(place, base=depth - place.base - place.size) for name, place in places.items()}


def _apart(places: Mapping[str, Allocation], fixed: Sequence[Allocation], first: int,
           last: int) -> dict[str, Allocation]:
    """Return allocations in which whatever is live at any of the layers first..last is live at all of them.

    Those that would meet others move, those that live shortest before others."""
    found = {name: replace(place, first=min(place.first, first), last=max(place.last, last))
             if place.meets(first, last) else place for name, place in places.items()}
    wide = [place for place in found.values() if place.meets(first, last)]
    for place in sorted(wide, key=lambda place: place.last - place.first):
        others = [*fixed, *(other for other in found.values() if other.name != place.name)]
        if any(place.overlaps(other) for other in others):
            found[place.name] = replace(place, base=first_fit(others, place.size, place.first, place.last))
    return found
