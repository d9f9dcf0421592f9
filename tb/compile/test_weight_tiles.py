# SPDX-License-Identifier: Apache-2.0
"""Weights as vectors of DRAM1, drawn, against plain sums over kernels: what tiles hold, and what is stored once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.compiler.layers.stages import Convolution, Product
from weft.compiler.layers.taps import Steps
from weft.compiler.layers.var import Var
from weft.compiler.quantize.numbers import LayerIntegers
from weft.compiler.quantize.weights import OutputBlock, covers, encode_weights, product_blocks
from weft.hw.contract.arch import Arch
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4)


def convolution(channels: int, made: int, group: int, window: Window, size: tuple[int, int]) -> Convolution:
    result = [(size[axis] + 2 * window.pads[axis] - (window.kernel[axis] - 1) * window.dilations[axis] - 1)
              // window.strides[axis] + 1 for axis in range(2)]
    return Convolution(Var("x", channels, *size), "w", "b", group, window, (result[0], result[1]), 0)


def kernels(draw: np.random.Generator, core: Convolution, made: int) -> np.ndarray:
    """Few different numbers, so that tiles are zero or repeat each other often."""
    shape = made, core.input.channels // core.group, *core.window.kernel
    kind = int(draw.integers(4))
    if kind == 0:
        return draw.integers(-9, 10, shape)
    if kind == 1:  # equal taps of some output channels
        return np.broadcast_to(draw.integers(0, 2, (made, shape[1], 1, 1)), shape).copy()
    if kind == 2:  # the same everywhere
        return np.full(shape, int(draw.integers(0, 2)))
    return draw.integers(-1, 2, shape) * (draw.random((1, 1, *core.window.kernel)) < 0.5)


def wanted_tiles(core: Convolution, weights: np.ndarray, lanes: int, output: int) -> dict[tuple[int, Any], np.ndarray]:
    """By input tile and tap what is not zero: [input lanes, output lanes], product by product."""
    found: dict[tuple[int, Any], np.ndarray] = {}
    made, per_group = weights.shape[:2]
    for channel in range(output * lanes, min((output + 1) * lanes, made)):
        for inner in range(per_group):
            source = channel // (made // core.group) * per_group + inner
            for tap in core.window.taps():
                if weights[channel, inner, tap[0], tap[1]]:
                    tile = found.setdefault((source // lanes, tap), np.zeros((lanes, lanes), np.int64))
                    tile[source % lanes, channel - output * lanes] = weights[channel, inner, tap[0], tap[1]]
    return found


def stored_size(outputs: list[list[tuple[int, Any, np.ndarray]]], biases: np.ndarray) -> int:
    """The vectors that are stored, of tiles (input tile, tap, stored rows) by output tile.

    A tile that is the one before it of its input tile is not stored again. Nor is an output tile that is like the one
    before, wherever it reads; a single tile may then have fewer rows."""
    size = 0
    before: Any = None
    for tiles, bias in zip(outputs, biases, strict=True):
        fresh = [not number or tiles[number - 1][0] != tile or not np.array_equal(tiles[number - 1][2], content)
                 for number, (tile, _, content) in enumerate(tiles)]
        taps, own = [tap for _, tap, _ in tiles], [content for _, _, content in tiles]
        same = before is not None and bool(tiles) and (before[:3] == (bias.tobytes(), taps, fresh))
        if same:
            fewer = [content[:len(mine)] for content, mine in zip(before[3], own, strict=True)]
            same = all(map(np.array_equal, fewer, own)) and (
                len(own) == 1 or [*map(len, own)] == [*map(len, before[3])])
        if not same:
            size += 1 + sum(len(content) for content, there in zip(own, fresh, strict=True) if there)
            before = bias.tobytes(), taps, fresh, own
    return size


@pytest.mark.parametrize("seed", range(240))
def test_tiles_hold_the_weights_of_their_taps(seed: int) -> None:
    """Convolutions are plain, in groups and depthwise; what is zero is left out, and what repeats is stored once."""
    draw = np.random.default_rng(seed)
    lanes, kind = ARCH.array_size, int(draw.integers(3))
    group = [1, int(draw.integers(2, 4)), 0][kind]
    channels = int(draw.integers(1, 4)) * group if group else int(draw.integers(2, 11))
    if group == 1:
        channels = int(draw.choice([1, 3, 4, 7, 8, 12]))
    group = group or channels
    made = int(draw.integers(1, 4 if kind else 12)) * group if kind != 2 else channels
    window = Window(*((int(a), int(b)) for a, b in (draw.integers(1, 4, 2), draw.integers(1, 3, 2),
                                                    draw.integers(0, 2, 2))))
    core = convolution(channels, made, group, window, (5, 6))
    weights = kernels(draw, core, made)
    bias = draw.integers(-3, 4, made) if draw.integers(2) else np.full(made, 2)
    vectors, blocks = encode_weights(core, LayerIntegers(weights, bias, group), ARCH)
    memory, rows = np.concatenate(vectors), [min(lanes, channels - first) for first in range(0, channels, lanes)]
    padded = np.pad(bias, (0, -made % lanes)).reshape(-1, lanes)
    assert len(blocks) == len(padded)
    every = []
    for output, block in enumerate(blocks):
        wanted = wanted_tiles(core, weights, lanes, output)
        assert np.array_equal(memory[block.bias], padded[output])
        tiles = [tile for own in block.tiles for tile in own]
        assert [tile.input_tile for tile in tiles] == [number for number, own in enumerate(block.tiles) for _ in own]
        assert {(tile.input_tile, tile.tap) for tile in tiles} == wanted.keys() and len(tiles) == len(wanted)
        for tile in tiles:
            assert rows[tile.input_tile] <= tile.rows <= lanes
            held = np.zeros((lanes, lanes), np.int64)
            held[:tile.rows] = memory[tile.offset:tile.offset + tile.rows]
            assert np.array_equal(held[:rows[tile.input_tile]],
                                  wanted[tile.input_tile, tile.tap][:rows[tile.input_tile]])
        assert block.carries_bias == (bool(tiles) and covers(core, tiles[0].tap))
        first = [covers(core, tile.tap) for tile in tiles if tile.input_tile == block.owner]
        assert first == sorted(first, reverse=True)  # taps that reach all pixels come first
        check_pieces(block, draw)
        every.append([(tile.input_tile, tile.tap, wanted[tile.input_tile, tile.tap][:rows[tile.input_tile]])
                      for tile in tiles])
    assert len(memory) == stored_size(every, padded)


def check_pieces(block: OutputBlock, draw: np.random.Generator) -> None:
    """A step loads from its first to its last weight tile, and the bias with the first of all."""
    taps = max(block.most_taps, 1)
    for _ in range(4):
        inputs, own = (sorted(draw.choice(count + 1, 2, replace=False).tolist()) for count in (len(block.tiles), taps))
        start, end = block.piece((inputs[0], inputs[1]), (own[0], own[1]))
        chosen = block.chosen((inputs[0], inputs[1]), (own[0], own[1]))
        begins = inputs[0] <= block.owner < inputs[1] and own[0] == 0
        assert block.starts((inputs[0], inputs[1]), (own[0], own[1])) == begins
        assert [tile for tiles in block.tiles[inputs[0]:inputs[1]] for tile in tiles[own[0]:own[1]]] == chosen
        ends = [(tile.offset, tile.offset + tile.rows) for tile in chosen]
        if begins:
            assert start == block.bias
        elif chosen:
            assert start == min(first for first, _ in ends)
        assert end == max((last for _, last in ends), default=start if not begins else block.bias + 1)


@pytest.mark.parametrize("name", ["lanes3_every_step", "lanes10_taps9", "lanes8_int8", "lanes18_taps9"])
def test_passes_hold_each_lanes_own_kernel(name: str) -> None:
    """A row for each tap of each lane of a group of neighbours, the last tap first; of bytes a kernel is a sum."""
    arch, passed = lockstep_archs()[name], 0
    lanes, sides = arch.array_size, arch.tap_rows
    for seed in range(30):
        draw = np.random.default_rng(seed)
        channels = int(draw.integers(1, 3 * lanes))
        height, width, stride, dilation = (int(draw.integers(1, end)) for end in (5, 5, 3, 3))
        window = Window((height, width), (1, stride), (int(draw.integers(2)), int(draw.integers(2))), (1, dilation))
        core = convolution(channels, channels, channels, window, (7, 9))
        wide = 100 if arch.scheme.per_lane else 9
        weights = draw.integers(-wide, wide + 1, (channels, 1, height, width)) * (draw.random((height, width)) < 0.8)
        bias = draw.integers(-3, 4, channels)
        own = LayerIntegers(weights, bias, channels,
                            multipliers=np.ones((1, channels)) if arch.scheme.per_lane else None)
        vectors, blocks = encode_weights(core, own, arch)
        memory = np.concatenate([np.zeros((0, lanes), np.int64), *vectors])
        step, padded = Steps.of(window).taps, np.zeros((-(-channels // lanes) * lanes, height, width), np.int64)
        padded[:channels] = weights[:, 0]
        if not any(tile.taps for block in blocks for own_tiles in block.tiles for tile in own_tiles):
            continue
        passed += 1
        assert len(blocks) == len(padded) // lanes
        for output, block in enumerate(blocks):
            found = np.zeros((lanes, height, width), np.int64)
            tiles = [tile for own_tiles in block.tiles for tile in own_tiles]
            assert {tile.input_tile for tile in tiles} <= {output} and block.biased != arch.scheme.per_lane
            for tile in tiles:
                assert tile.rows == tile.kernel_rows * arch.row_taps * sides and tile.taps <= arch.row_taps
                held = memory[tile.offset:tile.offset + tile.rows].reshape(-1, arch.row_taps, sides, lanes)
                for row in range(tile.kernel_rows):
                    for tap in range(tile.taps):
                        for lane in range(lanes):
                            found[lane, tile.tap[0] + row, tile.tap[1] + step * tap] += held[
                                row, tile.taps - 1 - tap, lane % sides, lane]
                for side in range(sides):  # nobody else's weights, and nothing beyond the taps
                    assert not np.delete(held[:, :, side], np.s_[side::sides], axis=2).any()
                assert not held[:, tile.taps:].any()
            assert np.array_equal(found, padded[output * lanes:(output + 1) * lanes])
            if block.biased:
                wanted = np.pad(bias, (0, len(padded) - channels))[output * lanes:(output + 1) * lanes]
                assert np.array_equal(memory[block.bias], wanted)
    assert passed > 5


@pytest.mark.parametrize("seed", range(20))
def test_weights_beyond_a_byte_are_sums(seed: int) -> None:
    """Each part is a weight of the machine, and no bias is stored: the requantizer adds it."""
    arch = lockstep_archs()["lanes4_int8"]
    draw, lanes = np.random.default_rng(seed), arch.array_size
    channels, made = draw.integers(1, 9, 2).tolist()
    core = convolution(channels, made, 1, Window((2, 1)), (4, 4))
    weights = draw.integers(-255, 256, (made, channels, 2, 1)) // (1 if seed % 2 else 2)
    vectors, blocks = encode_weights(core, LayerIntegers(weights, np.zeros((1, made), np.int64),
                                                         multipliers=np.ones((1, made))), arch)
    memory = np.concatenate(vectors)
    assert arch.number.minimum <= memory.min() and memory.max() <= arch.number.maximum
    for output, block in enumerate(blocks):
        found: dict[tuple[int, Any], np.ndarray] = {}
        for tile in (tile for own in block.tiles for tile in own):
            held = found.setdefault((tile.input_tile, tile.tap), np.zeros((lanes, lanes), np.int64))
            held[:tile.rows] += memory[tile.offset:tile.offset + tile.rows]
        wanted = wanted_tiles(core, weights, lanes, output)
        assert not block.biased and found.keys() == wanted.keys()
        assert all(np.array_equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("height", [1, 4, 7, 8])
def test_rows_of_a_second_factor_are_its_pixels(height: int) -> None:
    """Channel tile by channel tile, in groups of as many as there are lanes; the last one has what is left."""
    core = Product(Var("x", height, 3, 1), Var("w", 6, height, 1), "p", 0)
    blocks = product_blocks(core, 4)
    assert [block.bias for block in blocks] == [0, height] and all(block.carries_bias for block in blocks)
    for number, block in enumerate(blocks):
        rows = [(tile.input_tile, tile.offset, tile.rows) for own in block.tiles for tile in own]
        assert rows == [(first // 4, number * height + first, min(4, height - first)) for first in range(0, height, 4)]
