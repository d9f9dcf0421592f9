# SPDX-License-Identifier: Apache-2.0
"""Candidate tilings of a layer, as columns of arrays, so that one formula scores them all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.tiling.cuts import Cut, Grain
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import part_count


@dataclass(frozen=True)
class Tiling:
    """A way to cut a layer: pixels (``grain``), channel tiles in a group, buffers of each kind, loop order.

    ``taps`` weight tiles of an input channel tile are in local memory at a time. With ``outputs_outer`` groups of
    output channel tiles are the outer loop and output tiles (pixels) the inner one."""

    grain: Grain
    outputs: int
    inputs: int
    taps: int
    buffers: int
    weight_slots: int
    outputs_outer: bool

    def to_json(self) -> dict[str, Any]:
        """Return the fields as one flat dictionary, those of ``grain`` beside the others."""
        return {**self.grain._asdict(), **{key: value for key, value in vars(self).items() if key != "grain"}}


class Tilings(NamedTuple):
    """Candidates as columns, [tilings] each, in the order of preference.

    ``grain`` indexes ``grains``. Then come the fields of :class:`Tiling`, those of :class:`Cut`, ``weights`` (the most
    vectors that a step loads), and those of :class:`Links`."""

    grains: tuple[Grain, ...]
    grain: np.ndarray
    outputs: np.ndarray
    inputs: np.ndarray
    taps: np.ndarray
    buffers: np.ndarray
    weight_slots: np.ndarray
    outputs_outer: np.ndarray
    output_pixels: np.ndarray
    regions: np.ndarray
    core_largest: np.ndarray
    core_total: np.ndarray
    input_tile_largest: np.ndarray
    input_tile_total: np.ndarray
    array: np.ndarray
    weights: np.ndarray
    pairs: np.ndarray
    most: np.ndarray

    def tiling(self, row: int) -> Tiling:
        """Return the candidate of a row as a :class:`Tiling`."""
        outputs, inputs, taps, buffers, slots = (int(column[row]) for column in (
            self.outputs, self.inputs, self.taps, self.buffers, self.weight_slots))
        return Tiling(self.grains[self.grain[row]], outputs, inputs, taps, buffers, slots,
                      bool(self.outputs_outer[row]))


def tilings_of(shape: LayerShape, grains: Sequence[Grain], groups: Sequence[tuple[int, int, int]]) -> Tilings:
    """Return every grain with all ``groups``, one buffer of each kind.

    A group says how many output channel tiles, input channel tiles and weight tiles a step takes."""
    count = len(groups)
    cuts = shape.cuts(grains, groups).reshape(-1, len(Cut._fields))
    whole = cuts[:, :-1].astype(np.int64)
    weights = np.array([shape.weight_vectors(*group) for group in groups], np.int64)
    links = np.array([shape.links(*group[:2]) for group in groups], np.int64).reshape(-1, 2)
    outputs, inputs, taps = np.tile(np.array(groups, np.int64).reshape(-1, 3), (len(grains), 1)).T
    pixels = np.array([grain.rows * grain.columns for grain in grains], np.int64)
    once = np.ones(len(outputs), np.int64)
    return Tilings(tuple(grains), np.repeat(np.arange(len(grains)), count), outputs, inputs, taps, once, once,
                   once == 0, np.repeat(pixels, count), *_columns(whole),
                   cuts[:, -1], np.tile(weights, len(grains)),
                   *np.tile(links, (len(grains), 1)).T)


def _columns(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the five columns of a table [rows, 5]."""
    first, second, third, fourth, fifth = table.T
    return first, second, third, fourth, fifth


def single(shape: LayerShape, tiling: Tiling) -> Tilings:
    """Return the table of a single candidate."""
    found = tilings_of(shape, [tiling.grain], [(tiling.outputs, tiling.inputs, tiling.taps)])
    return found._replace(buffers=np.array([tiling.buffers]), weight_slots=np.array([tiling.weight_slots]),
                          outputs_outer=np.array([tiling.outputs_outer]))


def weight_sets(shape: LayerShape, tilings: Tilings) -> np.ndarray:
    """Return how many different sets of weights the steps of a layer use, for each candidate."""
    if shape.loads:
        return np.ones_like(tilings.outputs)
    return tilings.pairs * part_count(shape.most_taps, tilings.taps)


LONG_PART = 256
"""The length in pixels, along one axis, of a part for which a finer cut is tried too."""

MOST_PARTS = 1 << 16
"""The most parts that an axis is cut into."""


def _divisions(count: int) -> list[int]:
    """Return sizes of equal parts: all, a half, a third, ... one; each once, about a dozen.

    An axis whose 256th part is longer than LONG_PART is halved further, but not into single pixels, as no program is so
    long."""
    numbers = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256]
    while numbers[-1] < min(count // LONG_PART, MOST_PARTS):
        numbers.append(2 * numbers[-1])
    parts = {math.ceil(count / number) for number in numbers}
    return sorted(parts | ({1} if count <= MOST_PARTS else set()), reverse=True)


def _halvings(count: int) -> list[int]:
    """Return ``count``, its half (rounded up), and so on down to 1."""
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append(math.ceil(sizes[-1] / 2))
    return sizes


def _whole_rows(shape: LayerShape) -> list[Grain]:
    """Return cuts of the output into groups of whole rows."""
    height, width = shape.output_size
    return [Grain(rows, width) for rows in _divisions(height)]


def _parts_of_rows(shape: LayerShape) -> list[Grain]:
    """Return cuts of the output into rectangles."""
    height, width = shape.output_size
    return [Grain(rows, columns) for rows, columns in itertools.product(_divisions(height), _divisions(width))]


def _parts_of_windows(shape: LayerShape) -> list[Grain]:
    """Return cuts that pool one output pixel from some rows at a time, or from parts of one row."""
    if shape.layer.pool is None:
        return []
    rows, columns = shape.most_pooled
    return [Grain(1, 1, part) for part in (*((size, columns) for size in _halvings(rows)),
                                           *((1, size) for size in _halvings(columns)))]


GRAINS: tuple[Callable[[LayerShape], list[Grain]], ...] = (_whole_rows, _parts_of_rows, _parts_of_windows)
"""The ways to cut pixels; a finer one is tried if nothing of the coarser ones fits."""


def _groups(shape: LayerShape, split_taps: bool) -> Iterator[tuple[int, int, int]]:
    """Yield how many output channel tiles, input channel tiles and weight tiles a step may take.

    With ``split_taps`` a step may also take only some taps of a single input channel tile."""
    inputs = [0] if shape.loads else _halvings(shape.input_tiles)
    for outputs, group in itertools.product(_halvings(shape.output_tiles), inputs):
        for taps in _halvings(shape.most_taps) if split_taps and group == 1 else [shape.most_taps]:
            yield outputs, group or outputs, taps


def candidates(shape: LayerShape, level: int) -> Tilings:
    """Return all candidates of one way to cut pixels, with the buffers and loop orders that make a difference.

    ``level`` indexes GRAINS."""
    found = tilings_of(shape, GRAINS[level](shape), list(_groups(shape, level > 0)))
    sets = weight_sets(shape, found)
    one_region = np.array([grain.size == shape.output_size for grain in found.grains], bool)[found.grain]
    reorders = ~one_region & (found.outputs < shape.output_tiles)
    buffers, all_sets, outer = (axis.ravel() for axis in np.meshgrid([2, 1], [0, 1], [0, 1], indexing="ij"))
    slots = np.where(all_sets, sets[:, None], np.minimum(sets[:, None], buffers))
    used = ~(all_sets & (slots == np.minimum(sets[:, None], buffers))).astype(bool) & (
        reorders[:, None] | (outer == 0))
    row, variant = np.nonzero(used)
    spread = [column[row] for column in found[1:]]
    return Tilings(found.grains, *spread)._replace(
        buffers=buffers[variant], weight_slots=slots[row, variant], outputs_outer=outer[variant] == 1)
