# SPDX-License-Identifier: Apache-2.0
"""A layer as tiling and scheduler see it: channel tiles and pixels, places of its tensors, sizes of its parts."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.layers.beside import simd_instructions
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Load, Product, Save
from weft.compiler.layers.taps import load_cycles
from weft.compiler.layers.var import Var
from weft.compiler.quantize.consts import LayerConsts
from weft.compiler.quantize.weights import OutputBlock
from weft.compiler.tiling.spans import Box, groups, part_count
from weft.compiler.tiling.weight_tiles import Links, Parts, WeightTiles
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


@dataclass(frozen=True)
class LayerShape:
    """A layer with the facts that tiling depends on.

    ``resident`` names the Vars pinned in local memory, ``spread`` those striped over both DRAMs (odd channel tiles in
    DRAM1), ``elsewhere`` those that lie in DRAM1 as a whole. ``scratch`` is the part of local memory, in vectors, that
    the layer has for itself. ``share`` is the box of the output that this core computes, None for all of it; other
    cores compute the rest."""

    layer: Layer
    consts: LayerConsts
    arch: Arch
    resident: frozenset[str]
    scratch: int
    spread: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    share: Box | None = None
    form: int = 0
    """The number of the layer's form; layers of one form have the same candidates, see :attr:`structure`."""
    _cuts: dict[tuple[Grain | int, ...], Cut] = field(default_factory=dict, compare=False, repr=False)
    _parts: dict[tuple[int, ...], Parts] = field(default_factory=dict, compare=False, repr=False)
    _input_tiles: dict[tuple[int, int, Size | None, Size], tuple[int, int]] = field(default_factory=dict, compare=False,
                                                                             repr=False)
    _spans: dict[tuple[int, int, Size | None], np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    _counts: dict[tuple[int, int, Size | None], Counter[int]] = field(default_factory=dict, compare=False, repr=False)
    _groups: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    _links: dict[Size, Links] = field(default_factory=dict, compare=False, repr=False)
    _tiles: dict[tuple[int, int], WeightTiles] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def structure(self) -> Hashable:
        """A hashable value of all that tilings depend on, except places of tensors and scratch size."""
        layer, core, consts = self.layer, self.layer.core, self.consts
        return (type(core), core.window, core.size, core.input.size, self.input_tiles, self.output_tiles,
                layer.output.size, layer.pool.window if layer.pool else None, simd_instructions(layer), len(layer.adds),
                layer.multiplies, layer.rounding is None, tuple(save.before_pool for save in layer.saves),
                consts.blocks, consts.operands, consts.local_vectors, consts.scales, consts.scale_size, self.share)

    @property
    def streams(self) -> Hashable:
        """A hashable value that says which tensors go through which DRAM.

        Costs depend only on this and on :attr:`structure`."""
        return (self.input_is_resident, self.weights_are_resident, self.factors_are_resident, len(self.streamed_adds),
                tuple(save.before_pool for save in self.streamed_outputs),
                tuple(self.odd_tiles(var) for var in (*self.layer.inputs, *self.layer.outputs)))

    def odd_tiles(self, var: Var) -> int:
        """Return how many channel tiles of a Var lie in DRAM1."""
        if var.root in self.elsewhere:
            return var.tiles(self.arch.array_size)
        return var.odd_tiles(self.arch.array_size) if var.root in self.spread else 0

    def spreading(self, root: Var) -> LayerShape:
        """Return the shape with a Var striped over both DRAMs, or in DRAM1 if it has only one channel tile."""
        if root.tiles(self.arch.array_size) == 1:
            return replace(self, elsewhere=self.elsewhere | {root.name})
        return replace(self, spread=self.spread | {root.name})

    @cached_property
    def input_tiles(self) -> int:
        """The number of channel tiles of the core's input."""
        return self.layer.core.input.tiles(self.arch.array_size)

    @cached_property
    def box(self) -> Box:
        """The box of the layer's output that is computed: the share, or all of it."""
        height, width = self.layer.output.size
        return self.share or Box((0, self.layer.output.tiles(self.arch.array_size)), (0, height), (0, width))

    @cached_property
    def output_tiles(self) -> int:
        """The number of channel tiles that are computed."""
        return self.box.tiles[1] - self.box.tiles[0]

    @cached_property
    def output_size(self) -> Size:
        """The rows and columns of the output that are computed."""
        return self.box.size

    @cached_property
    def output_pixels(self) -> int:
        """The pixels of the output that are computed."""
        return self.box.pixels

    @cached_property
    def core_pixels(self) -> int:
        """The pixels of the core's result that are computed."""
        return math.prod(self.layer.core.size) if self.share is None else self.core_region(self.share).pixels

    @cached_property
    def part(self) -> float:
        """The number of the output's channel tiles that are computed, 1 for all."""
        return 1 if self.share is None else self.output_tiles / self.layer.output.tiles(self.arch.array_size)

    @cached_property
    def input_part(self) -> float:
        """The number of the input's channel tiles that are read, 1 for all."""
        if self.share is None or self.loads:
            return self.part
        return len({number for block in self.blocks for number, tiles in enumerate(block.tiles)
                    if tiles}) / self.input_tiles

    @cached_property
    def blocks(self) -> tuple[OutputBlock, ...]:
        """The weights of the channel tiles that are computed."""
        return self.consts.blocks[slice(*self.box.tiles)]

    @property
    def loads(self) -> bool:
        """Whether the core is a load; then each output channel tile is made of the same input channel tile."""
        return isinstance(self.layer.core, Load)

    @property
    def tiles(self) -> WeightTiles:
        """The layer's weight tiles, the same object wherever its Vars lie."""
        if self.box.tiles not in self._tiles:
            self._tiles[self.box.tiles] = WeightTiles(self.blocks, self.layer.core.window)
        return self._tiles[self.box.tiles]

    @property
    def most_taps(self) -> int:
        """The most weight tiles that any output channel tile has for one input channel tile."""
        return self.tiles.most_taps

    @cached_property
    def overhang(self) -> int:
        """Vectors of accumulators after a depthwise layer's results, as results not written have addresses too."""
        return self.arch.row_taps - 1 if self.tiles.depthwise else 0

    @property
    def lag(self) -> int:
        """Vectors by which results of a depthwise pass lie behind its input, if both sides are padded alike."""
        return self.overhang // 2

    @cached_property
    def inside(self) -> float:
        """The share of the kernel's taps, over all pixels, that fall into the image."""
        core = self.layer.core
        return core.window.work(core.input.size, core.size) / (math.prod(core.window.kernel) * math.prod(core.size))

    @cached_property
    def weight_total(self) -> int:
        """The vectors of all weights and biases."""
        return sum(block.size for block in self.blocks)

    @cached_property
    def scale_total(self) -> int:
        """The vectors that LoadScale reads for all output channel tiles."""
        start, end = self.consts.scale_piece(self.box.tiles)
        return end - start

    @cached_property
    def scale_vectors(self) -> np.ndarray:
        """The most vectors that LoadScale reads for any n adjacent output channel tiles.

        Entry n of [output channel tiles + 1]; 0 on machines without LoadScale."""
        places = np.array(self.consts.scales[slice(*self.box.tiles)], np.int64)
        sizes = [int((places[size - 1:] - places[:len(places) - size + 1]).max(initial=0)) + self.consts.scale_size
                 for size in range(1, len(places) + 1)]
        return np.array([0, *(sizes or [0] * self.output_tiles)], np.int64)

    @cached_property
    def input_is_resident(self) -> bool:
        """Whether the core's input is pinned in local memory."""
        return self.layer.core.input.root in self.resident

    @cached_property
    def streamed_outputs(self) -> tuple[Save, ...]:
        """The outputs that are written to DRAM."""
        return tuple(save for save in self.layer.saves if save.var.root not in self.resident)

    def written(self, core_pixels: Any, output_pixels: Any) -> Any:
        """Return the vectors of one channel tile written to DRAM, given the pixels of core result and output.

        Takes numbers, or arrays of any shape."""
        return sum(core_pixels if save.before_pool else output_pixels for save in self.streamed_outputs)

    def left(self, core_pixels: Any, output_pixels: Any) -> Any:
        """Return the vectors of one channel tile that are requantized, given the pixels of core result and output.

        Takes numbers, or arrays of any shape."""
        rounded = 0 if self.layer.rounding is None else core_pixels
        return rounded + sum(core_pixels if save.before_pool else output_pixels for save in self.layer.saves)

    @cached_property
    def weights_are_resident(self) -> bool:
        """Whether the weights are a Var that is pinned in local memory."""
        return isinstance(self.layer.core, Product) and self.layer.core.weights.root in self.resident

    @cached_property
    def factors_are_resident(self) -> bool:
        """Whether the computed factors of each channel are pinned in local memory."""
        return self.layer.factors is not None and self.layer.factors.root in self.resident

    @cached_property
    def streamed_adds(self) -> tuple[Var, ...]:
        """The further inputs (Add, Multiply) that are read from DRAM."""
        return tuple(add.input for add in self.layer.adds if add.input.root not in self.resident)

    @cached_property
    def most_pooled(self) -> Size:
        """The most rows and columns of the core's result that one output pixel needs."""
        rows, columns = (max(high - low for low, high in self._core_spans(axis, Grain(1, 1))) for axis in range(2))
        return rows, columns

    # -- regions ---------------------------------------------------------------------------------------------------
    def core_region(self, region: Box) -> Box:
        """Return the box of the core's result that an output tile needs."""
        pool = self.layer.pool
        if pool is None:
            return region
        rows, columns = (pool.window.inputs(axis, *span, self.layer.core.size[axis])
                         for axis, span in enumerate((region.rows, region.columns)))
        return Box(region.tiles, rows, columns)

    def core_parts(self, region: Box, part: Size | None) -> list[Box]:
        """Return the boxes of the core's result for an output tile, of at most ``part`` (rows, columns) each.

        Parts that the pool does not read are left out. Only the box of a single output pixel may be cut."""
        core, pool = self.core_region(region), self.layer.pool
        if part is None or pool is None:
            return [core]
        corner = region.rows[0], region.columns[0]
        rows, columns = ([piece for piece in groups(high, part[axis], low)
                          if pool.window.reads(axis, corner[axis], piece)]
                         for axis, (low, high) in enumerate((core.rows, core.columns)))
        return [Box(region.tiles, *spans) for spans in itertools.product(rows, columns)]

    def input_region(self, core: Box, inputs: tuple[int, int], taps: tuple[int, int]) -> Box:
        """Return the input tile that ``core``, a box of the core's result, needs.

        It is for the weight tiles ``taps`` of the input channel tiles ``inputs`` (both half open)."""
        first = self.box.tiles[0]
        source, window = self.layer.core, self.tiles.window_of((core.tiles[0] - first, core.tiles[1] - first), inputs,
                                                               taps)
        if window is None:
            return Box(inputs, (0, 0), (0, 0))
        rows, columns = (window.inputs(axis, *span, source.input.size[axis])
                         for axis, span in enumerate((core.rows, core.columns)))
        return Box(inputs, rows, columns)

    def regions(self, grain: Grain) -> Iterator[Box]:
        """Yield the output tiles, row by row."""
        box = self.box
        for rows, columns in itertools.product(groups(box.rows[1], grain.rows, box.rows[0]),
                                               groups(box.columns[1], grain.columns, box.columns[0])):
            yield box.within(rows, columns)

    def cuts(self, grains: Sequence[Grain], groups: Sequence[tuple[int, int, int]]) -> np.ndarray:
        """Return float64 [grains, groups, fields]: the :class:`Cut` that each grain leads to.

        In a step of a group are so many output and input channel tiles, and weight tiles of each pair."""
        kinds = [(min(group[2], self.tiles.alike), *((0, 0, 0) if self.tiles.is_whole(group[2]) else group))
                 for group in groups]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        found = np.array([[self._cut(grain, *kind) for kind in numbers] for grain in grains], np.float64)
        return found.reshape(len(grains), len(numbers), len(Cut._fields))[:, [numbers[kind] for kind in kinds]]

    def _cut(self, grain: Grain, alike: int, *steps: int) -> Cut:
        """Return the sizes that a ``grain`` leads to in ``steps`` of a group, all 0 for the whole kernel; cached.

        ``alike`` weight tiles share a load."""
        key: tuple[Grain | int, ...] = (grain, alike, *steps)
        if key not in self._cuts:
            core = _Lengths(*(self._lengths(axis, grain) for axis in range(2)))
            if steps not in self._parts:
                self._parts[steps] = self.tiles.parts(*steps) if any(steps) else self.tiles.everything
            parts = self._parts[steps]
            rows, columns = ([self._input_tile(axis, grain, parts.spans[axis][place]) for place in parts.chosen[axis]]
                             for axis in range(2))
            load = load_cycles(self.tiles.kernel_rows, self.arch) if self.tiles.depthwise else load_weight_cycles(
                self.arch, self.arch.array_size + 1)
            self._cuts[key] = Cut(core.regions, core.largest, core.total,
                                  max(height[0] * width[0] for height, width in zip(rows, columns, strict=True)),
                                  sum(height[1] * width[1] for height, width in zip(rows, columns, strict=True)),
                                  core.cycles(load + LOAD_OVERHEAD_CYCLES, TILE_OVERHEAD_CYCLES + self.lag, alike))
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
            self._spans[key] = np.array(self._core_spans(axis, grain), np.int64).reshape(-1, 2)
        return self._spans[key]

    def _input_tile(self, axis: int, grain: Grain, taps: tuple[int, int]) -> tuple[int, int]:
        """Return the input pixels along one axis that ``taps`` (half open) of the kernel need.

        The result, which is cached, is (the most of any output tile, the sum over all output tiles)."""
        key = axis, grain.size[axis], grain.part, taps
        if key not in self._input_tiles:
            core = self.layer.core
            window = core.window.only([(taps[0],) * 2, (taps[1],) * 2])
            low, high = self._ranges(axis, grain).T
            counts = window.input_counts(axis, low, high, core.input.size[axis])
            self._input_tiles[key] = int(counts.max()), int(counts.sum())
        return self._input_tiles[key]

    def _core_spans(self, axis: int, grain: Grain) -> list[tuple[int, int]]:
        """Return the ranges of the core's pixels along one axis, for each output tile and part."""
        low, high = (self.box.rows, self.box.columns)[axis]
        found = groups(high, grain.size[axis], low)
        pool, size = self.layer.pool, self.layer.core.size[axis]
        if pool is not None:
            found = [pool.window.inputs(axis, *span, size) for span in found]
        if grain.part is None:
            return found
        return [piece for low, high in found for piece in groups(high, grain.part[axis], low)]

    def links(self, outputs: int, inputs: int) -> Links:
        """Return how many groups of ``outputs`` and ``inputs`` channel tiles have work between them; cached."""
        if self.loads:
            return Links(part_count(self.output_tiles, outputs), 1)
        if (outputs, inputs) not in self._links:
            self._links[outputs, inputs] = self.tiles.links(outputs, inputs)
        return self._links[outputs, inputs]

    def weight_vectors(self, outputs: int, inputs: int, taps: int) -> int:
        """Return the most vectors of weights and biases that a step loads, for groups of these sizes."""
        if self.loads:
            return 0
        if (inputs, taps) not in self._groups:
            sizes = self.tiles.vectors(inputs, taps)
            self._groups[inputs, taps] = np.concatenate([np.zeros_like(sizes[:1]), np.cumsum(sizes, axis=0)])
        before = self._groups[inputs, taps]  # [output channel tiles + 1, steps]: the vectors of all tiles before
        return int(np.diff(before[[*range(0, len(before) - 1, outputs), -1]], axis=0).max())


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
