# SPDX-License-Identifier: Apache-2.0
"""Search for tilings: every candidate that fits is scored with a small cost model, and the cheapest is taken.

The cost of a candidate depends on the layer's form and on which of its Vars are pinned in local memory. The size of
local memory only decides which candidates fit. So a :class:`Search` costs the candidates of a form once for each set of
pinned Vars, and keeps them sorted by cost. Then the plan is the first candidate that fits."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from weft.compiler.errors import CompileError, refuse
from weft.compiler.layers.hir import Layer
from weft.compiler.quantize.consts import LayerConsts
from weft.compiler.tiling.candidates import GRAINS, Tiling, Tilings, candidates
from weft.compiler.tiling.costs import Need, cost, need, needs
from weft.compiler.tiling.cuts import Grain
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class Plan:
    """A chosen tiling, the memory that it needs, and its modelled cycles.

    ``runner_up``: the cycles of the second best, None if there was none."""

    tiling: Tiling
    need: Need
    cost: float
    runner_up: float | None


LOCAL_TOTAL, ACCUMULATOR_TOTAL = (list(Need.__annotations__).index(name) for name in (
    "local_total", "accumulator_total"))


class Ranked(NamedTuple):
    """Candidates that fit the accumulators, the cheapest first, as ``rows`` of ``tilings``.

    ``costs`` in cycles; ``needs`` [fields of :class:`Need`, candidates]: the vectors of memory that each takes."""

    tilings: Tilings
    rows: np.ndarray
    costs: np.ndarray
    needs: np.ndarray

    @property
    def local(self) -> np.ndarray:
        """The vectors of local memory that each candidate takes."""
        return self.needs[LOCAL_TOTAL]

    @property
    def accumulators(self) -> np.ndarray:
        """The vectors of the accumulators that each candidate takes."""
        return self.needs[ACCUMULATOR_TOTAL]

    def plan(self, place: int, runner_up: float | None = None) -> Plan:
        """Return the plan of the candidate at a ``place`` in this order."""
        return Plan(self.tilings.tiling(self.rows[place]), Need(*self.needs[:, place].tolist()),
                    float(self.costs[place]), runner_up)


class Search:
    """The search for layers' plans; it costs each set of candidates once.

    ``costed`` counts these sets, ``asked`` the plans."""

    def __init__(self) -> None:
        self.costed = 0
        self.asked = 0
        self._tilings: dict[tuple[Hashable, int], Tilings] = {}
        self._ranked: dict[tuple[Hashable, int], Ranked] = {}
        self._forms: dict[Hashable, int] = {}
        self._shapes: dict[tuple[int, int, int], LayerShape] = {}  # by the identities of what the shape then keeps

    def shape(self, layer: Layer, consts: LayerConsts, arch: Arch, share: Box | None = None) -> LayerShape:
        """Return the shape of a layer, or of a core's share of it, with no tensor in local memory."""
        key = id(layer), id(consts), id(arch)
        if share is None and key in self._shapes:
            return self._shapes[key]
        shape = LayerShape(layer, consts, arch, frozenset(), arch.local_depth, share=share)
        found = replace(shape, form=self._forms.setdefault(shape.structure, len(self._forms)))
        if share is None:
            self._shapes[key] = found
        return found

    def plan(self, shape: LayerShape) -> Plan | None:
        """Return the cheapest tiling of a layer, or None if none fits.

        Rows are split before columns, and columns before the window of a pool; groups of output and input channels are
        searched at each of these. Among equal costs the tiling that splits less wins."""
        self.asked += 1
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            fitting = np.flatnonzero(ranked.local <= shape.scratch)[:2]
            if len(fitting):
                return ranked.plan(int(fitting[0]), float(ranked.costs[fitting[1]]) if len(fitting) > 1 else None)
        return None

    def fitting(self, shape: LayerShape, most: int, dearest: float) -> list[Tiling]:
        """Return up to ``most`` tilings that fit, the cheapest first.

        None costs more than ``dearest`` times what the cheapest does; all are of the coarsest way to cut pixels of
        which any fits."""
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            found = np.flatnonzero(ranked.local <= shape.scratch)[:most]
            if len(found):
                found = found[ranked.costs[found] <= dearest * ranked.costs[found[0]]]
                return [ranked.tilings.tiling(ranked.rows[place]) for place in found]
        return []

    def in_stripes(self, shape: LayerShape, height: int, accumulators: int, most: float) -> Plan | None:
        """Return the cheapest plan in stripes of up to ``height`` rows, each whole before the next; None if none fits.

        It takes so many ``accumulators`` at most, cuts no row where the layer's cheapest tiling does not, and costs
        ``most`` cycles at most."""
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            fitting = np.flatnonzero(ranked.local <= shape.scratch)
            if len(fitting):
                tilings, rows = ranked.tilings, ranked.rows[fitting]
                size = np.array(tilings.grains, object)[tilings.grain[rows], :2].astype(np.int64)
                costs = ranked.costs[fitting]
                found = np.flatnonzero(
                    (size[:, 0] <= height) & (size[:, 1] >= size[0, 1]) & (costs <= most)
                    & (ranked.accumulators[fitting] <= accumulators)
                    & ((tilings.outputs[rows] >= shape.output_tiles) | ~tilings.outputs_outer[rows]))[:1]
                return ranked.plan(int(fitting[found[0]])) if len(found) else None
        return None

    def told(self, shape: LayerShape, tiling: Tiling) -> Plan | None:
        """Return the plan of a chosen tiling, None if it is none of the candidates or does not fit."""
        for level in range(len(GRAINS)):
            ranked = self._rank(shape, level)
            for place in np.flatnonzero(ranked.local <= shape.scratch):
                if ranked.tilings.tiling(ranked.rows[place]) == tiling:
                    return ranked.plan(int(place))
        return None

    def _rank(self, shape: LayerShape, level: int) -> Ranked:
        """Return the ranked candidates of a layer's form for one way to cut pixels (an index of GRAINS)."""
        key = ((shape.form, shape.streams), level)
        if key not in self._ranked:
            self._ranked[key] = _ranked(shape, self._all(shape, level))
            self.costed += 1
        return self._ranked[key]

    def _all(self, shape: LayerShape, level: int) -> Tilings:
        """Return all candidates of a layer's form for one way to cut pixels (an index of GRAINS)."""
        key = shape.form, level
        if key not in self._tilings:
            self._tilings[key] = candidates(shape, level)
        return self._tilings[key]


def _ranked(shape: LayerShape, tilings: Tilings) -> Ranked:
    """Return the candidates that fit the accumulators, the cheapest first."""
    needed = np.stack(np.broadcast_arrays(*needs(shape, tilings)))
    held = np.flatnonzero(needed[ACCUMULATOR_TOTAL] <= shape.arch.accumulator_depth)
    costs = cost(shape, tilings)[held]
    order = np.argsort(costs, kind="stable")
    return Ranked(tilings, held[order], costs[order], needed[:, held[order]])


def too_small(shapes: Sequence[LayerShape], arch: Arch) -> CompileError:
    """Return the error for layers without a tiling that fits.

    It says which memory is too small, and the least size that holds the smallest tiles of every layer."""
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
