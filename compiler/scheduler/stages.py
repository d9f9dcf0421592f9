"""Stages of a layer: regions of its output x groups of output tiles, each in steps over groups of input tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.compiler.scheduler.shape import LayerShape
from weft.compiler.scheduler.spans import Box, groups
from weft.compiler.scheduler.tiling import Tiling


@dataclass(frozen=True)
class Step:
    """What is loaded and computed together. ``stage`` numbers the accumulators' content; the ``last`` step saves.

    ``region`` is in pixels of the layer's output and has the output tiles; ``inputs`` and ``taps`` are half open.
    """

    stage: int
    region: Box
    inputs: tuple[int, int]
    taps: tuple[int, int]
    last: bool


def layer_steps(shape: LayerShape, tiling: Tiling) -> list[Step]:
    """All steps in loop order; those without any weights are left out."""
    steps: list[Step] = []
    for stage, region in enumerate(_stages(shape, tiling)):
        parts = [part for part in _parts(shape, tiling, region) if shape.loads or _has_work(shape, region, *part)]
        steps += [Step(stage, region, *part, last=part == parts[-1]) for part in parts]
    return steps


def _stages(shape: LayerShape, tiling: Tiling) -> Iterator[Box]:
    regions = list(shape.regions(tiling.rows, tiling.columns))
    outputs = groups(shape.output_tiles, tiling.outputs)
    if tiling.outputs_outer:
        yield from (Box(tiles, region.rows, region.columns) for tiles in outputs for region in regions)
    else:
        yield from (Box(tiles, region.rows, region.columns) for region in regions for tiles in outputs)


def _parts(shape: LayerShape, tiling: Tiling, region: Box) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    if shape.loads:
        return [(region.tiles, (0, 1))]
    return [(inputs, taps) for inputs in groups(shape.input_tiles, tiling.inputs)
            for taps in groups(shape.most_taps, tiling.taps)]


def _has_work(shape: LayerShape, region: Box, inputs: tuple[int, int], taps: tuple[int, int]) -> bool:
    blocks = shape.consts.blocks[slice(*region.tiles)]
    return any(block.starts(inputs, taps) or block.chosen(inputs, taps) for block in blocks)
