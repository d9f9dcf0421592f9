# SPDX-License-Identifier: Apache-2.0
"""The memory that tilings need, the vectors that they move, and a model of the cycles that they cost.

The cost counts cycles of the array and of the DRAM channels. Transfers overlap with computing if there are two buffers
of everything: then the next step's loads run while a step computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.layers.beside import simd_instructions
from weft.compiler.layers.stages import Product
from weft.compiler.layers.var import Var
from weft.compiler.tiling.candidates import Tiling, Tilings, single, weight_sets
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import part_count
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.schemes import SCALE_VECTORS

FINISH_VECTORS = 64
"""The vectors up to which several channel tiles of an output tile are requantized together."""

MOVE_OVERHEAD_CYCLES = 16
"""Cycles that a step without MatMuls costs beyond its vectors: to decode moves and to wait for their ends."""

SCALE_OVERHEAD_CYCLES = 38
"""Cycles that a LoadScale delays the results behind it: earlier moves must end, then it reads 7 vectors."""

INPUT_OVERHEAD_CYCLES = 18
"""Cycles that loading a step's input takes beyond its beats and DRAM's read latency.

Its buffer becomes free only when the step before last is done."""

UNEVEN = 0.05
"""The share of every unit's cycles that does not overlap with the busiest unit's."""


@dataclass(frozen=True)
class Need:
    """The vectors of memory that a tiling needs: one buffer of each kind, and totals with all buffers.

    ``core`` is the part of ``accumulators`` that holds the core's result; ``scales``: the requantizer's multipliers and
    biases. The local total also has the single buffer in which results are rounded within the layer."""

    input_tile: int
    weights: int
    output_buffer: int
    residual: int
    scales: int
    core: int
    accumulators: int
    local_total: int
    accumulator_total: int


def needs(shape: LayerShape, tilings: Tilings) -> list[np.ndarray]:
    """Return the vectors of local memory and accumulators that tilings need: columns, the fields of :class:`Need`."""
    core_pixels, output_pixels = tilings.core_largest, tilings.output_pixels
    input_tile = tilings.input_tile_largest * tilings.inputs * (not shape.input_is_resident)
    weights = tilings.weights * (not shape.weights_are_resident)
    output_buffer = shape.written(core_pixels, output_pixels) * tilings.outputs
    together = np.minimum(part_count(FINISH_VECTORS, np.maximum(1, core_pixels)), tilings.outputs)
    rounded = core_pixels * together * (shape.layer.rounding is not None)
    residual = len(shape.streamed_adds) * core_pixels * tilings.outputs
    scales = shape.scale_vectors[np.minimum(tilings.outputs, shape.output_tiles)]
    second = output_pixels if shape.layer.pool or shape.layer.multiplies else 0
    core, accumulators = core_pixels * tilings.outputs, (core_pixels + second) * tilings.outputs + shape.overhang
    doubled = input_tile + output_buffer + residual + scales
    buffers = tilings.buffers * doubled + tilings.weight_slots * weights + rounded
    return [input_tile, weights, output_buffer, residual, scales, core, accumulators,
            np.maximum(buffers, shape.consts.local_vectors),
            tilings.buffers * accumulators + shape.consts.operands]


def need(shape: LayerShape, tiling: Tiling) -> Need:
    """Return the vectors of local memory and accumulators that one tiling needs."""
    return Need(*(int(column[0]) for column in needs(shape, single(shape, tiling))))


class Traffic(NamedTuple):
    """The vectors that a layer moves, of one tiling or, as arrays, of many.

    ``array``: through the array or into the accumulators; ``consts``: from DRAM1; others: tensors from and to either
    DRAM."""

    array: Any
    dram0_read: Any
    dram1_read: Any
    dram0_write: Any
    dram1_write: Any
    consts: Any

    @property
    def dram0(self) -> Any:
        """The number of vectors read and written in DRAM0."""
        return self.dram0_read + self.dram0_write

    @property
    def dram1(self) -> Any:
        """The number of vectors read and written in DRAM1, constants included."""
        return self.dram1_read + self.dram1_write + self.consts


def traffic(shape: LayerShape, tiling: Tiling) -> Traffic:
    """Return the vectors that one tiling of a layer moves."""
    return Traffic(*(int(column[0]) for column in _traffic(shape, single(shape, tiling))))


def _traffic(shape: LayerShape, tilings: Tilings) -> Traffic:
    """Return the vectors that each candidate tiling of a layer moves."""
    core = shape.layer.core
    read, write = (np.zeros((2, len(tilings.outputs))) for _ in range(2))  # [DRAM, tilings]
    consts = shape.scale_total * _scale_loads(shape, tilings)
    for var in shape.streamed_adds:
        read += _by_dram(shape, var) * shape.part * tilings.core_total
    if not shape.input_is_resident:
        read += (_by_dram(shape, core.input) * shape.input_part * tilings.input_tile_total
                 * _input_tile_loads(shape, tilings))
    for save in shape.streamed_outputs:
        write += _by_dram(shape, save.var) * shape.part * (
            shape.core_pixels if save.before_pool else shape.output_pixels)
    if shape.loads:
        steps = tilings.regions * part_count(shape.output_tiles, tilings.outputs)
        array = shape.output_tiles * tilings.core_total + steps * MOVE_OVERHEAD_CYCLES
        return Traffic(array, read[0], read[1], write[0], write[1], consts)
    weights = shape.weight_total * _weight_loads(shape, tilings)
    if not isinstance(core, Product):
        consts = consts + weights
    elif not shape.weights_are_resident:
        read += _by_dram(shape, core.weights) * shape.part * weights // shape.output_tiles
    return Traffic(shape.tiles.count * tilings.array, read[0], read[1], write[0], write[1], consts)


def _by_dram(shape: LayerShape, var: Var) -> np.ndarray:
    """Return [DRAM, 1]: how many channel tiles of a Var lie in DRAM0 and in DRAM1."""
    odd = shape.odd_tiles(var)
    return np.array([[var.tiles(shape.arch.array_size) - odd], [odd]])


def cost(shape: LayerShape, tilings: Tilings) -> np.ndarray:
    """Return the modelled cycles of the layer for each candidate.

    With two buffers of everything its busiest unit decides. With one buffer for loads and MatMuls the units run one
    after another, and their cycles add up. To both are added the cycles at the layer's ends, where units wait for the
    layer before or after it."""
    beats = shape.arch.vector_beats
    moved = _traffic(shape, tilings)
    idle = _idle(tilings)
    read, written = moved.dram1_read * idle * (tilings.most == 1), moved.dram1_write * idle
    ports = ((moved.dram0_read + moved.consts, moved.dram0_write) if shape.arch.shared_dram else
             (moved.dram0_read + read, moved.dram0_write + written,
              moved.dram1_read + read + moved.consts, moved.dram1_write + written))
    busy = [vectors * beats for vectors in ports]
    through = 2 if shape.odd_tiles(shape.layer.core.input) == shape.input_tiles else 0  # the port of the input
    busy[through] = busy[through] + _latencies(shape, tilings)
    parts = [moved.array, *busy, *_requantization(shape, tilings), *_on_simd(shape, tilings)]
    busiest = np.where(tilings.buffers > 1, np.max(parts, axis=0) + UNEVEN * sum(parts), sum(parts))
    kept = _strips_kept(shape, tilings)
    full = (kept > 1) & (kept <= tilings.buffers) & (tilings.regions > 1)
    # kept input tiles leave no room for those of the next region
    read = np.maximum(moved.dram0_read, moved.dram1_read)
    return busiest + np.where(full, read * beats, 0.0) + _ends(shape, tilings, beats)


def _on_simd(shape: LayerShape, tilings: Tilings) -> list[np.ndarray]:
    """Return the cycles of the SIMD unit for a layer's max pool; the list is empty without one.

    With two buffers they overlap with the array's, or with the moves of a load core."""
    if not shape.layer.pool:
        return []
    cycles = simd_instructions(shape.layer) * shape.output_tiles * shape.output_pixels
    return [np.full(len(tilings.outputs), float(cycles))]


def _idle(tilings: Tilings) -> np.ndarray:
    """Return the share of its time that a DRAM waits for the other one, when results go to both.

    With output tiles as the inner loop, the odd channel tile of a group is written for all of them before the next
    group. The same holds for reads if each group has an input channel tile of its own."""
    return np.where(tilings.outputs_outer & (tilings.outputs % 2 == 1), 1 / tilings.outputs, 0.0)


def _latencies(shape: LayerShape, tilings: Tilings) -> Any:
    """Return the cycles in which steps wait for the first beat of their input."""
    if shape.input_is_resident:
        return 0
    return tilings.regions * weight_sets(shape, tilings) * (EXPECTED.read_latency + INPUT_OVERHEAD_CYCLES)


def _requantization(shape: LayerShape, tilings: Tilings) -> list[np.ndarray]:
    """Return the cycles of requantizing results, and of loading rounded results and residuals back.

    The list is empty on machines of fixed point, which requantize no more slowly than results are made. On others each
    output tile needs a LoadScale for every channel tile."""
    if not shape.scale_total:
        return []
    loads = tilings.regions * (shape.scale_total // SCALE_VECTORS) * SCALE_OVERHEAD_CYCLES
    if shape.layer.rounding is None:
        return [shape.written(shape.core_pixels, shape.output_pixels) * shape.output_tiles + loads]
    again = tilings.core_total * shape.output_tiles * (1 + len(shape.layer.adds))
    left = shape.left(tilings.core_total, shape.output_pixels) * shape.output_tiles
    return [left + loads, again]


def _ends(shape: LayerShape, tilings: Tilings, beats: float) -> np.ndarray:
    """Return the cycles that nothing overlaps, with ``beats`` for a vector.

    They last until the first input tile is loaded, and from the last MatMul until its last vector is stored."""
    first = np.zeros_like(tilings.outputs)
    if not shape.input_is_resident:
        first = tilings.input_tile_largest * _at_once(shape, shape.layer.core.input, tilings.inputs)
    together = part_count(FINISH_VECTORS, np.maximum(1, tilings.core_largest))
    tiles = np.minimum(tilings.outputs, together)
    saved = sum(_at_once(shape, save.var, tiles) for save in shape.streamed_outputs)
    if shape.share is not None:
        first = first + tilings.weights
    return np.asarray(beats * first + tilings.core_largest * (tiles + beats * saved))


def _at_once(shape: LayerShape, var: Var, tiles: np.ndarray) -> np.ndarray:
    """Return how many of ``tiles`` channel tiles of a Var one DRAM moves, while the other moves the rest."""
    return -(-tiles // 2) if shape.odd_tiles(var) else tiles


def finished_together(pixels: int) -> int:
    """Return how many channel tiles are requantized together: the fewest that have FINISH_VECTORS vectors.

    ``pixels``: vectors of a channel tile."""
    return part_count(FINISH_VECTORS, max(1, pixels))


def _weight_loads(shape: LayerShape, tilings: Tilings) -> np.ndarray:
    """Return how often each weight is read."""
    inner = tilings.most * part_count(shape.most_taps, tilings.taps)
    kept = np.where(tilings.outputs_outer, inner, weight_sets(shape, tilings))
    return np.where(kept <= tilings.weight_slots, 1, tilings.regions)


def _scale_loads(shape: LayerShape, tilings: Tilings) -> np.ndarray:
    """Return how often the requantizer's multipliers and biases are read."""
    groups = part_count(shape.output_tiles, tilings.outputs)
    return np.where(tilings.outputs_outer | (groups <= tilings.buffers), 1, tilings.regions)


def _input_tile_loads(shape: LayerShape, tilings: Tilings) -> np.ndarray:
    """Return how often each input tile is read on average.

    It is read once for each group of output channel tiles that has weights for it, unless it is retained."""
    if shape.loads:
        return np.ones_like(tilings.outputs)
    again = tilings.pairs / part_count(shape.input_tiles, tilings.inputs)
    return np.where(_strips_kept(shape, tilings) <= tilings.buffers, 1, again)


def _strips_kept(shape: LayerShape, tilings: Tilings) -> np.ndarray:
    """Return how many input tiles must be retained for the next group of output channel tiles to reuse them."""
    return (tilings.most * part_count(shape.most_taps, tilings.taps)
            * np.where(tilings.outputs_outer, tilings.regions, 1))
