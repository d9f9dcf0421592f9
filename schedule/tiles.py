# SPDX-License-Identifier: Apache-2.0
"""The tiling of a layer as ``tile_info``: a tile for each stage, which is a region of pixels and output channels."""

from __future__ import annotations

import itertools
from typing import Any

from weft.compiler.scheduler.stages import TileStep, layer_steps
from weft.compiler.tiling.candidates import Tiling
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box as TileBox
from weft.schedule import today
from weft.schedule.boxes import Box, hull
from weft.schedule.dataflow import Work, elements


def tiles_of(shape: LayerShape, tiling: Tiling, work: Work, cycles: int,
             padding: tuple[int, int, int, int]) -> dict[str, today.Tile]:
    """Return the tiles of a workload, by their keys.

    Each takes the share of ``cycles`` that it has of the elements."""
    lanes = shape.arch.array_size
    stages = [list(steps) for _, steps in itertools.groupby(layer_steps(shape, tiling), key=lambda step: step.stage)]
    ofmaps = [elements(steps[0].region, work.output.channels, lanes) for steps in stages]
    total = sum(box.volume for box in ofmaps)
    return {f"tile_num_{number}": _tile(shape, tiling, work, steps, ofmap, cycles * ofmap.volume / total, padding)
            for number, (steps, ofmap) in enumerate(zip(stages, ofmaps, strict=True))}


def _tile(shape: LayerShape, tiling: Tiling, work: Work, steps: list[TileStep], ofmap: Box, cycles: float,
          padding: tuple[int, int, int, int]) -> today.Tile:
    lanes, channels = shape.arch.array_size, shape.layer.core.input.channels
    input_tiles = [elements(step.input_tile, channels, lanes) for step in steps if step.input_tile.vectors]
    ifmap = hull(input_tiles) if input_tiles else elements(shape_input(shape), channels, lanes)
    cut = [letter for letter, size, of in zip("KHW", ofmap.sizes[1:], work.box.sizes[1:], strict=True) if size < of]
    corners: dict[str, Any] = {
        "act_mini_tile": (input_tiles or [ifmap])[0].sizes, "out_mini_tile": ofmap.sizes, "ifmap_lower": ifmap.lower,
        "ifmap_upper": ifmap.upper, "ofmap_lower": ofmap.lower, "ofmap_upper": ofmap.upper}
    return today.Tile(
        **corners, ci_cut_num=-(-shape.input_tiles // tiling.inputs),
        cut_mode="".join(cut) or "N", layer_name=work.output.name,
        loop_order="KNHWC" if tiling.outputs_outer else "NHWKC", mtc0_mtk0=(tiling.inputs, tiling.outputs),
        single_tile_time_pred=float(cycles), tile_padding_tblr=padding)


def shape_input(shape: LayerShape) -> TileBox:
    """Return all of a layer's input."""
    var = shape.layer.core.input
    return TileBox((0, shape.input_tiles), (0, var.height), (0, var.width))
