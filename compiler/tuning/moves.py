# SPDX-License-Identifier: Apache-2.0
"""Moves: other choices near some choices. A move changes one thing of one layer, or of one tensor that it uses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from weft.compiler.choices import Choices
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.memory.stripes import FEWEST, MOST
from weft.compiler.scheduler.interleave import SIMD_CYCLES
from weft.compiler.tiling.search import Search

MOST_TILINGS = 60
"""The number of a layer's tilings that are tried: the cheapest by the formula."""

DEAREST = 1.3
"""The modelled cost of the dearest tiling that is tried, in multiples of the formula's own choice."""

PACES = (1, 2, 3, 5, 6, 8, 12)
"""Half cycles for a vector through the SIMD unit that are tried."""

STRIPES = (0, 2, 3, 4, 6)
"""The fewest stripes that are tried; 0: alone."""

FETCH_PACES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Half cycles for a beat of a DRAM that are tried."""


@dataclass(frozen=True)
class Neighbours:
    """The start of moves: ``choices``, their memory map, and for each layer how long the array waited in it."""

    choices: Choices
    layout: MemoryPlan
    weights: Sequence[float]
    search: Search

    def openings(self) -> list[Choices]:
        """Return the moves that concern all layers, to be judged first.

        These are paces, constants in both DRAMs, and stripes for all layers that load."""
        layers = range(len(self.weights))
        return [self._copied(), *self._striped(), *(replace(self.choices, fetch_pace=pace) for pace in FETCH_PACES),
                *(replace(self.choices, paces=dict.fromkeys(layers, pace)) for pace in PACES)]

    def draw(self, chance: random.Random) -> Choices | None:
        """Return other choices; None where the draw leads to nothing new."""
        number = chance.choices(range(len(self.weights)), self.weights)[0]
        return chance.choices([*MOVES], [*MOVES.values()])[0](self, number, chance)

    def tiling(self, number: int, chance: random.Random) -> Choices | None:
        """Return another tiling of a layer; those that the formula likes come up more often."""
        known = self.search.fitting(self.layout.shapes[number], MOST_TILINGS, DEAREST)
        place = min(int(chance.expovariate(1 / 10)), len(known) - 1)
        if place < 0 or known[place] == self.layout.plans[number].tiling:
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
        last = next((other for other in self._loading() if number <= other < number + MOST), None)
        fewest = chance.choice(STRIPES)
        if last is None or fewest == self.choices.stripes.get(last):
            return None
        return replace(self.choices, stripes={**self.choices.stripes, last: fewest})

    def _striped(self) -> list[Choices]:
        loading = self._loading()
        return [replace(self.choices, stripes=dict.fromkeys(loading, FEWEST))] if loading else []

    def _loading(self) -> list[int]:
        return [number for number, shape in enumerate(self.layout.shapes) if shape.loads]

    def _copied(self) -> Choices:
        return replace(self.choices, copy=self.layout.copy is None)

    def _vars(self, number: int) -> list[Var]:
        layer = self.layout.shapes[number].layer
        return [*layer.inputs, *layer.outputs]


MOVES: dict[Callable[[Neighbours, int, random.Random], Choices | None], float] = {
    Neighbours.tiling: 16, Neighbours.resident: 3, Neighbours.spread: 2, Neighbours.copy: 0.5, Neighbours.pace: 4,
    Neighbours.fetch: 4, Neighbours.stripes: 3}
"""Move -> how often it is drawn, beside the others."""
