# SPDX-License-Identifier: Apache-2.0
"""A layer as tiling and scheduler see it: channel tiles and pixels, places of its tensors, sizes of its parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from weft.compiler.layers.beside import simd_instructions
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Load, Product, Save
from weft.compiler.layers.var import Var
from weft.compiler.quantize.consts import LayerConsts
from weft.compiler.quantize.weights import OutputBlock
from weft.compiler.tiling.cuts import Cut, Cuts, Grain, core_spans
from weft.compiler.tiling.spans import Box, groups, part_count
from weft.compiler.tiling.weight_tiles import Links, WeightTiles
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Size


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
    _cuts: dict[Box, Cuts] = field(default_factory=dict, compare=False, repr=False)
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
        spans = (core_spans(self.layer, self.box, axis, Grain(1, 1)) for axis in range(2))
        rows, columns = (max(high - low for low, high in one) for one in spans)
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
        made = self._own_cuts
        found = np.array([[made.cut(grain, *kind) for kind in numbers] for grain in grains], np.float64)
        return found.reshape(len(grains), len(numbers), len(Cut._fields))[:, [numbers[kind] for kind in kinds]]

    @property
    def _own_cuts(self) -> Cuts:
        """The cuts of the box that is computed, the same object wherever the layer's Vars lie."""
        if self.box not in self._cuts:
            self._cuts[self.box] = Cuts(self.layer, self.box, self.tiles, self.arch, self.lag)
        return self._cuts[self.box]

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
