# SPDX-License-Identifier: Apache-2.0
"""The weight tiles of a layer as arrays: for any group of them the part of the kernel, and the vectors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compiler.layers.taps import Steps
from weft.compiler.quantize.weights import OutputBlock
from weft.tmodel.window import Window

NOWHERE = 1 << 40
"""A number beyond every tap and every offset, for weight tiles that do not exist."""

Pair = tuple[int, int]


class Links(NamedTuple):
    """The connections by weights between groups of output and of input channel tiles.

    ``pairs`` of groups with weights between them, and the ``most`` pairs of one output group."""

    pairs: int
    most: int


class Parts(NamedTuple):
    """Parts of a kernel: the distinct ``spans`` (first and last tap) of rows and of columns.

    ``chosen`` [parts] has, for each part, the index of its span, for rows and for columns."""

    spans: tuple[tuple[Pair, ...], tuple[Pair, ...]]
    chosen: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class WeightTiles:
    """The weight tiles of a layer: ``blocks``, one for each output channel tile, and the kernel's ``window``."""

    blocks: tuple[OutputBlock, ...]
    window: Window

    @cached_property
    def most_taps(self) -> int:
        """The most weight tiles that any output channel tile has for one input channel tile."""
        return max((block.most_taps for block in self.blocks), default=1) or 1

    @cached_property
    def count(self) -> int:
        """The number of weight tiles."""
        return int((self._table[0][..., 2] != NOWHERE).sum())

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and last tap of every weight tile, with the offset of its first row and behind its last one.

        Two arrays [output channel tiles, input channel tiles, weight tiles, 3] of row, column and offset. A missing
        weight tile has NOWHERE as its first, and lies before all others with its last."""
        inputs = max((len(block.tiles) for block in self.blocks), default=1)
        first = np.full((len(self.blocks), inputs, self.most_taps, 3), NOWHERE, np.int64)
        last = np.full_like(first, -1)
        groups = [tiles for block in self.blocks for tiles in block.tiles]
        every = [tile for tiles in groups for tile in tiles]
        sizes = np.array([*map(len, groups)], np.int64)
        outputs = np.repeat(np.arange(len(self.blocks)), [len(block.tiles) for block in self.blocks])
        numbers = np.concatenate([np.arange(len(block.tiles)) for block in self.blocks] or [sizes])
        places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        where = np.repeat(outputs, sizes), np.repeat(numbers, sizes), places
        begin = np.array([(*tile.tap, tile.offset) for tile in every], np.int64).reshape(-1, 3)
        more = np.array([(tile.kernel_rows - 1, max(0, tile.taps - 1), tile.rows) for tile in every],
                        np.int64).reshape(-1, 3)
        first[where], last[where] = begin, begin + more * (1, Steps.of(self.window).taps, 1)
        return first, last

    @cached_property
    def depthwise(self) -> bool:
        """Whether weight tiles are passes of a depthwise convolution."""
        return any(tile.taps for block in self.blocks for tiles in block.tiles for tile in tiles)

    @cached_property
    def kernel_rows(self) -> int:
        """The most rows of the kernel in a weight tile."""
        return max(tile.kernel_rows for block in self.blocks for tiles in block.tiles for tile in tiles)

    @cached_property
    def alike(self) -> int:
        """The number of consecutive weight tiles that share their rows, as those of an average pool do.

        One load and one walk serve them all."""
        offsets = self._table[0][..., 2]
        return max(1, self.count // max(1, len(np.unique(offsets[offsets != NOWHERE]))))

    @cached_property
    def alike_blocks(self) -> list[tuple[int, int, int]]:
        """[output channel tiles]: a number that those with the same weight tiles share, and where their inputs begin.

        These are the first input channel tile with weights, and the one behind the last. Offsets count from the bias,
        input channel tiles from the first one."""
        known: dict[Hashable, int] = {}
        found = []
        shift = np.array([block.bias for block in self.blocks], np.int64)[:, None, None, None] * (0, 0, 1)
        tables = [np.where(table < NOWHERE, table - shift, NOWHERE) for table in self._table]
        there = self._table[1][:, :, 0, 2] >= 0
        begins, ends = there.argmax(1), there.shape[1] - there[:, ::-1].argmax(1)
        ends = np.where(there.any(1), ends, 1)
        for number, (block, begin, end) in enumerate(zip(self.blocks, begins.tolist(), ends.tolist(), strict=True)):
            content = (table[number, begin:end].tobytes() for table in tables)
            key = (*content, end - begin, block.carries_bias, block.biased)
            found.append((known.setdefault(key, len(known)), begin, end))
        return found

    @cached_property
    def _works(self) -> np.ndarray:
        """[output channel tiles, input channel tiles]: whether there are weights, or the bias loaded with them."""
        found = self._table[0][:, :, 0, 2] != NOWHERE
        found[np.arange(len(self.blocks)), [block.owner for block in self.blocks]] = True
        return np.asarray(found)

    def links(self, outputs: int, inputs: int) -> Links:
        """Return how groups of ``outputs`` and ``inputs`` channel tiles are connected.

        A dense convolution links each to each, a depthwise one each to its own."""
        work = _grouped(self._works, (outputs, inputs), np.logical_or)
        return Links(int(work.sum()), int(work.sum(1).max()))

    def window_of(self, outputs: Pair, inputs: Pair, taps: Pair) -> Window | None:
        """Return the part of the kernel that weight tiles of these half-open ranges cover; None for no tile."""
        if self.is_whole(taps[1] - taps[0]):
            return self.window
        first, last = (table[slice(*outputs), slice(*inputs), slice(*taps), :2].reshape(-1, 2) for table in self._table)
        (top, left), (bottom, right) = first.min(0, initial=NOWHERE), last.max(0, initial=-1)
        return self.window.only([(int(top), int(left)), (int(bottom), int(right))]) if bottom >= 0 else None

    def is_whole(self, taps: int) -> bool:
        """Tell whether ``taps`` weight tiles of an input channel tile are all that any of them has."""
        if self.depthwise:
            return taps >= self.most_taps
        return taps >= self.most_taps == self.window.kernel[0] * self.window.kernel[1]

    def parts(self, outputs: int, inputs: int, taps: int) -> Parts:
        """Return all parts of the kernel that occur in steps of so many channel tiles and weight tiles."""
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
        """The whole kernel as a single part."""
        rows, columns = self.window.kernel
        return Parts((((0, rows - 1),), ((0, columns - 1),)), (np.zeros(1, np.int64), np.zeros(1, np.int64)))

    def vectors(self, inputs: int, taps: int) -> np.ndarray:
        """Return [output channel tiles, steps]: the vectors of weights and biases that each step loads."""
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
    """Return the distinct pairs of ``first`` and ``last``, and for every pair which of them it is."""
    base = int(last.max()) + 1
    found, index = np.unique(first * base + last, return_inverse=True)
    return tuple(divmod(pair, base) for pair in found.tolist()), index


def _grouped(values: np.ndarray, sizes: Sequence[int], combine: np.ufunc) -> np.ndarray:
    """Return ``values`` combined over groups of these sizes, along the first axes."""
    for axis, size in enumerate(sizes):
        if size > 1:
            values = combine.reduceat(values, np.arange(0, values.shape[axis], size), axis=axis)
    return values
