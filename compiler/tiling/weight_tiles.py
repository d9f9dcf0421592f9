"""The weight tiles of a layer as arrays: which part of the kernel, and how many vectors, any groups of them are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from weft.tmodel.window import Window

from weft.compiler.layers.taps import Steps
from weft.compiler.quantize.consts import OutputBlock

NOWHERE = 1 << 40
"""Beyond every tap and every offset."""

Pair = tuple[int, int]


class Links(NamedTuple):
    """Groups of output tiles and of input tiles: ``pairs`` of them with work between, ``most`` of one output group."""

    pairs: int
    most: int


class Parts(NamedTuple):
    """Parts of a kernel, each a first and a last tap of either axis: ``spans`` of rows and of columns, each once, and
    ``chosen`` [parts] of them."""

    spans: tuple[tuple[Pair, ...], tuple[Pair, ...]]
    chosen: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class WeightTiles:
    """Those of ``blocks``, one for each output tile, with ``window`` as their kernel."""

    blocks: tuple[OutputBlock, ...]
    window: Window

    @cached_property
    def most_taps(self) -> int:
        """The most weight tiles that any output tile has for one input tile."""
        return max((block.most_taps for block in self.blocks), default=1) or 1

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """[output tiles, input tiles, weight tiles, 3]: tap and offset of the first row; tap and offset behind the last
        row. Where there is no weight tile, beyond all others, and before all."""
        inputs = max((len(block.tiles) for block in self.blocks), default=1)
        first = np.full((len(self.blocks), inputs, self.most_taps, 3), NOWHERE, np.int64)
        rows = np.zeros((len(self.blocks), inputs, 1), np.int64)
        along, step = np.zeros(first.shape[:3], np.int64), Steps.of(self.window).taps
        for output, block in enumerate(self.blocks):
            for number, tiles in enumerate(block.tiles):
                if tiles:
                    first[output, number, :len(tiles)] = [(*tile.tap, tile.offset) for tile in tiles]
                    along[output, number, :len(tiles)] = [max(0, tile.taps - 1) * step for tile in tiles]
                    rows[output, number] = tiles[0].rows
        last = np.where(first == NOWHERE, -1, first)
        last[..., 1] += along
        last[..., 2] += rows
        return first, last

    @cached_property
    def depthwise(self) -> bool:
        """Whether weight tiles are passes of a depthwise convolution."""
        return any(tile.taps for block in self.blocks for tiles in block.tiles for tile in tiles)

    @cached_property
    def alike(self) -> int:
        """How many weight tiles behind each other share their rows, as those of an average pool do: one load and one
        walk serve them all."""
        offsets = self._table[0][..., 2]
        count = int((offsets != NOWHERE).sum())
        return max(1, count // max(1, len(np.unique(offsets[offsets != NOWHERE]))))

    @cached_property
    def _works(self) -> np.ndarray:
        """[output tiles, input tiles]: whether one has weights for the other, or the bias that is loaded with them."""
        found = self._table[0][:, :, 0, 2] != NOWHERE
        found[np.arange(len(self.blocks)), [block.owner for block in self.blocks]] = True
        return np.asarray(found)

    def links(self, outputs: int, inputs: int) -> Links:
        """Of groups of so many output and input tiles. A convolution that is dense links each to each, one that is
        depthwise each to its own."""
        work = _grouped(self._works, (outputs, inputs), np.logical_or)
        return Links(int(work.sum()), int(work.sum(1).max()))

    def window_of(self, outputs: Pair, inputs: Pair, taps: Pair) -> Window | None:
        """The part of the kernel that some weight tiles are (half-open ranges); None when there are none."""
        if self.is_whole(taps[1] - taps[0]):
            return self.window
        first, last = (table[slice(*outputs), slice(*inputs), slice(*taps), :2].reshape(-1, 2) for table in self._table)
        (top, left), (bottom, right) = first.min(0, initial=NOWHERE), last.max(0, initial=-1)
        return self.window.only([(int(top), int(left)), (int(bottom), int(right))]) if bottom >= 0 else None

    def is_whole(self, taps: int) -> bool:
        """Whether so many weight tiles of an input tile are every tap, as far as any output tile has that many."""
        if self.depthwise:
            return taps >= self.most_taps
        return taps >= self.most_taps == self.window.kernel[0] * self.window.kernel[1]

    def parts(self, outputs: int, inputs: int, taps: int) -> Parts:
        """All parts of the kernel that come up in steps of so many output, input and weight tiles."""
        low, high = (_grouped(table, (outputs, inputs, taps), combine) for table, combine in zip(
            self._table, (np.minimum, np.maximum), strict=True))
        there = high[..., 0] >= 0
        if not there.any():
            return self.everything
        shape = self.window.kernel * 2
        corners = np.unravel_index(np.unique(np.ravel_multi_index(
            (low[there, 0], low[there, 1], high[there, 0], high[there, 1]), shape)), shape)
        spans, chosen = zip(*(_once(*corners[axis::2]) for axis in range(2)), strict=True)
        return Parts(spans, chosen)

    @property
    def everything(self) -> Parts:
        """The whole kernel."""
        rows, columns = self.window.kernel
        return Parts((((0, rows - 1),), ((0, columns - 1),)), (np.zeros(1, np.int64), np.zeros(1, np.int64)))

    def vectors(self, inputs: int, taps: int) -> np.ndarray:
        """[output tiles, steps] of weights and biases, in steps of so many input and weight tiles."""
        low, high = (_grouped(table[..., 2], (1, inputs, taps), combine) for table, combine in zip(
            self._table, (np.minimum, np.maximum), strict=True))
        starts = np.zeros(low.shape, bool)
        for output, block in enumerate(self.blocks):
            starts[output, block.owner // inputs, 0] = True
        bias = np.array([block.bias for block in self.blocks], np.int64)[:, None, None]
        behind = bias + np.array([block.biased for block in self.blocks], np.int64)[:, None, None]
        none = low == NOWHERE
        end = np.where(none, behind, high)
        return np.asarray(end - np.where(starts, bias, np.where(none, behind, low))).reshape(len(self.blocks), -1)


def _once(first: np.ndarray, last: np.ndarray) -> tuple[tuple[Pair, ...], np.ndarray]:
    """Pairs of numbers, each once, and which of them every pair is."""
    base = int(last.max()) + 1
    found, index = np.unique(first * base + last, return_inverse=True)
    return tuple(divmod(pair, base) for pair in found.tolist()), index


def _grouped(values: np.ndarray, sizes: Sequence[int], combine: np.ufunc) -> np.ndarray:
    """``values`` combined over groups of these sizes, along the first axes."""
    for axis, size in enumerate(sizes):
        if size > 1:
            values = combine.reduceat(values, np.arange(0, values.shape[axis], size), axis=axis)
    return values
