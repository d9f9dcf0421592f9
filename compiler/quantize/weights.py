# SPDX-License-Identifier: Apache-2.0
"""The weights of a layer as vectors of DRAM1, cut into tiles of lanes x lanes.

There is a tile for each output tile, input tile and tap of the kernel. An output tile has one bias vector, then the
rows of every tile that is not all zero. Tiles with fewer than ``lanes`` input channels store only those rows, for what
the weight column holds beyond them meets lanes that are zero. On INT8 machines there is no bias vector, and a weight
beyond the machine's range is the sum of several, each in a tile of its own; first tiles are complete. For a depthwise
layer that runs in passes (``compiler/layers/taps.py``) a tile is what a pass takes: a row for each tap, or two rows.
Then one has the even lanes and one the odd lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from weft.compiler.layers.stages import Convolution, Product
from weft.compiler.layers.taps import Pass, Steps, covers_all, paying_passes
from weft.compiler.quantize.numbers import LayerIntegers
from weft.compiler.quantize.scales import weight_parts
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Size


class WeightTile(NamedTuple):
    """A tile of weights in DRAM1; ``offset`` of its first row in vectors from the start of the layer's weights.

    In a depthwise pass it has ``taps`` taps from ``tap`` on, in each of ``kernel_rows`` rows; ``taps`` is 0 for a tile
    that joins all lanes by one tap."""

    input_tile: int
    tap: Size
    offset: int
    rows: int
    taps: int = 0
    kernel_rows: int = 1


@dataclass(frozen=True)
class OutputBlock:
    """The weights of one output tile: the bias row at offset ``bias``, then ``tiles[i]`` of every input tile i.

    With ``carries_bias`` the very first tile covers every output pixel and lies right behind the bias, so that both
    load as one. Otherwise a MatMul first writes the bias to every output pixel. Without ``biased`` there is no bias
    row, and sums begin with zero."""

    bias: int
    tiles: tuple[tuple[WeightTile, ...], ...]
    carries_bias: bool
    biased: bool = True

    @cached_property
    def owner(self) -> int:
        """The input tile whose first weight tile is loaded with the bias; 0 if all weights are zero."""
        return next((index for index, tiles in enumerate(self.tiles) if tiles), 0)

    def chosen(self, inputs: tuple[int, int], taps: tuple[int, int]) -> list[WeightTile]:
        """Return weight tiles number ``taps`` (half open) of each input tile of ``inputs`` (half open)."""
        return [tile for tiles in self.tiles[inputs[0]:inputs[1]] for tile in tiles[taps[0]:taps[1]]]

    def starts(self, inputs: tuple[int, int], taps: tuple[int, int]) -> bool:
        """Tell whether the bias is loaded with these input tiles and weight tiles (both half open)."""
        return inputs[0] <= self.owner < inputs[1] and taps[0] == 0

    def piece(self, inputs: tuple[int, int], taps: tuple[int, int]) -> tuple[int, int]:
        """Return the offsets [start, end) of the chosen weight tiles, with the bias if it is loaded with them."""
        parts = self.tiles[inputs[0]:inputs[1]]
        head = next((part[taps[0]] for part in parts if len(part) > taps[0]), None)
        if head is None:
            first = last = self.bias + self.biased
        else:
            tail = next(part[taps[0]:taps[1]][-1] for part in reversed(parts) if len(part) > taps[0])
            first, last = head.offset, tail.offset + tail.rows
        return (self.bias, last) if self.starts(inputs, taps) else (first, last)

    @cached_property
    def size(self) -> int:
        """The size of the whole block in vectors."""
        ends = (tiles[-1].offset + tiles[-1].rows for tiles in self.tiles if tiles)
        return max(ends, default=self.bias + self.biased) - self.bias

    @cached_property
    def most_taps(self) -> int:
        """The most weight tiles of any input tile."""
        return max(map(len, self.tiles))


def encode_weights(core: Convolution, own: LayerIntegers,
                    arch: Arch) -> tuple[list[np.ndarray], tuple[OutputBlock, ...]]:
    """Return a convolution's weights and biases as vectors [n, lanes], and a block for each output tile."""
    lanes, biased = arch.array_size, own.multipliers is None
    assert own.weights is not None and own.bias is not None
    weights = own.weights.astype(np.promote_types(arch.number.storage_dtype, np.int16))  # parts of bytes exceed a byte
    if core.group > 1 and len(weights) == core.group == core.input.channels:
        found_passes = paying_passes(core, bool((weights == weights[:, :, :1, :1]).all()), arch)
        if found_passes:
            return _encode_passes(core, own, found_passes, arch)
    outputs, inputs = -(-len(weights) // lanes), core.input.tiles(lanes)
    bias = np.pad(own.bias, (0, outputs * lanes - len(weights))).astype(weights.dtype) if biased else None
    taps = sorted(core.window.taps(), key=lambda tap: not covers(core, tap))
    rows = np.minimum(lanes, core.input.channels - lanes * np.arange(inputs))
    order = tuple(np.array(taps).T)
    depthwise = core.group == len(weights) == core.input.channels
    joined = _joined_tiles(weights, lanes)[:, :, *order] if core.group == 1 else (
        _own_tiles(weights, lanes)[:, :, *order] if depthwise else None)
    if joined is not None and bias is not None and _all_stored(joined, bias.reshape(-1, lanes)):
        return _encode_all(core, joined, bias.reshape(-1, lanes), taps, rows.tolist())
    vectors: list[np.ndarray] = []
    blocks: list[OutputBlock] = []
    offset = 0
    for output in range(outputs):
        start = offset
        own_tiles = _grouped_tiles(weights, core.group, lanes, output, order) if joined is None else enumerate(
            joined[output], output if depthwise else 0)
        found = [(tile, dense) for tile, whole in own_tiles for dense in ([whole] if biased else weight_parts(whole))]
        numbers = np.array([tile for tile, _ in found])
        dense = joined[output] if joined is not None and biased else np.stack([dense for _, dense in found])
        present = dense.any(axis=(2, 3))  # of [tiles, taps, input lanes, output lanes]
        which, own_taps = np.nonzero(present)
        inner = numbers[which]
        stored = dense.reshape(-1, lanes, lanes) if present.all() else dense[present]
        kept, places = _share_repeats(stored, which, rows[inner], start + biased)
        entries: dict[int, list[WeightTile]] = {}
        for tile, tap, place, count in zip(*(values.tolist() for values in (inner, own_taps, places, rows[inner])),
                                           strict=True):
            entries.setdefault(tile, []).append(WeightTile(tile, taps[tap], place, count))
        first = entries[min(entries)][0] if entries else None
        # of many groups nearly all are empty, so that the shared () saves most of the time and memory
        groups: list[tuple[WeightTile, ...]] = [()] * inputs
        for tile, own_entries in entries.items():
            groups[tile] = tuple(own_entries)
        block = OutputBlock(start, tuple(groups), first is not None and covers(core, first.tap), biased)
        content = np.concatenate([*([] if bias is None else [bias[None, output * lanes:(output + 1) * lanes]]), kept])
        repeated = blocks and _repeated(blocks[-1], vectors[-1], block, content)
        if repeated:
            blocks.append(repeated)
            continue
        vectors.append(content)
        offset = start + len(content)
        blocks.append(block)
    return vectors, tuple(blocks)


def _all_stored(joined: np.ndarray, bias: np.ndarray) -> bool:
    """Tell whether every weight tile of ``joined`` is stored, and by itself: none is zero or like the one before it.

    Nor is an output tile stored with the one before, as no two neighbours of ``bias`` [output tiles, lanes] are the
    same."""
    return bool(joined.any((4, 3)).all() and (joined[:, :, 1:] != joined[:, :, :-1]).any((4, 3)).all()
                and (bias[1:] != bias[:-1]).any(1).all())


def _encode_all(core: Convolution, joined: np.ndarray, bias: np.ndarray, taps: Sequence[Size],
                rows: Sequence[int]) -> tuple[list[np.ndarray], tuple[OutputBlock, ...]]:
    """Return what :func:`encode_weights` does, where every weight tile is stored.

    ``joined`` [output tiles, input tiles that it reads, taps, input lanes, output lanes]; ``bias`` [output tiles,
    lanes]; ``rows``: how many each input tile stores."""
    outputs, reads, lanes = len(joined), joined.shape[1], joined.shape[-1]
    vectors: list[np.ndarray] = []
    blocks: list[OutputBlock] = []
    carries, start = covers(core, taps[0]), 0
    for output in range(outputs):
        first = output if reads < len(rows) else 0
        entries: list[tuple[WeightTile, ...]] = [()] * len(rows)
        place = start + 1
        for tile in range(first, first + reads):
            count = rows[tile]
            entries[tile] = tuple([WeightTile(tile, tap, place + number * count, count)
                                   for number, tap in enumerate(taps)])
            place += len(taps) * count
        last = rows[first + reads - 1]
        vectors.append(bias[output:output + 1])
        if last == lanes:
            vectors.append(joined[output].reshape(-1, lanes))
        else:  # only the last input tile may have fewer
            vectors += joined[output, :-1].reshape(-1, lanes), joined[output, -1, :, :last].reshape(-1, lanes)
        blocks.append(OutputBlock(start, tuple(entries), carries))
        start = place
    return vectors, tuple(blocks)


def _repeated(before: OutputBlock, stored: np.ndarray, block: OutputBlock, content: np.ndarray) -> OutputBlock | None:
    """Return a block that is stored where the one ``before`` it is, if it has the same weights; else None.

    ``stored``, ``content``: the vectors of both. A single tile may have fewer rows: beyond the last channel inputs are
    zero."""
    if stored[:1].tobytes() != content[:1].tobytes() or not np.array_equal(stored[:len(content)], content):
        return None
    tiles, others = (list(chain.from_iterable(entry.tiles)) for entry in (before, block))
    fewer = len(others) == len(tiles) == 1 and others[0].rows <= tiles[0].rows
    same = ([(tile.tap, tile.offset - before.bias) for tile in tiles]
            == [(tile.tap, tile.offset - block.bias) for tile in others])
    if not (tiles and same and (len(content) == len(stored) or fewer)):
        return None
    shift = before.bias - block.bias
    rows = {tile.offset: tile.rows for tile in tiles}
    return replace(block, bias=before.bias, tiles=tuple(
        tuple(tile._replace(offset=tile.offset + shift, rows=rows[tile.offset + shift]) for tile in group)
        if group else group for group in block.tiles))


def _encode_passes(core: Convolution, own: LayerIntegers, found: Sequence[Pass],
                   arch: Arch) -> tuple[list[np.ndarray], tuple[OutputBlock, ...]]:
    """Return the weights of a depthwise layer that runs in the passes ``found``, as :func:`encode_weights` does."""
    lanes, biased = arch.array_size, own.multipliers is None
    assert own.weights is not None and own.bias is not None
    tiles = core.input.tiles(lanes)
    beyond = 0, tiles * lanes - len(own.weights)
    kernels = np.pad(own.weights[:, 0], (beyond, (0, 0), (0, 0))).reshape(tiles, lanes, *core.window.kernel)
    bias = np.pad(own.bias, beyond).reshape(tiles, lanes) if biased else None
    vectors: list[np.ndarray] = []
    blocks: list[OutputBlock] = []
    offset = 0
    for output, kernel in enumerate(kernels):
        start = offset
        if bias is not None:
            vectors.append(bias[output:output + 1])
        offset += biased
        stored = [(part, _pass_rows(dense, part, Steps.of(core.window).taps, arch))
                  for dense in ([kernel] if biased else weight_parts(kernel)) for part in found]
        stored = [(part, rows) for part, rows in stored if rows.any()]
        kept, places = _share_repeats(*_stacked([rows for _, rows in stored], lanes), offset)
        own_tiles = tuple(WeightTile(output, part.tap, place, len(rows), part.taps, part.rows)
                          for (part, rows), place in zip(stored, places.tolist(), strict=True))
        vectors.append(kept)
        offset += len(kept)
        blocks.append(OutputBlock(start, (*((),) * output, own_tiles, *((),) * (tiles - output - 1)),
                                  bool(stored) and covers_all(core, stored[0][0]), biased))
    return vectors, tuple(blocks)


def _pass_rows(kernel: np.ndarray, part: Pass, step: int, arch: Arch) -> np.ndarray:
    """Return the weights of one pass, int64 [rows, lanes], from the ``kernel`` [lanes, height, width] of each lane.

    The taps of the pass are ``step`` columns of the kernel apart. There are ``row_taps`` taps for each row of the pass,
    the last tap first, and ``tap_rows`` rows for each tap, each of which has the weights of every ``tap_rows``-th lane.
    If the pass has fewer taps, the rows of the first taps stay zero, so that its results come soon."""
    taps, sides = arch.row_taps, arch.tap_rows
    columns, first = part.tap[1] + step * np.arange(part.taps), part.tap[0]
    rows = np.zeros((part.rows, taps, sides, arch.array_size), np.int64)
    for side in range(sides):
        own = kernel[side::sides, first:first + part.rows, columns]  # [lanes, kernel rows, taps]
        rows[:, :part.taps, side, side::sides] = own[:, :, ::-1].transpose(1, 2, 0)
    return rows.reshape(-1, arch.array_size)


def _stacked(tiles: list[np.ndarray], lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weight tiles of one output and one input tile in the form that :func:`_share_repeats` takes."""
    rows = np.array([len(tile) for tile in tiles], np.int64)
    stored = np.zeros((len(tiles), int(rows.max(initial=1)), lanes), np.int64)
    for tile, own in zip(tiles, stored, strict=True):
        own[:len(tile)] = tile
    return stored, np.zeros_like(rows), rows


def product_blocks(core: Product, lanes: int) -> tuple[OutputBlock, ...]:
    """Return the blocks of a product's weights, which are a Var: each of its pixels is a row.

    Offsets count from the Var's first vector."""
    height = core.weights.height
    blocks: list[OutputBlock] = []
    for start in range(0, core.weights.tiles(lanes) * height, height):
        tiles = tuple((WeightTile(row // lanes, (0, 0), start + row, min(lanes, height - row)),)
                      for row in range(0, height, lanes))
        blocks.append(OutputBlock(start, tiles, carries_bias=True, biased=False))
    return tuple(blocks)


def _share_repeats(stored: np.ndarray, which: np.ndarray, rows: np.ndarray,
                   base: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors [n, lanes] to store for weight tiles, and where each tile begins from ``base`` on.

    ``stored`` [tiles, lanes, lanes] has the tiles, of which the first ``rows`` [tiles] rows count. A tile that repeats
    the one before (average pools) is stored once, if ``which`` [tiles] says that they have the same output and input
    tile."""
    fresh = np.ones(len(stored), bool)
    fresh[1:] = ((which[1:] != which[:-1]) | (rows[1:] != rows[:-1])
                 | (stored[1:] != stored[:-1]).any(axis=(1, 2)))
    ends = base + np.cumsum(fresh * rows)
    kept, counted = stored if fresh.all() else stored[fresh], rows[fresh]
    if (counted == stored.shape[1]).all():
        return kept.reshape(-1, stored.shape[2]), ends - rows
    return kept[np.arange(stored.shape[1]) < counted[:, None]], ends - rows


def covers(core: Convolution, tap: Size) -> bool:
    """Tell whether a tap of the kernel falls into the image for every output pixel."""
    return all(core.window.outputs(axis, tap[axis], 0, core.size[axis], core.input.size[axis]) == (0, core.size[axis])
               for axis in range(2))


def _grouped_tiles(weights: np.ndarray, group: int, lanes: int, output: int,
                   order: tuple[np.ndarray, ...]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the weights of one output tile of a convolution in groups: each input tile that it reads, and its weights.

    These are [taps, input lanes, output lanes], with the taps (rows, columns) in this ``order``. ``weights`` is
    [out, in / group, h, w]; lanes without a channel are zero."""
    channels_out, per_group, height, width = weights.shape
    per_output = channels_out // group
    first, end = output * lanes, min((output + 1) * lanes, channels_out)
    parts = [(number * per_group, max(number * per_output, first), min((number + 1) * per_output, end))
             for number in range(first // per_output, (end - 1) // per_output + 1)]  # input channel, output channels
    for tile in range(parts[0][0] // lanes, (parts[-1][0] + per_group - 1) // lanes + 1):
        dense = np.zeros((height, width, lanes, lanes), weights.dtype)
        for start, left, right in parts:
            low, high = max(start, tile * lanes), min(start + per_group, (tile + 1) * lanes)
            if low < high:
                dense[:, :, low - tile * lanes:high - tile * lanes, left - first:right - first] = (
                    weights[left:right, low - start:high - start].transpose(2, 3, 1, 0))
        yield tile, dense[order]


def _joined_tiles(weights: np.ndarray, lanes: int) -> np.ndarray:
    """Return [output tiles, input tiles, h, w, input lanes, output lanes] of weights [out, in, h, w].

    Lanes without a channel are zero."""
    channels_out, channels_in, height, width = weights.shape
    padded = np.zeros((-(-channels_out // lanes) * lanes, -(-channels_in // lanes) * lanes, height, width),
                      weights.dtype)
    padded[:channels_out, :channels_in] = weights
    split = padded.reshape(-1, lanes, padded.shape[1] // lanes, lanes, height, width)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def _own_tiles(weights: np.ndarray, lanes: int) -> np.ndarray:
    """Return :func:`_joined_tiles` of a depthwise convolution, whose output tiles read only their own input tile."""
    channels, _, height, width = weights.shape
    tiles = -(-channels // lanes)
    padded = np.zeros((tiles * lanes, height, width), weights.dtype)
    padded[:channels] = weights[:, 0]
    split = np.zeros((tiles, 1, height, width, lanes, lanes), weights.dtype)
    split[:, 0, :, :, range(lanes), range(lanes)] = padded.reshape(tiles, lanes, height, width).swapaxes(0, 1)
    return split
