# SPDX-License-Identifier: Apache-2.0
"""Moves: other choices near some choices. A move changes one thing of one layer, its place too, or of one tensor."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from weft.compiler.choices import Choices
from weft.compiler.layers.sequence import places
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.memory.stripes import FEWEST, MOST
from weft.compiler.scheduler.interleave import SIMD_CYCLES
from weft.compiler.tiling.search import Search

MOST_TILINGS = 60
"""The number of a layer's tilings that are tried at first: the cheapest by the formula."""

DEARER = 0.3
"""The dearest tiling that is tried at first costs so much more than the formula's choice, as a share of its cost."""

MEAN_PLACE = 10
"""The mean place of the tilings that are drawn at first, among those in the order of their modelled cost."""

PACES = (1, 2, 3, 5, 6, 8, 12)
"""Half cycles for a vector through the SIMD unit that are tried."""

STRIPES = (0, 2, 3, 4, 6)
"""The fewest stripes that are tried; 0: alone."""

OWN_PLACE = 0.5
"""The share of moves of places that move the drawn layer itself, and not another one to it."""

STRETCHES = (6, 12, 24)
"""The numbers of layers that are put in any order; besides, all of them are."""

FETCH_PACES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Half cycles for a beat of a DRAM that are tried."""

FIRST_PACES, FIRST_FETCH_PACES = (2, 8), (3, 8)
"""The paces among these that are tried for all layers at once; where one of them gains, those beside it follow."""


@dataclass(frozen=True)
class Neighbours:
    """The start of moves: ``choices``, and their memory map, which counts places.

    By a layer's number, ``weights``: how long the array waited in it; ``predecessors``: the layers that it has to stay
    behind, wherever it is moved. ``breadth``: in how many times as many tilings as at first another one is looked for,
    and how much dearer ones."""

    choices: Choices
    layout: MemoryPlan
    weights: Sequence[float]
    search: Search
    predecessors: Sequence[frozenset[int]]
    breadth: int = 1

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The numbers of the layers in the order in which they run."""
        return self.choices.sequence(len(self.weights))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The place of each layer, by number."""
        return places(self.order)

    def openings(self) -> list[Choices]:
        """Return the moves that concern all layers, to be judged first.

        These are paces, constants in both DRAMs, and stripes for all layers that load."""
        layers = range(len(self.weights))
        return [self._copied(), *self._striped(),
                *(replace(self.choices, fetch_pace=pace) for pace in FIRST_FETCH_PACES),
                *(replace(self.choices, paces=dict.fromkeys(layers, pace)) for pace in FIRST_PACES)]

    def drawn_layer(self, chance: random.Random) -> int:
        """Return the number of a layer, more often of one in which the array waited long."""
        return chance.choices(range(len(self.weights)), self.weights)[0]

    def draw(self, chance: random.Random, number: int) -> Choices | None:
        """Return other choices for a layer; None where the draw leads to nothing new."""
        moves = {**MOVES, **MOVES_OF_PLACES} if self._is_free else MOVES
        return chance.choices([*moves], [*moves.values()])[0](self, number, chance)

    def tiling(self, number: int, chance: random.Random) -> Choices | None:
        """Return another tiling of a layer; those that the formula likes come up more often."""
        shape, plan = self.layout.shapes[self.places[number]], self.layout.plans[self.places[number]]
        known = self.search.fitting(shape, MOST_TILINGS * self.breadth, 1 + DEARER * self.breadth)
        place = min(int(chance.expovariate(1 / (MEAN_PLACE * self.breadth))), len(known) - 1)
        if place < 0 or known[place] == plan.tiling:
            return None
        return replace(self.choices, tilings={**self.choices.tilings, number: known[place]})

    def resident(self, number: int, chance: random.Random) -> Choices | None:
        """Return another place for a tensor: resident or not."""
        var = chance.choice(self._vars(number))
        is_there = var.root in self.layout.local
        return replace(self.choices, residents={**self.choices.residents, var.root: not is_there})

    def spread(self, number: int, chance: random.Random) -> Choices | None:
        """Return a tensor in both DRAMs, or in one."""
        var = chance.choice(self._vars(number))
        if var.root in self.layout.local:
            return None
        return replace(self.choices, spread={**self.choices.spread, var.root: var.root not in self.layout.dram1})

    def copy(self, _number: int, _chance: random.Random) -> Choices | None:
        """Return constants in both DRAMs, or in one."""
        return self._copied()

    def pace(self, number: int, chance: random.Random) -> Choices | None:
        """Return another pace of a layer's SIMD operations."""
        pace = chance.choice(PACES)
        if pace == self.choices.paces.get(number, 2 * SIMD_CYCLES):
            return None
        return replace(self.choices, paces={**self.choices.paces, number: pace})

    def fetch(self, number: int, chance: random.Random) -> Choices | None:
        """Return another pace of a layer's moves from and to DRAM."""
        pace = chance.choice(FETCH_PACES)
        if pace == self.choices.fetch_paces.get(number, self.choices.fetch_pace or 2):
            return None
        return replace(self.choices, fetch_paces={**self.choices.fetch_paces, number: pace})

    def stripes(self, number: int, chance: random.Random) -> Choices | None:
        """Return other stripes of the next layer that loads, if it may run together with this one."""
        place = self.places[number]
        last = next((other for other in self._loading() if place <= self.places[other] < place + MOST), None)
        fewest = chance.choice(STRIPES)
        if last is None or fewest == self.choices.stripes.get(last):
            return None
        return replace(self.choices, stripes={**self.choices.stripes, last: fewest})

    def place(self, number: int, chance: random.Random) -> Choices | None:
        """Return the layer at another place, or another layer right before it or behind it."""
        if chance.random() < OWN_PLACE:
            moved = number
            first, last = self._room(moved)
            place = chance.randint(first, last)
        else:
            at = self.places[number]
            fitting = [(other, place) for other in self.order if other != number for first, last in [self._room(other)]
                       for place in (range(at, at + 2) if self.places[other] > at else range(at - 1, at + 1))
                       if first <= place <= last]
            if not fitting:
                return None
            moved, place = chance.choice(fitting)
        order = [other for other in self.order if other != moved]
        order.insert(place, moved)
        return self._in(order)

    def shuffled(self, number: int, chance: random.Random) -> Choices | None:
        """Return the layers around this one in any order in which each finds what it needs."""
        size = min(chance.choice((*STRETCHES, len(self.order))), len(self.order))
        first = max(0, min(self.places[number] - chance.randrange(size), len(self.order) - size))
        left, order = [*self.order[first:first + size]], [*self.order[:first]]
        while left:
            waiting = set(left)
            order.append(chance.choice([other for other in left if not self.predecessors[other] & waiting]))
            left.remove(order[-1])
        return self._in([*order, *self.order[first + size:]])

    def _in(self, order: Sequence[int]) -> Choices | None:
        """Return the choices with the layers in ``order``, None if they are so already."""
        known = self.choices.order
        moved = {number: place for place, number in enumerate(order) if place != number or number in known}
        return None if tuple(order) == self.order else replace(self.choices, order=moved)

    def _room(self, number: int) -> tuple[int, int]:
        """Return the first and the last place that a layer may have, counted without it."""
        first = max((self.places[other] for other in self.predecessors[number]), default=-1) + 1
        return first, min((self.places[other] for other in self._readers[number]), default=len(self.order)) - 1

    @cached_property
    def _readers(self) -> list[list[int]]:
        """By number, the layers that have to stay behind a layer."""
        found: list[list[int]] = [[] for _ in self.predecessors]
        for number, before in enumerate(self.predecessors):
            for other in before:
                found[other].append(number)
        return found

    @cached_property
    def _is_free(self) -> bool:
        """Whether any layer may have another place."""
        return any(number - 1 not in before for number, before in enumerate(self.predecessors) if number)

    def _striped(self) -> list[Choices]:
        loading = self._loading()
        return [replace(self.choices, stripes=dict.fromkeys(loading, FEWEST))] if loading else []

    def _loading(self) -> list[int]:
        return [number for number, shape in zip(self.order, self.layout.shapes, strict=True) if shape.loads]

    def _copied(self) -> Choices:
        return replace(self.choices, copy=self.layout.copy is None)

    def _vars(self, number: int) -> list[Var]:
        layer = self.layout.shapes[self.places[number]].layer
        return [*layer.inputs, *layer.outputs]


def paces_beside(move: Choices) -> Iterator[Choices]:
    """Yield moves like one that sets paces, each with the next smaller or the next larger of all of them."""
    for step in (-1, 1):
        if move.fetch_pace is not None and (fetch := _beside(FETCH_PACES, move.fetch_pace, step)) is not None:
            yield replace(move, fetch_pace=fetch)
        paces = {number: other for number, pace in move.paces.items()
                 if (other := _beside(PACES, pace, step)) is not None}
        if paces:
            yield replace(move, paces=paces)


def _beside(paces: Sequence[int], pace: int, step: int) -> int | None:
    place = paces.index(pace) + step
    return paces[place] if 0 <= place < len(paces) else None


MOVES: dict[Callable[[Neighbours, int, random.Random], Choices | None], float] = {
    Neighbours.tiling: 16, Neighbours.resident: 3, Neighbours.spread: 2, Neighbours.copy: 0.5, Neighbours.pace: 4,
    Neighbours.fetch: 4, Neighbours.stripes: 3}
"""Move -> how often it is drawn, beside the others."""

MOVES_OF_PLACES: dict[Callable[[Neighbours, int, random.Random], Choices | None], float] = {
    Neighbours.place: 4, Neighbours.shuffled: 4}
"""The same, of moves for networks some of whose layers may have another place."""
