"""Tiles are searched: every candidate that fits is scored with a small cost model, the cheapest is taken.

The cost counts cycles of the array and of the DRAM channels, as if transfers overlapped with computing where there is
room for two buffers of everything: then the next step's loads run while a step computes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from weft.compiler.errors import CompileError, refuse
from weft.compiler.tiling.shape import Cut, Grain, LayerShape
from weft.compiler.tiling.spans import part_count
from weft.hw.contract.arch import Arch

FINISH_VECTORS = 64
"""Output tiles leave the accumulators together up to this size."""

MOVE_OVERHEAD_CYCLES = 16
"""What a step without MatMuls costs beyond its vectors: decoding its moves, and waiting for each other's ends."""

UNEVEN = 0.05
"""Of every unit's cycles, what does not overlap with the busiest one's."""


@dataclass(frozen=True)
class Tiling:
    """Pixels (``grain``), tiles in a group, buffers of each kind, loop order.

    ``taps`` weight tiles of an input tile are in local memory at a time. With ``outputs_outer`` the groups of output
    tiles are the outer loop and regions the inner one.
    """

    grain: Grain
    outputs: int
    inputs: int
    taps: int
    buffers: int
    weight_slots: int
    outputs_outer: bool

    def to_json(self) -> dict[str, Any]:
        """Flat: the grain's fields stand beside the others."""
        return {**self.grain._asdict(), **{key: value for key, value in vars(self).items() if key != "grain"}}


@dataclass(frozen=True)
class Need:
    """Vectors that a tiling takes: one buffer of each kind, and the totals with all buffers. ``core`` is the part of
    ``accumulators`` that holds the core's result."""

    strip: int
    weights: int
    staging: int
    residual: int
    core: int
    accumulators: int
    local_total: int
    accumulator_total: int


@dataclass(frozen=True)
class Plan:
    """A tiling, what it needs, its modelled cost in cycles, and the runner-up's cost (None: there was none)."""

    tiling: Tiling
    need: Need
    cost: float
    runner_up: float | None


def plan_layer(shape: LayerShape) -> Plan | None:
    """The cheapest tiling, None when nothing fits. Rows are split before columns, and these before the window of a
    pool; groups of output and input channels are searched at each of these. Of equal cost is what splits less."""
    for grains in (_whole_rows, _parts_of_rows, _parts_of_windows):
        scored = sorted((cost(shape, tiling), number, tiling) for number, tiling in
                        enumerate(_candidates(shape, grains(shape), grains is not _whole_rows)) if fits(shape, tiling))
        if scored:
            best, _, tiling = scored[0]
            return Plan(tiling, need(shape, tiling), best, scored[1][0] if len(scored) > 1 else None)
    return None


def _divisions(count: int) -> list[int]:
    """Sizes of equal parts: all, a half, a third, ... one; each once, about a dozen."""
    parts = {math.ceil(count / number) for number in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)}
    return sorted(parts | {1}, reverse=True)


def _halvings(count: int) -> list[int]:
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append(math.ceil(sizes[-1] / 2))
    return sizes


def _whole_rows(shape: LayerShape) -> list[Grain]:
    height, width = shape.layer.output.size
    return [Grain(rows, width) for rows in _divisions(height)]


def _parts_of_rows(shape: LayerShape) -> list[Grain]:
    height, width = shape.layer.output.size
    return [Grain(rows, columns) for rows, columns in itertools.product(_divisions(height), _divisions(width))]


def _parts_of_windows(shape: LayerShape) -> list[Grain]:
    """One pixel of the output, and some of those that its pool reads at a time: rows, or parts of one."""
    if shape.layer.pool is None:
        return []
    rows, columns = shape.most_pooled
    return [Grain(1, 1, part) for part in (*((size, columns) for size in _halvings(rows)),
                                           *((1, size) for size in _halvings(columns)))]


def _candidates(shape: LayerShape, grains: list[Grain], split_taps: bool) -> Iterator[Tiling]:
    """With ``split_taps`` also some taps at a time, of one input tile."""
    inputs = [0] if shape.loads else _halvings(shape.input_tiles)
    for grain, outputs, group in itertools.product(grains, _halvings(shape.output_tiles), inputs):
        for taps in _halvings(shape.most_taps) if split_taps and group == 1 else [shape.most_taps]:
            yield from _buffered(shape, Tiling(grain, outputs, group or outputs, taps, 1, 1, False))


def _buffered(shape: LayerShape, tiling: Tiling) -> Iterator[Tiling]:
    sets = weight_sets(shape, tiling)
    one_region = tiling.grain.size == shape.layer.output.size
    orders = (False,) if one_region or tiling.outputs >= shape.output_tiles else (False, True)
    for buffers in (2, 1):
        for slots in sorted({sets, min(sets, buffers)}):
            for outer in orders:
                yield replace(tiling, buffers=buffers, weight_slots=slots, outputs_outer=outer)


def weight_sets(shape: LayerShape, tiling: Tiling) -> int:
    """How many different sets of weights the steps of a layer use."""
    if shape.loads:
        return 1
    return (part_count(shape.output_tiles, tiling.outputs) * part_count(shape.input_tiles, tiling.inputs)
            * part_count(shape.most_taps, tiling.taps))


def need(shape: LayerShape, tiling: Tiling) -> Need:
    """What a tiling takes of local memory and accumulators."""
    cut = _cut(shape, tiling)
    core_pixels, output_pixels = cut.core_largest, tiling.grain.rows * tiling.grain.columns
    strip = 0 if shape.input_is_resident else cut.strip_largest * tiling.inputs
    weights = shape.weight_vectors(tiling.outputs, tiling.inputs, tiling.taps)
    staging = shape.written(core_pixels, output_pixels) * tiling.outputs
    residual = shape.streamed_adds * core_pixels * tiling.outputs
    second = output_pixels if shape.layer.pool or shape.layer.multiplies else 0
    core, accumulators = core_pixels * tiling.outputs, (core_pixels + second) * tiling.outputs
    buffers = tiling.buffers * (strip + staging + residual) + tiling.weight_slots * weights
    return Need(strip, weights, staging, residual, core, accumulators, max(buffers, shape.consts.local_vectors),
                tiling.buffers * accumulators + shape.consts.operands)


def _cut(shape: LayerShape, tiling: Tiling) -> Cut:
    return shape.cut(tiling.grain, tiling.outputs, tiling.inputs, tiling.taps)


def fits(shape: LayerShape, tiling: Tiling) -> bool:
    taken = need(shape, tiling)
    return taken.local_total <= shape.scratch and taken.accumulator_total <= shape.arch.accumulator_depth


class Traffic(NamedTuple):
    """Vectors of a layer through the array (or into the accumulators), from and to DRAM0, and from DRAM1."""

    array: int
    dram0_read: int
    dram0_write: int
    dram1: int


def cost(shape: LayerShape, tiling: Tiling) -> float:
    """Modelled cycles of the layer: of its busiest unit, or of all one after another where one buffer must do for what
    is loaded and what is used; and what is left at its ends, where units wait for the layer before it or after it."""
    moved = traffic(shape, tiling)
    beats = shape.arch.vector_beats
    reads = (moved.dram0_read + moved.dram1,) if shape.arch.shared_dram else (moved.dram0_read, moved.dram1)
    parts = moved.array, moved.dram0_write * beats, *(read * beats for read in reads)
    busiest = max(parts) + UNEVEN * sum(parts) if tiling.buffers > 1 else sum(parts)
    if 1 < _strips_kept(shape, tiling) <= tiling.buffers and _cut(shape, tiling).regions > 1:
        busiest += moved.dram0_read * beats  # kept strips leave no room for those of the next region
    return busiest + _ends(shape, tiling, beats)


def _ends(shape: LayerShape, tiling: Tiling, beats: float) -> float:
    """Cycles until the first strip is there, and from the last MatMul to the last vector that it made."""
    cut = _cut(shape, tiling)
    first = 0.0 if shape.input_is_resident else cut.strip_largest * tiling.inputs * beats
    last = cut.core_largest * min(tiling.outputs, finished_together(cut.core_largest))
    return first + last * (1 + beats * len(shape.streamed_outputs))


def finished_together(pixels: int) -> int:
    """Output tiles of so many pixels that leave the accumulators together."""
    return part_count(FINISH_VECTORS, max(1, pixels))


def traffic(shape: LayerShape, tiling: Tiling) -> Traffic:
    """What a tiling moves."""
    cut = _cut(shape, tiling)
    read = shape.streamed_adds * cut.core_total * shape.output_tiles
    pixels = (math.prod(part.size) for part in (shape.layer.core, shape.layer.output))
    write = shape.written(*pixels) * shape.output_tiles
    if not shape.input_is_resident:
        read += _strip_loads(shape, tiling) * cut.strip_total * shape.input_tiles
    if shape.loads:
        steps = cut.regions * part_count(shape.output_tiles, tiling.outputs)
        return Traffic(shape.output_tiles * cut.core_total + steps * MOVE_OVERHEAD_CYCLES, read, write, 0)
    weights = 0 if shape.weights_are_resident else shape.weight_total * _weight_loads(shape, tiling)
    loads = (read + weights, write, 0) if shape.weights_are_vars else (read, write, weights)
    return Traffic(shape.weight_tile_count * cut.array, *loads)


def _weight_loads(shape: LayerShape, tiling: Tiling) -> int:
    """How often each weight is read."""
    sets = weight_sets(shape, tiling)
    inner = sets // part_count(shape.output_tiles, tiling.outputs)
    kept = sets if not tiling.outputs_outer else inner
    return 1 if kept <= tiling.weight_slots else _cut(shape, tiling).regions


def _strip_loads(shape: LayerShape, tiling: Tiling) -> int:
    """How often each strip of input is read."""
    if shape.loads:
        return 1
    return 1 if _strips_kept(shape, tiling) <= tiling.buffers else part_count(shape.output_tiles, tiling.outputs)


def _strips_kept(shape: LayerShape, tiling: Tiling) -> int:
    """Strips that have to stay for a group of output tiles to find those of the group before it."""
    return (part_count(shape.input_tiles, tiling.inputs) * part_count(shape.most_taps, tiling.taps)
            * (_cut(shape, tiling).regions if tiling.outputs_outer else 1))


def too_small(shapes: Sequence[LayerShape], arch: Arch) -> CompileError:
    """The error when some layer has no tiling that fits: which memory is too small, and the least that does for all
    layers, which is what the smallest tiles of some layer take."""
    smallest = Tiling(Grain(1, 1, (1, 1)), 1, 1, 1, 1, 1, False)
    needs = [(shape.layer.name, need(shape, smallest)) for shape in shapes]
    local = max((entry.local_total, name) for name, entry in needs)
    accumulators = max((entry.accumulator_total, name) for name, entry in needs)
    lacking = [(key, depth, *least) for key, depth, least in
               (("local_depth", arch.local_depth, local), ("accumulator_depth", arch.accumulator_depth, accumulators))
               if depth < least[0]]
    return refuse(" and ".join(f"{key} for layer {name!r}" for key, _, _, name in lacking),
                  " and ".join(str(depth) for _, depth, _, _ in lacking),
                  " and ".join(f"{key} of at least {least} vectors, its smallest tile" for key, _, least, _ in lacking),
                  " and ".join(f"raise {key} to {least} or more" for key, _, least, _ in lacking))
