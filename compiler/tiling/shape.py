"""A layer as the scheduler sees it: tiles and pixels, where its tensors lie, and what its parts need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compiler.layers.hir import Layer, Load, Product, Saved
from weft.compiler.quantize.consts import LayerConsts
from weft.compiler.tiling.spans import Box, groups
from weft.hw.contract.arch import Arch
from weft.runtime.window import Size, Window

TILE_OVERHEAD_CYCLES = 2
"""What a weight tile costs beyond its vectors: decoding its instructions."""

LOAD_OVERHEAD_CYCLES = 8
"""What loading a weight tile costs beyond its rows: reading local memory, and waiting for the last tile's start."""


class Grain(NamedTuple):
    """How finely pixels are cut: the output into regions of ``rows`` x ``columns``; for each of them the core's result
    into ``part`` (None: whole), for a max pool whose window alone is too much."""

    rows: int
    columns: int
    part: Size | None = None

    @property
    def size(self) -> Size:
        """Of a region."""
        return self.rows, self.columns


@dataclass(frozen=True)
class Cut:
    """The output cut into regions: pixels of the core's result and of one channel tile of its input.

    ``array`` is the modelled cycles of one weight tile over all regions: its pixels, or its own load where that
    takes longer.
    """

    regions: int
    core_largest: int
    core_total: int
    strip_largest: int
    strip_total: int
    array: int


@dataclass(frozen=True)
class LayerShape:
    """``resident`` names the Vars that lie in local memory; ``scratch`` vectors of local memory are the layer's own."""

    layer: Layer
    consts: LayerConsts
    arch: Arch
    resident: frozenset[str]
    scratch: int
    _cuts: dict[tuple[Grain, int, int, int], Cut] = field(default_factory=dict, compare=False, repr=False)
    _kernels: dict[tuple[int, int, int], tuple[Window, ...]] = field(default_factory=dict, compare=False, repr=False)
    _weights: dict[tuple[int, int, int], int] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def input_tiles(self) -> int:
        return self.layer.core.input.tiles(self.arch.array_size)

    @cached_property
    def output_tiles(self) -> int:
        return self.layer.output.tiles(self.arch.array_size)

    @property
    def loads(self) -> bool:
        """Whether the core is a load: then output tile and input tile are the same thing."""
        return isinstance(self.layer.core, Load)

    @cached_property
    def most_taps(self) -> int:
        """The most weight tiles that any output tile has for one input tile."""
        return max((block.most_taps for block in self.consts.blocks), default=1) or 1

    @cached_property
    def weight_tile_count(self) -> int:
        return sum(len(tiles) for block in self.consts.blocks for tiles in block.tiles)

    @cached_property
    def inside(self) -> float:
        """The share of the kernel's taps, over all pixels, that fall into the image."""
        core = self.layer.core
        return core.window.work(core.input.size, core.size) / (math.prod(core.window.kernel) * math.prod(core.size))

    @cached_property
    def weight_total(self) -> int:
        """Vectors of all weights and biases."""
        return sum(block.size for block in self.consts.blocks)

    @cached_property
    def input_is_resident(self) -> bool:
        return self.layer.core.input.root in self.resident

    @cached_property
    def streamed_outputs(self) -> tuple[Saved, ...]:
        """Outputs that go to DRAM0."""
        return tuple(save for save in self.layer.saves if save.var.root not in self.resident)

    def written(self, core_pixels: int, output_pixels: int) -> int:
        """Vectors of one channel tile that go to DRAM0, for so many pixels of the core's result and of the output."""
        return sum(core_pixels if save.before_pool else output_pixels for save in self.streamed_outputs)

    @cached_property
    def weights_are_vars(self) -> bool:
        """Whether they come from DRAM0, or are resident, instead of from DRAM1."""
        return isinstance(self.layer.core, Product)

    @cached_property
    def weights_are_resident(self) -> bool:
        return isinstance(self.layer.core, Product) and self.layer.core.weights.root in self.resident

    @cached_property
    def streamed_adds(self) -> int:
        """Residuals that come from DRAM0."""
        return sum(add.input.root not in self.resident for add in self.layer.adds)

    @cached_property
    def most_pooled(self) -> Size:
        """Rows and columns of the core's result that one output pixel may need."""
        rows, columns = (max(high - low for low, high in self._core_spans(axis, Grain(1, 1))) for axis in range(2))
        return rows, columns

    # -- regions ---------------------------------------------------------------------------------------------------
    def core_region(self, region: Box) -> Box:
        """Pixels of the core's result that a region of the layer's output needs."""
        pool = self.layer.pool
        if pool is None:
            return region
        rows, columns = (pool.window.inputs(axis, *span, self.layer.core.size[axis])
                         for axis, span in enumerate((region.rows, region.columns)))
        return Box(region.tiles, rows, columns)

    def core_parts(self, region: Box, part: Size | None) -> list[Box]:
        """The core's pixels for a region, cut into parts that each have some that the pool reads. Only the region of
        a single pixel may be cut."""
        core, pool = self.core_region(region), self.layer.pool
        if part is None or pool is None:
            return [core]
        corner = region.rows[0], region.columns[0]
        rows, columns = ([piece for piece in groups(high, part[axis], low)
                          if pool.window.reads(axis, corner[axis], piece)]
                         for axis, (low, high) in enumerate((core.rows, core.columns)))
        return [Box(region.tiles, *spans) for spans in itertools.product(rows, columns)]

    def input_region(self, core: Box, inputs: tuple[int, int], taps: tuple[int, int]) -> Box:
        """Pixels of the core's input that a region of its result needs for some weights."""
        source, window = self.layer.core, self._window(core.tiles, inputs, taps)
        if window is None:
            return Box(inputs, (0, 0), (0, 0))
        rows, columns = (window.inputs(axis, *span, source.input.size[axis])
                         for axis, span in enumerate((core.rows, core.columns)))
        return Box(inputs, rows, columns)

    def _window(self, outputs: tuple[int, int], inputs: tuple[int, int], taps: tuple[int, int]) -> Window | None:
        """The part of the kernel that some weights are; None when there are none among them."""
        window = self.layer.core.window
        if self._is_whole_kernel(taps[1] - taps[0]):
            return window
        chosen = {tile.tap for block in self.consts.blocks[slice(*outputs)] for tile in block.chosen(inputs, taps)}
        return window.only(chosen) if chosen else None

    def _is_whole_kernel(self, taps: int) -> bool:
        """Whether so many weight tiles of an input tile are every tap, as far as any output tile has that many."""
        return taps >= self.most_taps == len(self.layer.core.window.taps())

    def _windows(self, outputs: int, inputs: int, taps: int) -> tuple[Window, ...]:
        """All parts of the kernel that come up in steps of so many output, input and weight tiles; remembered."""
        if self._is_whole_kernel(taps):
            return (self.layer.core.window,)
        key = outputs, inputs, taps
        if key not in self._kernels:
            found = (self._window(out, into, part) for out in groups(self.output_tiles, outputs)
                     for into in groups(self.input_tiles, inputs) for part in groups(self.most_taps, taps))
            self._kernels[key] = tuple(dict.fromkeys(window for window in found if window is not None))
        return self._kernels[key] or (self.layer.core.window,)

    def regions(self, grain: Grain) -> Iterator[Box]:
        """The layer's output cut into regions, row by row."""
        height, width = self.layer.output.size
        for rows, columns in itertools.product(groups(height, grain.rows), groups(width, grain.columns)):
            yield Box((0, self.output_tiles), rows, columns)

    def cut(self, grain: Grain, outputs: int, inputs: int, taps: int) -> Cut:
        """What cutting pixels like this means, for groups of output, input and weight tiles; remembered."""
        key = (grain, 0, 0, taps) if self._is_whole_kernel(taps) else (grain, outputs, inputs, taps)
        if key not in self._cuts:
            axes = [self._core_spans(axis, grain) for axis in range(2)]
            core = _pixels(*axes)
            strips = [_pixels(*([window.inputs(axis, *span, self.layer.core.input.size[axis]) for span in axes[axis]]
                                for axis in range(2))) for window in self._windows(outputs, inputs, taps)]
            load = self.arch.array_size + 1 + LOAD_OVERHEAD_CYCLES
            array = (np.maximum(core, load) + TILE_OVERHEAD_CYCLES).sum()
            self._cuts[key] = Cut(core.size, int(core.max()), int(core.sum()),
                                  max(int(strip.max()) for strip in strips),
                                  sum(int(strip.sum()) for strip in strips), int(array))
        return self._cuts[key]

    def _core_spans(self, axis: int, grain: Grain) -> list[tuple[int, int]]:
        """Pixels of the core's result along one axis, region by region and part by part."""
        found = groups(self.layer.output.size[axis], grain.size[axis])
        pool, size = self.layer.pool, self.layer.core.size[axis]
        if pool is not None:
            found = [pool.window.inputs(axis, *span, size) for span in found]
        if grain.part is None:
            return found
        return [piece for low, high in found for piece in groups(high, grain.part[axis], low)]

    def _sizes(self, inputs: tuple[int, int], taps: tuple[int, int]) -> list[int]:
        """Vectors of one choice of weights, by output tile."""
        return [end - start for start, end in (block.piece(inputs, taps) for block in self.consts.blocks)]

    def weight_vectors(self, outputs: int, inputs: int, taps: int) -> int:
        """The most vectors of weights and biases that a step loads, for groups of these sizes; remembered."""
        if self.loads or self.weights_are_resident:
            return 0
        key = (outputs, inputs, taps)
        if key not in self._weights:
            self._weights[key] = max((sum(sizes[slice(*out)]) for into in groups(self.input_tiles, inputs)
                                      for part in groups(self.most_taps, taps) for sizes in [self._sizes(into, part)]
                                      for out in groups(self.output_tiles, outputs)), default=0)
        return self._weights[key]


def _pixels(rows: list[tuple[int, int]], columns: list[tuple[int, int]]) -> np.ndarray:
    """[rows, columns]: how many pixels each pair of half-open ranges spans."""
    heights, widths = ([high - low for low, high in axis] for axis in (rows, columns))
    return np.outer(heights, widths)
