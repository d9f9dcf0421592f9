"""Elements brought to where an operator needs them: views where that is enough, else copies through the array.

A copy is a 1x1 convolution whose weights choose channels, from a View to a part of an assembled tensor; a tensor is
cut into boxes of pixels that one such convolution serves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.frontend.graph import Node, Shape
from weft.compiler.indices.boxes import Walk, alike_columns
from weft.compiler.indices.index import FILL, in_memory_order
from weft.compiler.lowering.pieces import PIECES, choose, in_pieces
from weft.compiler.lowering.rewrite import PartPlace, Rewrite
from weft.compiler.lowering.transpose import swap


def image(state: Rewrite, node: Node, name: str) -> tuple[str, np.ndarray | None]:
    """The tensor of ``name`` with the pixels of its default place, and a channel map [channels]: channel c lies at
    map[c]; None where it lies at c."""
    held = state.held[name]
    if held.where is None:
        return held.tensor, None
    if name not in state.images:
        state.images[name] = take(state, node, held.tensor, in_memory_order(held.where), held.fill)
    return state.images[name]


def exact(state: Rewrite, node: Node, name: str) -> str:
    """The tensor of ``name`` as its default place."""
    tensor, channels = image(state, node, name)
    if channels is None:
        return tensor
    tensor = choose(state, node, tensor, channels)
    state.images[name] = (tensor, None)
    return tensor


def lying(state: Rewrite, node: Node, name: str) -> tuple[str, np.ndarray]:
    """A tensor with the pixels of ``name`` at their default place, and [channels] where its channels lie: for what
    treats all channels alike. Others stay between them where the tensor has no more tiles for it."""
    tensor, channels = image(state, node, name)
    count = state.shapes[tensor][1]
    if channels is None:
        return tensor, np.arange(count)
    if -(-count // state.lanes) == -(-len(channels) // state.lanes):
        return tensor, channels
    return exact(state, node, name), np.arange(len(channels))


def broadcast(state: Rewrite, node: Node, name: str, shape: Shape) -> str:
    """The tensor of ``name`` broadcast to a shape, as its default place."""
    if state.graph.shapes[name] == shape:
        return exact(state, node, name)
    held = state.held[name]
    index = np.broadcast_to(state.index(name), shape)
    tensor, channels = take(state, node, held.tensor, in_memory_order(index), held.fill)
    return tensor if channels is None else choose(state, node, tensor, channels)


def take(state: Rewrite, node: Node, tensor: str, source: np.ndarray,
         fill: float) -> tuple[str, np.ndarray | None]:
    """``source`` [channels, height, width] of positions in ``tensor`` -> a tensor of these, and its channel map."""
    _, count, height, width = state.shapes[tensor]
    pixels, channels = source % (height * width), np.where(source == FILL, FILL, source // (height * width))
    same = (channels == channels[:, :1, :1]).all() and not (source == FILL).any()
    if same and (pixels == pixels[:1]).all():
        found, chosen = _as_view(state, node, tensor, pixels[0]), channels[:, 0, 0]
        if found is not None:
            return _repeated(state, node, found, None if np.array_equal(chosen, np.arange(count)) else chosen,
                             (pixels.shape[1], pixels.shape[2]))
    crossings = _crossings(pixels, channels)
    if len(source) > 1 and crossings and all(walk.length > 1 for walk in crossings):
        return _crossed(state, node, tensor, source, crossings), None
    return in_pieces(state, node, tensor, pixels, channels, fill), None


def _crossings(pixels: np.ndarray, channels: np.ndarray) -> list[Walk]:
    """Walks over all pixels of [channels, height, width] in which each channel is a pixel of the source, and each pixel
    a channel; none where it is not so."""
    if channels.min() == FILL or (channels != channels[:1]).any():
        return []
    _, group = alike_columns(pixels.reshape(len(pixels), -1))
    counts = np.bincount(group)
    if len(counts) > PIECES:
        return []
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(counts)[:-1])
    walks = [Walk(int(places[0]), int(places[1] - places[0]) if len(places) > 1 else 1, len(places))
             for places in members]
    return walks if all(map(np.array_equal, members, (walk.indices for walk in walks))) else []


def _crossed(state: Rewrite, node: Node, tensor: str, source: np.ndarray, crossings: Sequence[Walk]) -> str:
    """The pixels of each walk taken as channels and swapped; those of several are put together."""
    count, height, width = source.shape
    flat = source.reshape(count, -1)
    parts: list[tuple[str, PartPlace]] = []
    for walk in crossings:
        taken, channels = take(state, node, tensor, flat[:, walk.indices].T[..., None], 0.0)
        swapped = swap(state, node, taken if channels is None else choose(state, node, taken, channels))
        if len(crossings) == 1:
            return state.view(node, swapped, (height, width), 0, width, 1)
        parts.append((swapped, PartPlace(0, walk.first, walk.stride, walk.stride)))
    return state.assemble(node, parts, (1, count, height, width), "crossed")


def _as_view(state: Rewrite, node: Node, tensor: str, pixels: np.ndarray) -> str | None:
    """The image of ``pixels`` [height, width] as a View, of one row or column where all are the same."""
    height, width = pixels.shape
    down = int(pixels[1, 0] - pixels[0, 0]) if height > 1 else 0
    right = int(pixels[0, 1] - pixels[0, 0]) if width > 1 else 0
    expected = pixels[0, 0] + down * np.arange(height)[:, None] + right * np.arange(width)
    if not np.array_equal(pixels, expected) or down < 0 or right < 0:
        return None
    size = (height if down else 1, width if right else 1)
    if size == (height, width):
        own = state.shapes[tensor][3]
        return state.view(node, tensor, size, int(pixels[0, 0]), down or own * size[1], right or 1)
    return state.view(node, tensor, size, int(pixels[0, 0]), down or max(right, 1) * size[1], right or 1)


def _repeated(state: Rewrite, node: Node, tensor: str, chosen: np.ndarray | None,
              size: tuple[int, int]) -> tuple[str, np.ndarray | None]:
    """A tensor with its rows and columns repeated to ``size``, and its channel map: the ``chosen`` channels, None for
    all. What is repeated has no others."""
    if state.shapes[tensor][2:] == size:
        return tensor, chosen
    small = tensor if chosen is None else choose(state, node, tensor, chosen)
    return _repeat(state, node, small, size), None


def _repeat(state: Rewrite, node: Node, tensor: str, size: tuple[int, int]) -> str:
    """Axes of one pixel become ``size``."""
    _, _, *own = state.shapes[tensor]
    rows, columns = (size[axis] if own[axis] == 1 else 1 for axis in range(2))
    return state.enlarge(node, tensor, (rows, columns), "repeated")


