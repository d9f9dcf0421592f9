"""A layer as the scheduler sees it: tiles and pixels, where its tensors lie, and what its parts need."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from weft.tmodel.window import Size

from weft.compiler.layers.hir import Layer, Load, Product, Saved, Var
from weft.compiler.layers.taps import load_cycles
from weft.compiler.quantize.consts import LayerConsts
from weft.compiler.tiling.spans import Box, groups, part_count
from weft.compiler.tiling.weight_tiles import Links, Parts, WeightTiles
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import load_weight_cycles

TILE_OVERHEAD_CYCLES = 2
"""What a weight tile costs beyond its vectors: decoding its instructions."""

LOAD_OVERHEAD_CYCLES = 8
"""What loading a weight tile may cost beyond its rows. It begins in the cycle behind the last tile's start, but waits
for banks of local memory that others use. With 1 a tile that just outlasts its load is taken for as good as one twice
as long: a layer of 8 x 8 pixels on 32 lanes takes 48 % more cycles."""


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


class Cut(NamedTuple):
    """The output cut into regions: pixels of the core's result and of one channel tile of its input.

    ``array`` is the modelled cycles of one weight tile over all regions: its pixels, or its own load where that
    takes longer; of tiles that share a load, the average.
    """

    regions: int
    core_largest: int
    core_total: int
    strip_largest: int
    strip_total: int
    array: float


@dataclass(frozen=True)
class LayerShape:
    """``resident`` names the Vars that lie in local memory, ``spread`` those whose odd channel tiles lie in DRAM1;
    ``scratch`` vectors of local memory are the layer's own."""

    layer: Layer
    consts: LayerConsts
    arch: Arch
    resident: frozenset[str]
    scratch: int
    spread: frozenset[str] = frozenset()
    form: int = 0
    """Layers of one form have the same candidates; see :attr:`structure`."""
    _cuts: dict[tuple[Grain, int, int, int], Cut] = field(default_factory=dict, compare=False, repr=False)
    _parts: dict[tuple[int, int, int], Parts] = field(default_factory=dict, compare=False, repr=False)
    _strips: dict[tuple[int, int, Size | None, Size], tuple[int, int]] = field(default_factory=dict, compare=False,
                                                                             repr=False)
    _groups: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    _links: dict[Size, Links] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def structure(self) -> Hashable:
        """All that tilings depend on, but for where tensors lie and for the scratch."""
        layer, core, consts = self.layer, self.layer.core, self.consts
        return (type(core), core.window, core.size, core.input.size, self.input_tiles, self.output_tiles,
                layer.output.size, layer.pool.window if layer.pool else None, len(layer.adds), layer.multiplies,
                layer.rounding is None, tuple(save.before_pool for save in layer.saves), consts.blocks, consts.operands,
                consts.local_vectors, consts.scales, consts.scale_size)

    @property
    def streams(self) -> Hashable:
        """Which tensors go through which DRAM. Costs depend on this and on ``structure``, and on nothing else."""
        return (self.input_is_resident, self.weights_are_resident, self.factors_are_resident, len(self.streamed_adds),
                tuple(save.before_pool for save in self.streamed_outputs),
                tuple(self.odd_tiles(var) for var in (*self.layer.inputs, *self.layer.outputs)))

    def odd_tiles(self, var: Var) -> int:
        """How many channel tiles of a Var lie in DRAM1."""
        return var.odd_tiles(self.arch.array_size) if var.root in self.spread else 0

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
    def tiles(self) -> WeightTiles:
        return WeightTiles(self.consts.blocks, self.layer.core.window)

    @property
    def most_taps(self) -> int:
        """The most weight tiles that any output tile has for one input tile."""
        return self.tiles.most_taps

    @cached_property
    def weight_tile_count(self) -> int:
        return sum(len(tiles) for block in self.consts.blocks for tiles in block.tiles)

    @cached_property
    def overhang(self) -> int:
        """Vectors of accumulators behind a depthwise layer's results: results that are not written have addresses."""
        return self.arch.depthwise_taps - 1 if self.tiles.depthwise else 0

    @property
    def lag(self) -> int:
        """Vectors by which a depthwise pass's results lie behind its input, of a kernel padded alike on both sides."""
        return self.overhang // 2

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
    def scale_total(self) -> int:
        """Vectors of what LoadScale reads for all output tiles."""
        start, end = self.consts.scale_piece((0, self.output_tiles))
        return end - start

    @cached_property
    def scale_vectors(self) -> np.ndarray:
        """[output tiles + 1]: entry n is the most vectors that LoadScale reads for any n output tiles side by side;
        0 where results have no scales."""
        places = np.array(self.consts.scales, np.int64)
        sizes = [int((places[size - 1:] - places[:len(places) - size + 1]).max(initial=0)) + self.consts.scale_size
                 for size in range(1, len(places) + 1)]
        return np.array([0, *(sizes or [0] * self.output_tiles)], np.int64)

    @cached_property
    def input_is_resident(self) -> bool:
        return self.layer.core.input.root in self.resident

    @cached_property
    def streamed_outputs(self) -> tuple[Saved, ...]:
        """Outputs that go to DRAM."""
        return tuple(save for save in self.layer.saves if save.var.root not in self.resident)

    def written(self, core_pixels: Any, output_pixels: Any) -> Any:
        """Vectors of one channel tile that go to DRAM, for so many pixels of the core's result and of the output.
        Takes numbers, or arrays of any shape."""
        return sum(core_pixels if save.before_pool else output_pixels for save in self.streamed_outputs)

    def left(self, core_pixels: Any, output_pixels: Any) -> Any:
        """Vectors of one channel tile that leave the accumulators, for so many pixels; as :meth:`written`."""
        rounded = 0 if self.layer.rounding is None else core_pixels
        return rounded + sum(core_pixels if save.before_pool else output_pixels for save in self.layer.saves)

    @cached_property
    def weights_are_resident(self) -> bool:
        return isinstance(self.layer.core, Product) and self.layer.core.weights.root in self.resident

    @cached_property
    def factors_are_resident(self) -> bool:
        return self.layer.factors is not None and self.layer.factors.root in self.resident

    @cached_property
    def streamed_adds(self) -> tuple[Var, ...]:
        """Residuals that come from DRAM."""
        return tuple(add.input for add in self.layer.adds if add.input.root not in self.resident)

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
        """The core's pixels for a region, cut into parts of at most ``part`` (rows, columns). Parts that the pool does
        not read are left out. Only the region of a single output pixel may be cut."""
        core, pool = self.core_region(region), self.layer.pool
        if part is None or pool is None:
            return [core]
        corner = region.rows[0], region.columns[0]
        rows, columns = ([piece for piece in groups(high, part[axis], low)
                          if pool.window.reads(axis, corner[axis], piece)]
                         for axis, (low, high) in enumerate((core.rows, core.columns)))
        return [Box(region.tiles, *spans) for spans in itertools.product(rows, columns)]

    def input_region(self, core: Box, inputs: tuple[int, int], taps: tuple[int, int]) -> Box:
        """Pixels of the core's input that ``core``, a region of its result, needs for the weight tiles ``taps`` (half
        open) of the input tiles ``inputs`` (half open)."""
        source, window = self.layer.core, self.tiles.window_of(core.tiles, inputs, taps)
        if window is None:
            return Box(inputs, (0, 0), (0, 0))
        rows, columns = (window.inputs(axis, *span, source.input.size[axis])
                         for axis, span in enumerate((core.rows, core.columns)))
        return Box(inputs, rows, columns)

    def regions(self, grain: Grain) -> Iterator[Box]:
        """The layer's output cut into regions, row by row."""
        height, width = self.layer.output.size
        for rows, columns in itertools.product(groups(height, grain.rows), groups(width, grain.columns)):
            yield Box((0, self.output_tiles), rows, columns)

    def cut(self, grain: Grain, outputs: int, inputs: int, taps: int) -> Cut:
        """The sizes that a ``grain`` leads to, where a step takes so many output, input and weight tiles."""
        steps = (0, 0, 0) if self.tiles.is_whole(taps) else (outputs, inputs, taps)
        key = grain, *steps
        if key not in self._cuts:
            core = _Lengths.of(*(self._core_spans(axis, grain) for axis in range(2)))
            if steps not in self._parts:
                self._parts[steps] = self.tiles.parts(*steps) if any(steps) else self.tiles.everything
            found = self._parts[steps]
            rows, columns = (np.array([self._strip(axis, grain, span) for span in found.spans[axis]],
                                      np.int64)[found.chosen[axis]] for axis in range(2))
            load = load_cycles(self.arch) if self.tiles.depthwise else load_weight_cycles(
                self.arch, self.arch.array_size + 1)
            largest, total = (rows * columns).T
            self._cuts[key] = Cut(core.regions, core.largest, core.total, int(largest.max()), int(total.sum()),
                                  core.cycles(load + LOAD_OVERHEAD_CYCLES, TILE_OVERHEAD_CYCLES + self.lag,
                                              min(taps, self.tiles.alike)))
        return self._cuts[key]

    def _strip(self, axis: int, grain: Grain, taps: tuple[int, int]) -> tuple[int, int]:
        """Pixels of the core's input along one axis that the ``taps`` (half open) of the kernel need: (the most of any
        region, the sum over all regions). Remembered."""
        key = axis, grain.size[axis], grain.part, taps
        if key not in self._strips:
            core = self.layer.core
            window = core.window.only([(taps[0],) * 2, (taps[1],) * 2])
            lengths = [high - low for low, high in (window.inputs(axis, *span, core.input.size[axis])
                                                    for span in self._core_spans(axis, grain))]
            self._strips[key] = max(lengths), sum(lengths)
        return self._strips[key]

    def _core_spans(self, axis: int, grain: Grain) -> list[tuple[int, int]]:
        """Pixels of the core's result along one axis, region by region and part by part."""
        found = groups(self.layer.output.size[axis], grain.size[axis])
        pool, size = self.layer.pool, self.layer.core.size[axis]
        if pool is not None:
            found = [pool.window.inputs(axis, *span, size) for span in found]
        if grain.part is None:
            return found
        return [piece for low, high in found for piece in groups(high, grain.part[axis], low)]

    def links(self, outputs: int, inputs: int) -> Links:
        """Of groups of so many output tiles and input tiles. Remembered."""
        if self.loads:
            return Links(part_count(self.output_tiles, outputs), 1)
        if (outputs, inputs) not in self._links:
            self._links[outputs, inputs] = self.tiles.links(outputs, inputs)
        return self._links[outputs, inputs]

    def weight_vectors(self, outputs: int, inputs: int, taps: int) -> int:
        """The most vectors of weights and biases that a step loads, for groups of these sizes."""
        if self.loads:
            return 0
        if (inputs, taps) not in self._groups:
            self._groups[inputs, taps] = self.tiles.vectors(inputs, taps)
        sizes = self._groups[inputs, taps]
        return int(np.add.reduceat(sizes, np.arange(0, len(sizes), outputs), axis=0).max())


class _Lengths(NamedTuple):
    """A grid of regions: ``rows`` counts the heights, ``columns`` the widths. Each is a size in pixels -> how often."""

    rows: Counter[int]
    columns: Counter[int]

    @classmethod
    def of(cls, rows: list[tuple[int, int]], columns: list[tuple[int, int]]) -> _Lengths:
        """From half-open ranges of either axis."""
        return cls(*(Counter(high - low for low, high in axis) for axis in (rows, columns)))

    @property
    def regions(self) -> int:
        return self.rows.total() * self.columns.total()

    @property
    def largest(self) -> int:
        """Pixels of the largest region."""
        return max(self.rows) * max(self.columns)

    @property
    def total(self) -> int:
        """Pixels of all regions."""
        return math.prod(sum(size * count for size, count in axis.items()) for axis in self)

    def cycles(self, least: int, more: int, alike: int) -> float:
        """Of the array, over all regions, for one weight tile. ``alike`` weight tiles share a load: so a region takes
        its pixels that often, but not less than ``least``, the load of the next ones. ``more`` is added to each."""
        return sum((max(height * width * alike, least) + more) * many * often
                   for height, many in self.rows.items() for width, often in self.columns.items()) / alike
