# SPDX-License-Identifier: Apache-2.0
"""The layers' constants as integers: as they are chosen, and as DRAM1 holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Slopes
from weft.compiler.layers.taps import Steps
from weft.compiler.quantize.consts import Consts, LayerConsts
from weft.compiler.quantize.numbers import LayerIntegers, Numbers
from weft.compiler.quantize.slopes import FACTORS
from weft.compiler.quantize.weights import WeightTile
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import ROW_TAPS
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES

MULTIPLIER_BYTES = 3
"""The first bytes that LoadScale reads in a lane are the multiplier; the others are the bias."""


def quantised(layers: Sequence[Layer], constants: Mapping[str, np.ndarray], numbers: Numbers,
              arch: Arch) -> list[LayerIntegers]:
    """Return the integer constants of all layers, as chosen."""
    return [numbers.integers(number, layer, constants, arch) for number, layer in enumerate(layers)]


def stored(layers: Sequence[Layer], consts: Consts, arch: Arch) -> list[LayerIntegers]:
    """Return the integer constants of all layers, read back from the vectors of DRAM1."""
    found = []
    for layer, own in zip(layers, consts.layers, strict=True):
        weights, bias = _dense(layer, consts.vectors, own, arch.array_size)
        scaled = bool(own.scales) and layer.factors is None
        multipliers, biases = _scales(consts.vectors, own, layer.output.channels) if scaled else (None, bias)
        places = consts.vectors[own.operand:own.operand + own.operands]
        slopes = isinstance(layer.elementwise, Slopes)
        operands = [] if slopes else places[:, 0].tolist()
        found.append(LayerIntegers(weights, biases, 1, tuple(operands), _tables(layer, consts, own, arch),
                                   multipliers, _slopes(places, layer.output.channels) if slopes else None))
    return found


def _tables(layer: Layer, consts: Consts, own: LayerConsts, arch: Arch) -> tuple[tuple[int, ...], ...]:
    """Lookup tables, all keys too, of which two are stored; or the one that results leave by."""
    pieces = ([own.table_piece(number, arch.lut_depth) for number in range(own.tables)] if layer.lookup is not None
              else [(0, TABLE_ENTRIES)] * own.tables)
    read = [consts.vectors[own.operand + offset:own.operand + offset + size, 0] for offset, size in pieces]
    if layer.lookup is not None:
        first, second = read[0].tolist()
        read[0] = arch.number.saturate(first + (second - first) * np.arange(arch.lut_depth))
    return tuple(tuple(values.tolist()) for values in read)


def _slopes(vectors: np.ndarray, channels: int) -> np.ndarray:
    """Return the factors [factors, channels] of slopes, of which each channel tile has a vector after the other."""
    by_tile = vectors.astype(np.int64).reshape(-1, FACTORS, vectors.shape[1])
    return by_tile.swapaxes(0, 1).reshape(FACTORS, -1)[:, :channels]


def _scales(vectors: np.ndarray, own: LayerConsts, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return multipliers and biases [requantizations, channels] of a layer."""
    places = own.scale_base + np.array(own.scales)[:, None] + np.arange(own.scale_size)
    tiles = vectors[places].astype(np.int8).reshape(len(own.scales), -1, SCALE_VECTORS, vectors.shape[1])
    ways = tiles.transpose(1, 0, 3, 2).reshape(tiles.shape[1], -1, SCALE_VECTORS)[:, :channels]
    content = [[lane.tobytes() for lane in way] for way in ways]
    multipliers = [[int.from_bytes(lane[:MULTIPLIER_BYTES], "little") for lane in way] for way in content]
    biases = [[int.from_bytes(lane[MULTIPLIER_BYTES:], "little", signed=True) for lane in way] for way in content]
    return np.array(multipliers, np.int64), np.array(biases, np.int64)


def _dense(layer: Layer, vectors: np.ndarray, own: LayerConsts,
           lanes: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return weights without groups, and bias, assembled from their tiles."""
    core, outputs = layer.core, layer.output.channels
    if not isinstance(core, Convolution):
        return None, None
    tiles = core.input.tiles(lanes)
    weights = np.zeros((len(own.blocks), lanes, tiles, lanes, *core.window.kernel), np.int64)
    bias = np.zeros((len(own.blocks), lanes), np.int64)
    for output, block in enumerate(own.blocks):
        if block.biased:
            bias[output] = vectors[own.base + block.bias]
        for tile in (entry for entries in block.tiles for entry in entries):
            first = own.base + tile.offset
            if tile.taps:
                _add_pass(weights[output, :, tile.input_tile], tile, vectors[first:first + tile.rows],
                          Steps.of(core.window).taps)
                continue
            weights[output, :, tile.input_tile, :tile.rows, tile.tap[0], tile.tap[1]] += \
                vectors[first:first + tile.rows].T  # several of one tap are summed
    dense = weights.reshape(len(own.blocks) * lanes, tiles * lanes, *core.window.kernel)
    return dense[:outputs, :core.input.channels], bias.ravel()[:outputs]


def _add_pass(weights: np.ndarray, tile: WeightTile, rows: np.ndarray, step: int) -> None:
    """Add the weights of a depthwise pass to [output lanes, input lanes, height, width].

    In each row of the kernel the first of its rows belong to its last tap; each tap has one row, or two that lanes
    alternate in."""
    lanes = np.arange(rows.shape[1])
    for row, of_row in enumerate(np.split(rows, tile.kernel_rows)):
        sides = len(of_row) // ROW_TAPS
        for number in range(tile.taps):
            own = of_row[(tile.taps - 1 - number) * sides:][:sides]
            weights[lanes, lanes, tile.tap[0] + row, tile.tap[1] + number * step] += own[lanes % sides, lanes]
