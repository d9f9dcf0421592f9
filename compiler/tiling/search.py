"""Tiles are searched: every candidate that fits is scored with a small cost model, the cheapest is taken.

What candidates cost depends on the layer's form, and on which of its Vars are resident; local memory only says which of
them fit. So a :class:`Search` costs the candidates of a form once for each set of residents and keeps them, the
cheapest first; a plan is then found by asking for the first one that fits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.compiler.errors import CompileError, refuse
from weft.compiler.tiling.candidates import GRAINS, Tiling, Tilings, candidates
from weft.compiler.tiling.costs import Need, cost, need, needs
from weft.compiler.tiling.shape import Grain, LayerShape
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class Plan:
    """A tiling, what it needs, its modelled cost in cycles, and the runner-up's cost (None: there was none)."""

    tiling: Tiling
    need: Need
    cost: float
    runner_up: float | None


class Ranked(NamedTuple):
    """Candidates that the accumulators hold, the cheapest first: ``costs`` and the ``local`` memory that each takes.
    ``rows`` of ``tilings``."""

    tilings: Tilings
    rows: np.ndarray
    costs: np.ndarray
    local: np.ndarray


class Search:
    """Plans of layers, each set of candidates costed once. ``costed`` counts these sets, ``asked`` the plans."""

    def __init__(self) -> None:
        self.costed = 0
        self.asked = 0
        self._tilings: dict[tuple[Hashable, int], Tilings] = {}
        self._ranked: dict[tuple[Hashable, int], Ranked] = {}

    def plan(self, shape: LayerShape) -> Plan | None:
        """The cheapest tiling, None when nothing fits. Rows are split before columns, and these before the window of a
        pool; groups of output and input channels are searched at each of these. Of equal cost is what splits less."""
        self.asked += 1
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            fitting = np.flatnonzero(ranked.local <= shape.scratch)[:2]
            if len(fitting):
                best, runner_up = ranked.costs[fitting[0]], ranked.costs[fitting[-1]]
                tiling = ranked.tilings.tiling(ranked.rows[fitting[0]])
                return Plan(tiling, need(shape, tiling), float(best),
                            float(runner_up) if len(fitting) > 1 else None)
        return None

    def fitting(self, shape: LayerShape, most: int, dearest: float) -> list[Tiling]:
        """Up to ``most`` tilings that fit and cost at most ``dearest`` times what the cheapest does, this one first; of
        the coarsest way to cut pixels of which any fits."""
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            found = np.flatnonzero(ranked.local <= shape.scratch)[:most]
            if len(found):
                found = found[ranked.costs[found] <= dearest * ranked.costs[found[0]]]
                return [ranked.tilings.tiling(ranked.rows[place]) for place in found]
        return []

    def told(self, shape: LayerShape, tiling: Tiling) -> Plan | None:
        """The plan of a tiling that somebody chose, None where it is none of the candidates or does not fit."""
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            for place in np.flatnonzero(ranked.local <= shape.scratch):
                if ranked.tilings.tiling(ranked.rows[place]) == tiling:
                    return Plan(tiling, need(shape, tiling), float(ranked.costs[place]), None)
        return None

    def _rank(self, shape: LayerShape, level: int) -> Ranked:
        key = ((shape.form, shape.streams), level)
        if key not in self._ranked:
            self._ranked[key] = _ranked(shape, self._all(shape, level))
            self.costed += 1
        return self._ranked[key]

    def _all(self, shape: LayerShape, level: int) -> Tilings:
        key = shape.form, level
        if key not in self._tilings:
            self._tilings[key] = candidates(shape, level)
        return self._tilings[key]


def _ranked(shape: LayerShape, tilings: Tilings) -> Ranked:
    *_, local, accumulators = needs(shape, tilings)
    held = np.flatnonzero(accumulators <= shape.arch.accumulator_depth)
    costs = cost(shape, tilings)[held]
    order = np.argsort(costs, kind="stable")
    return Ranked(tilings, held[order], costs[order], local[held[order]])


def too_small(shapes: Sequence[LayerShape], arch: Arch) -> CompileError:
    """The error when some layer has no tiling that fits: which memory is too small, and the least that does for all
    layers, which is what the smallest tiles of some layer take."""
    smallest = Tiling(Grain(1, 1, (1, 1)), 1, 1, 1, 1, 1, False)
    needs = [(shape.layer.name, need(shape, smallest)) for shape in shapes]
    local = max((entry.local_total, name) for name, entry in needs)
    accumulators = max((entry.accumulator_total, name) for name, entry in needs)
    lacking = [(key, depth, *least) for key, depth, least in
               (("local_depth", arch.local_depth, local), ("accumulator_depth", arch.accumulator_depth, accumulators))
               if depth < least[0]]
    return refuse(" and ".join(f"{key} for layer {name!r}" for key, _, _, name in lacking),
                  " and ".join(str(depth) for _, depth, _, _ in lacking),
                  " and ".join(f"{key} of at least {least} vectors, its smallest tile" for key, _, least, _ in lacking),
                  " and ".join(f"raise {key} to {least} or more" for key, _, least, _ in lacking))
