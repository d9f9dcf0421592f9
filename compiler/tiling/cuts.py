# SPDX-License-Identifier: Apache-2.0
"""What a cut of a layer's output into tiles leads to: sizes in pixels, and the array's cycles."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.taps import load_cycles
from weft.compiler.tiling.spans import Box, groups
from weft.compiler.tiling.weight_tiles import Parts, WeightTiles
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import load_weight_cycles
from weft.tmodel.window import Size

TILE_OVERHEAD_CYCLES = 2
"""Cycles that a weight tile costs beyond its vectors, to decode its instructions."""

LOAD_OVERHEAD_CYCLES = 8
"""Cycles that loading a weight tile may cost beyond its rows.

It begins in the cycle after the last tile's start, but waits for banks of local memory that others use. With 1 instead
of 8, a tile that just outlasts its load would seem as good as one twice as long. A layer of 8 x 8 pixels on 32 lanes
then takes 48 % more cycles."""


class Grain(NamedTuple):
    """The sizes into which pixels are cut.

    The output is cut into output tiles of ``rows`` x ``columns``. For each, the core's result is cut into ``part``
    (None: not cut), for a max pool whose single window is too large."""

    rows: int
    columns: int
    part: Size | None = None

    @property
    def size(self) -> Size:
        """Rows and columns of an output tile."""
        return self.rows, self.columns


class Cut(NamedTuple):
    """The sizes that a cut of the output leads to, in pixels: its tiles, the core's result, and the input tiles.

    Input pixels are those of one channel tile. ``array`` is the modelled cycles of one weight tile over all output
    tiles: its pixels, or its own load if that takes longer. If weight tiles share a load, it is their average."""

    regions: int
    core_largest: int
    core_total: int
    input_tile_largest: int
    input_tile_total: int
    array: float


def core_spans(layer: Layer, box: Box, axis: int, grain: Grain) -> list[tuple[int, int]]:
    """Return the ranges of the core's pixels along one axis, for each output tile and part."""
    low, high = (box.rows, box.columns)[axis]
    found = groups(high, grain.size[axis], low)
    pool, size = layer.pool, layer.core.size[axis]
    if pool is not None:
        found = [pool.window.inputs(axis, *span, size) for span in found]
    if grain.part is None:
        return found
    return [piece for low, high in found for piece in groups(high, grain.part[axis], low)]


class Cuts:
    """The cuts of one box of a layer's output, each computed once.

    ``tiles``: the weight tiles of the box. ``lag``: vectors by which results lie behind their input."""

    def __init__(self, layer: Layer, box: Box, tiles: WeightTiles, arch: Arch, lag: int) -> None:
        self._layer, self._box, self._tiles, self._arch, self._lag = layer, box, tiles, arch, lag
        self._cuts: dict[tuple[Grain | int, ...], Cut] = {}
        self._parts: dict[tuple[int, ...], Parts] = {}
        self._input_tiles: dict[tuple[int, int, Size | None, Size], tuple[int, int]] = {}
        self._spans: dict[tuple[int, int, Size | None], np.ndarray] = {}
        self._counts: dict[tuple[int, int, Size | None], Counter[int]] = {}

    def cut(self, grain: Grain, alike: int, *steps: int) -> Cut:
        """Return the sizes that a ``grain`` leads to in ``steps`` of a group, all 0 for the whole kernel; cached.

        ``alike`` weight tiles share a load."""
        key: tuple[Grain | int, ...] = (grain, alike, *steps)
        if key not in self._cuts:
            core = _Lengths(*(self._lengths(axis, grain) for axis in range(2)))
            if steps not in self._parts:
                self._parts[steps] = self._tiles.parts(*steps) if any(steps) else self._tiles.everything
            parts = self._parts[steps]
            rows, columns = ([self._input_tile(axis, grain, parts.spans[axis][place]) for place in parts.chosen[axis]]
                             for axis in range(2))
            load = load_cycles(self._tiles.kernel_rows, self._arch) if self._tiles.depthwise else load_weight_cycles(
                self._arch, self._arch.array_size + 1)
            self._cuts[key] = Cut(core.regions, core.largest, core.total,
                                  max(height[0] * width[0] for height, width in zip(rows, columns, strict=True)),
                                  sum(height[1] * width[1] for height, width in zip(rows, columns, strict=True)),
                                  core.cycles(load + LOAD_OVERHEAD_CYCLES, TILE_OVERHEAD_CYCLES + self._lag, alike))
        return self._cuts[key]

    def _lengths(self, axis: int, grain: Grain) -> Counter[int]:
        """Return the lengths of the core's ranges along one axis, in pixels, and how often each occurs; cached."""
        key = axis, grain.size[axis], grain.part
        if key not in self._counts:
            low, high = self._ranges(axis, grain).T
            self._counts[key] = Counter((high - low).tolist())
        return self._counts[key]

    def _ranges(self, axis: int, grain: Grain) -> np.ndarray:
        """Return :meth:`_core_spans` as an array [ranges, 2]; cached."""
        key = axis, grain.size[axis], grain.part
        if key not in self._spans:
            self._spans[key] = np.array(core_spans(self._layer, self._box, axis, grain), np.int64).reshape(-1, 2)
        return self._spans[key]

    def _input_tile(self, axis: int, grain: Grain, taps: tuple[int, int]) -> tuple[int, int]:
        """Return the input pixels along one axis that ``taps`` (half open) of the kernel need.

        The result, which is cached, is (the most of any output tile, the sum over all output tiles)."""
        key = axis, grain.size[axis], grain.part, taps
        if key not in self._input_tiles:
            core = self._layer.core
            window = core.window.only([(taps[0],) * 2, (taps[1],) * 2])
            low, high = self._ranges(axis, grain).T
            counts = window.input_counts(axis, low, high, core.input.size[axis])
            self._input_tiles[key] = int(counts.max()), int(counts.sum())
        return self._input_tiles[key]


class _Lengths(NamedTuple):
    """A grid of boxes: ``rows`` counts their heights, ``columns`` their widths, each as pixels -> how often."""

    rows: Counter[int]
    columns: Counter[int]

    @property
    def regions(self) -> int:
        """The number of boxes."""
        return self.rows.total() * self.columns.total()

    @property
    def largest(self) -> int:
        """The pixels of the largest box."""
        return max(self.rows) * max(self.columns)

    @property
    def total(self) -> int:
        """The pixels of all boxes."""
        return math.prod(sum(size * count for size, count in axis.items()) for axis in self)

    def cycles(self, least: int, more: int, alike: int) -> float:
        """Return the array's cycles for one weight tile, over all boxes.

        ``alike`` weight tiles share a load, so a box takes its pixels that often, but not less than ``least``, the load
        of the next ones. ``more`` cycles are added to each."""
        return sum((max(height * width * alike, least) + more) * many * often
                   for height, many in self.rows.items() for width, often in self.columns.items()) / alike
