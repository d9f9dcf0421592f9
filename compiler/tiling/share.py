# SPDX-License-Identifier: Apache-2.0
"""Shares: which box of a layer's output each core computes when one image runs on several cores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from weft.compiler.layers.hir import Layer
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch


class Cuts(NamedTuple):
    """Into how many parts a layer's output is cut: its channel tiles, its rows, its columns."""

    tiles: int
    rows: int
    columns: int


def whole_box(layer: Layer, arch: Arch) -> Box:
    """Return the box of all of a layer's output."""
    height, width = layer.output.size
    return Box((0, layer.output.tiles(arch.array_size)), (0, height), (0, width))


def shares(whole: Box, cuts: Cuts) -> list[Box]:
    """Return the boxes of ``whole`` cut so often, channel tiles outermost and columns innermost.

    Parts of an axis differ by one at most; some are empty where the axis is shorter than the number of cuts."""
    axes = (whole.tiles, whole.rows, whole.columns)
    return [Box(*parts) for parts in itertools.product(*map(_parts, axes, cuts))]


def _parts(axis: tuple[int, int], count: int) -> list[tuple[int, int]]:
    """Return ``count`` half-open ranges that together are ``axis``."""
    low, high = axis
    ends = [low + (high - low) * number // count for number in range(count + 1)]
    return [*itertools.pairwise(ends)]


def ways_to_cut(whole: Box, cores: int) -> Iterator[Cuts]:
    """Yield the cuts into a part for each of ``cores``, by tiles, by rows, or by both, and the one of a single core.

    Cuts that would leave a core without work are left out, but for the last one."""
    counts = whole.tiles[1] - whole.tiles[0], whole.size[0]
    for tiles in range(1, cores + 1):
        if cores % tiles == 0 and tiles <= counts[0] and cores // tiles <= counts[1]:
            yield Cuts(tiles, cores // tiles, 1)
    yield Cuts(1, 1, 1)
