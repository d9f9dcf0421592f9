# SPDX-License-Identifier: Apache-2.0
"""Choose, for each layer, which box of its output each core computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.compiler.layers.hir import Layer
from weft.compiler.quantize.consts import Consts, LayerConsts
from weft.compiler.tiling.search import Search, too_small
from weft.compiler.tiling.share import shares, ways_to_cut, whole_box
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch

Shares = tuple[tuple[Box | None, ...], ...]
"""[layers, cores]: the box of a layer's output that a core computes, None for a core that rests."""


def choose_shares(layers: Sequence[Layer], consts: Consts, arch: Arch, search: Search) -> Shares:
    """Return for each layer the cut whose slowest core is done first by the cost model.

    Raise CompileError for a layer that no tiling fits."""
    return tuple(_chosen(layer, own, arch, search) for layer, own in zip(layers, consts.layers, strict=True))


def _chosen(layer: Layer, consts: LayerConsts, arch: Arch, search: Search) -> tuple[Box | None, ...]:
    """Return the box of each core."""
    found = [shares(whole_box(layer, arch), cuts) for cuts in ways_to_cut(whole_box(layer, arch), arch.cores)]
    costs = [max(_cost(layer, consts, arch, search, box) for box in boxes) for boxes in found]
    if min(costs) == math.inf:
        raise too_small([search.shape(layer, consts, arch)], arch)
    best = found[costs.index(min(costs))]
    return (*best, *[None] * (arch.cores - len(best)))


def _cost(layer: Layer, consts: LayerConsts, arch: Arch, search: Search, share: Box) -> float:
    """Return the cycles of a share by the cost model, infinite if no tiling fits."""
    plan = search.plan(search.shape(layer, consts, arch, share))
    return math.inf if plan is None else plan.cost
