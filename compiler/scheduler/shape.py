"""A layer as the scheduler sees it: tiles and pixels, where its tensors lie, and what its parts need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from weft.compiler.layers.hir import Layer, Load
from weft.compiler.memory.consts import LayerConsts
from weft.compiler.scheduler.spans import Box, groups
from weft.hw.arch import Arch

TILE_OVERHEAD_CYCLES = 6
"""What a weight tile costs beyond its vectors: decoding its instructions."""


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
    _cuts: dict[tuple[int, int], Cut] = field(default_factory=dict, compare=False, repr=False)
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
    def weight_total(self) -> int:
        """Vectors of all weights and biases."""
        return sum(block.size for block in self.consts.blocks)

    @cached_property
    def input_is_resident(self) -> bool:
        return self.layer.core.input.root in self.resident

    @cached_property
    def output_is_resident(self) -> bool:
        return self.layer.output.root in self.resident

    @cached_property
    def streamed_adds(self) -> int:
        """Residuals that come from DRAM0."""
        return sum(add.input.root not in self.resident for add in self.layer.adds)

    # -- regions ---------------------------------------------------------------------------------------------------
    def core_region(self, region: Box) -> Box:
        """Pixels of the core's result that a region of the layer's output needs."""
        pool = self.layer.pool
        if pool is None:
            return region
        rows, columns = (pool.window.inputs(axis, *span, self.layer.core.size[axis])
                         for axis, span in enumerate((region.rows, region.columns)))
        return Box(region.tiles, rows, columns)

    def input_region(self, core: Box, tiles: tuple[int, int]) -> Box:
        """Pixels of the core's input that a region of its result needs."""
        source = self.layer.core
        rows, columns = (source.window.inputs(axis, *span, source.input.size[axis])
                         for axis, span in enumerate((core.rows, core.columns)))
        return Box(tiles, rows, columns)

    def regions(self, rows: int, columns: int) -> Iterator[Box]:
        """The layer's output cut into rows x columns pixels, row by row."""
        height, width = self.layer.output.size
        for top in range(0, height, rows):
            for left in range(0, width, columns):
                yield Box((0, self.output_tiles), (top, min(top + rows, height)), (left, min(left + columns, width)))

    def cut(self, rows: int, columns: int) -> Cut:
        """What cutting the output into rows x columns pixels means; remembered."""
        if (rows, columns) not in self._cuts:
            boxes = [self.core_region(region) for region in self.regions(rows, columns)]
            core = [box.pixels for box in boxes]
            strips = [self.input_region(box, (0, 1)).pixels for box in boxes]
            load = self.arch.array_size + 1
            array = sum(max(pixels, load) + TILE_OVERHEAD_CYCLES for pixels in core)
            self._cuts[rows, columns] = Cut(len(boxes), max(core), sum(core), max(strips), sum(strips), array)
        return self._cuts[rows, columns]

    def _sizes(self, inputs: tuple[int, int], taps: tuple[int, int]) -> list[int]:
        """Vectors of one choice of weights, by output tile."""
        return [end - start for start, end in (block.piece(inputs, taps) for block in self.consts.blocks)]

    def weight_vectors(self, outputs: int, inputs: int, taps: int) -> int:
        """The most vectors of weights and biases that a step needs, for groups of these sizes; remembered."""
        key = (outputs, inputs, taps)
        if key not in self._weights:
            self._weights[key] = max((sum(sizes[slice(*out)]) for into in groups(self.input_tiles, inputs)
                                      for part in groups(self.most_taps, taps) for sizes in [self._sizes(into, part)]
                                      for out in groups(self.output_tiles, outputs)), default=0)
        return self._weights[key]
