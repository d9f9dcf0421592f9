# SPDX-License-Identifier: Apache-2.0
"""The steps of a layer: output tiles x groups of output channel tiles, each over groups of input channel tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft.compiler.tiling.candidates import Tiling
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box, groups


class TileStep(NamedTuple):
    """Tiles that are loaded and computed together. Steps with the same ``stage`` add to the same accumulators.

    ``region``: output channel tiles and pixels of the layer's output. ``core``: the same channel tiles, pixels of the
    core's result. ``input_tile``: what the step reads. ``inputs``, ``taps``: input channel tiles and weight
    tiles, half open. ``begins``: it is the first step of these core pixels. ``complete``: it is the last one, after
    which they are whole. ``first``, ``last``: these core pixels are the first and last part of the region that is
    pooled."""

    stage: int
    region: Box
    core: Box
    input_tile: Box
    inputs: tuple[int, int]
    taps: tuple[int, int]
    begins: bool
    complete: bool
    first: bool
    last: bool


def layer_steps(shape: LayerShape, tiling: Tiling) -> list[TileStep]:
    """Return all steps of a layer in the order in which they run, without those whose weight tiles are all empty."""
    steps: list[TileStep] = []
    for stage, region in enumerate(_stages(shape, tiling)):
        weights = [choice for choice in _weights(shape, tiling, region)
                   if shape.loads or _has_work(shape, region, *choice)]
        parts = shape.core_parts(region, tiling.grain.part)
        steps += [TileStep(stage, region, core, shape.input_region(core, *choice), *choice,
                           begins=choice == weights[0], complete=choice == weights[-1],
                           first=core == parts[0], last=core == parts[-1])
                  for core in parts for choice in weights]
    return steps


def _stages(shape: LayerShape, tiling: Tiling) -> Iterator[Box]:
    """Yield the output boxes of a layer in the order of the tiling's loops."""
    regions = list(shape.regions(tiling.grain))
    first, end = shape.box.tiles
    outputs = groups(end, tiling.outputs, first)
    if tiling.outputs_outer:
        yield from (region.of(tiles) for tiles in outputs for region in regions)
    else:
        yield from (region.of(tiles) for region in regions for tiles in outputs)


def _weights(shape: LayerShape, tiling: Tiling, region: Box) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the choices of input channel tiles and weight tiles of a region's steps, in order."""
    if shape.loads:
        return [(region.tiles, (0, 1))]
    return [(inputs, taps) for inputs in groups(shape.input_tiles, tiling.inputs)
            for taps in groups(shape.most_taps, tiling.taps)]


def _has_work(shape: LayerShape, region: Box, inputs: tuple[int, int], taps: tuple[int, int]) -> bool:
    """Tell whether a step has any weight tile, or the bias."""
    blocks = shape.consts.blocks[slice(*region.tiles)]
    return any(block.starts(inputs, taps) or block.chosen(inputs, taps) for block in blocks)
