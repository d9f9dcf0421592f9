# SPDX-License-Identifier: Apache-2.0
"""Choose, for each layer, which box of its output each core computes.

A layer's cut decides how long its slowest core takes, and together with the cuts of the layers before it how much goes
from core to core. A beam search goes from layer to layer and keeps the cheapest ways so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.var import Var
from weft.compiler.quantize.consts import Consts, LayerConsts
from weft.compiler.split.touched import touched
from weft.compiler.tiling.costs import traffic
from weft.compiler.tiling.search import Search, too_small
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.share import shares, ways_to_cut, whole_box
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED

Shares = tuple[tuple[Box | None, ...], ...]
"""[layers, cores]: the box of a layer's output that a core computes, None for a core that rests."""

MOST_WAYS = 16
"""The ways through the layers that are followed at once."""
KEPT_PART = 0.5
"""The part of local memory that a layer's tensors may take and be expected to stay there."""
EXCHANGE_CYCLES = 2 * EXPECTED.read_latency + 200
"""Cycles from a save to the end of its load by another core, beyond their beats: a post and a wait lie between."""
READS_PART = 0.2
"""The part of a share's read beats that keeps its array waiting. Shares with fewer reads leave room for exchanges."""


class Made(NamedTuple):
    """The boxes [cores] of a Var that a layer made."""

    var: Var
    boxes: tuple[Box | None, ...]


@dataclass(frozen=True)
class Way:
    """Cuts of the first layers: their ``shares`` and the modelled ``cost`` in cycles.

    ``made``: by root, the boxes that each core has computed; for a root that a later layer reads."""

    shares: Shares
    cost: float
    made: Mapping[str, tuple[Made, ...]]


def choose_shares(layers: Sequence[Layer], consts: Consts, arch: Arch, search: Search,
                  fixed: Mapping[int, tuple[Box | None, ...]]) -> Shares:
    """Return the boxes of all layers and cores; ``fixed``: those [cores] of some layers, by number.

    Raise CompileError for a layer that no tiling fits."""
    ways = [Way((), 0.0, {})]
    last = {var.root: number for number, layer in enumerate(layers) for var in layer.inputs}
    for number, (layer, own) in enumerate(zip(layers, consts.layers, strict=True)):
        cuts = [fixed[number]] if number in fixed else _cuts(layer, arch)
        options = [option for boxes in cuts if (option := _option(layer, own, arch, search, boxes)) is not None]
        if not options:
            raise too_small([search.shape(layer, own, arch)], arch)
        grown = [_grown(way, option, arch) for way in ways for option in options]
        ways = _best(grown, {root for root, reader in last.items() if reader > number})
    return ways[0].shares


class _Option(NamedTuple):
    """A cut of a layer: shapes [cores], None for a core that rests, and the cycles of the slowest."""

    shapes: tuple[LayerShape | None, ...]
    cost: float


def _cuts(layer: Layer, arch: Arch) -> list[tuple[Box | None, ...]]:
    """Return the boxes [cores] of each way to cut a layer."""
    whole = whole_box(layer, arch)
    found = [shares(whole, cuts) for cuts in ways_to_cut(whole, arch.cores)]
    return [(*boxes, *[None] * (arch.cores - len(boxes))) for boxes in found]


def _option(layer: Layer, consts: LayerConsts, arch: Arch, search: Search,
            boxes: Sequence[Box | None]) -> _Option | None:
    """Return a cut of a layer, None if no tiling fits. The largest box, of equals a middle one, is the slowest's."""
    shapes = tuple(None if box is None else search.shape(layer, consts, arch, box) for box in boxes)
    _, largest = max(((box.vectors, 0 < core < len(boxes) - 1), core) for core, box in enumerate(boxes)
                     if box is not None)
    whole = shapes[largest]
    assert whole is not None
    shape = _kept(whole)
    plan = search.plan(shape) or search.plan(shape := whole)
    if plan is None:
        return None
    moved = traffic(shape, plan.tiling)
    reads = (moved.dram0_read + moved.dram1_read + moved.consts) * arch.vector_beats
    return _Option(shapes, plan.cost + READS_PART * reads)


def _kept(shape: LayerShape) -> LayerShape:
    """Return the shape with its tensors in local memory, if they leave room for the rest."""
    pieces = touched(shape)
    sizes = {var.root: box.vectors for var, box in (*pieces.reads, *pieces.writes)}
    if sum(sizes.values()) > KEPT_PART * shape.arch.local_depth:
        return shape
    return replace(shape, resident=frozenset(sizes), scratch=shape.arch.local_depth - sum(sizes.values()))


def _grown(way: Way, option: _Option, arch: Arch) -> Way:
    """Return a way with one more layer."""
    made, boxes = dict(way.made), tuple(None if shape is None else shape.box for shape in option.shapes)
    fetched = max(_fetched(way, shape, core) for core, shape in enumerate(option.shapes) if shape is not None)
    cost = option.cost + (EXCHANGE_CYCLES + fetched * arch.vector_beats if fetched else 0)
    first = next(shape for shape in option.shapes if shape is not None)
    for number, (var, _) in enumerate(touched(first).writes):
        own = Made(var, tuple(touched(shape).writes[number][1] if shape else None for shape in option.shapes))
        made[var.root] = (*made.get(var.root, ()), own)
    return Way((*way.shares, boxes), way.cost + cost, made)


def _fetched(way: Way, shape: LayerShape, core: int) -> float:
    """Return the vectors that a core reads and another one has made; the network's inputs are everybody's."""
    return sum(box.vectors - _own(way.made[var.root], core, var, box)
               for var, box in touched(shape).reads if var.root in way.made)


def _own(made: Sequence[Made], core: int, var: Var, box: Box) -> float:
    """Return how many vectors of a box of ``var`` a core has made itself.

    Parts of one root that differ in size are compared by their rows' share of the height."""
    found = 0.0
    for entry in made:
        own = entry.boxes[core]
        if own is None:
            continue
        scale, tile = var.height / entry.var.height, entry.var.first_tile - var.first_tile
        rows = min(box.rows[1], own.rows[1] * scale) - max(box.rows[0], own.rows[0] * scale)
        tiles = min(box.tiles[1], own.tiles[1] + tile) - max(box.tiles[0], own.tiles[0] + tile)
        columns = box.columns[1] - box.columns[0]
        if entry.var.name == var.name:
            columns = min(box.columns[1], own.columns[1]) - max(box.columns[0], own.columns[0])
        found += max(rows, 0) * max(tiles, 0) * max(columns, 0)
    return min(found, box.vectors)


def _best(ways: Sequence[Way], needed: set[str]) -> list[Way]:
    """Return the cheapest ways, of those that go on alike only one: what is still ``needed`` lies in the same boxes."""
    found: dict[object, Way] = {}
    for way in sorted(ways, key=lambda way: way.cost):
        alive = {root: made for root, made in way.made.items() if root in needed}
        found.setdefault(tuple((root, tuple(entry.boxes for entry in made)) for root, made in sorted(alive.items())),
                         replace(way, made=alive))
        if len(found) == MOST_WAYS:
            break
    assert ways[0].cost < math.inf
    return [*found.values()]
