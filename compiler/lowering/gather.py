# SPDX-License-Identifier: Apache-2.0
"""Bring elements to where an operator needs them: by views if that is enough, else by copies through the array.

A copy is a 1x1 convolution whose weights choose channels. It goes from a View to a part of an assembled tensor. A
tensor is cut into boxes of pixels that one such convolution serves."""

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
    """Return the tensor with the pixels of ``name`` in their default place, and a channel map [channels].

    Channel c lies at map[c]; the map is None if each channel lies at its own number."""
    held = state.held[name]
    if held.where is None:
        return held.tensor, None
    if name not in state.images:
        state.images[name] = take(state, node, held.tensor, in_memory_order(held.where), held.fill)
    return state.images[name]


def exact(state: Rewrite, node: Node, name: str) -> str:
    """Return a tensor in which ``name`` lies exactly in its default place; copy it if needed."""
    tensor, channels = image(state, node, name)
    if channels is None:
        return tensor
    tensor = choose(state, node, tensor, channels)
    state.images[name] = (tensor, None)
    return tensor


def lying(state: Rewrite, node: Node, name: str) -> tuple[str, np.ndarray]:
    """Return a tensor with the pixels of ``name`` in their default place, and [channels]: where its channels lie.

    It is for operators that treat all channels alike. Other channels may stay between them if that takes no further
    tile."""
    tensor, channels = image(state, node, name)
    count = state.shapes[tensor][1]
    if channels is None:
        return tensor, np.arange(count)
    if -(-count // state.lanes) == -(-len(channels) // state.lanes):
        return tensor, channels
    return exact(state, node, name), np.arange(len(channels))


def broadcast(state: Rewrite, node: Node, name: str, shape: Shape) -> str:
    """Return a tensor with ``name`` broadcast to a shape, in the default place."""
    if state.graph.shapes[name] == shape:
        return exact(state, node, name)
    held = state.held[name]
    index = np.broadcast_to(state.index(name), shape)
    tensor, channels = take(state, node, held.tensor, in_memory_order(index), held.fill)
    return tensor if channels is None else choose(state, node, tensor, channels)


def take(state: Rewrite, node: Node, tensor: str, source: np.ndarray,
         fill: float) -> tuple[str, np.ndarray | None]:
    """Return a tensor with the elements ``source`` [channels, height, width] of ``tensor``, and its channel map.

    ``source`` has flat positions in ``tensor``, or FILL for the constant ``fill``."""
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
    """Return walks over all pixels in which pixels of the source become channels and channels become pixels.

    ``pixels`` and ``channels`` are [channels, height, width]. The list is empty if the elements do not lie so."""
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
    """Return the tensor whose pixels, for each walk, are taken as channels and swapped; walks are assembled."""
    count, height, width = source.shape
    flat = source.reshape(count, -1)
    if _is_stack(state, tensor, flat, crossings):
        stack = flat.reshape(count, len(crossings), -1).transpose(2, 1, 0)
        taken, channels = take(state, node, tensor, stack.reshape(len(stack), -1, 1), 0.0)
        swapped = swap(state, node, taken if channels is None else choose(state, node, taken, channels), len(crossings))
        if len(stack) & (len(stack) - 1):  # a matrix takes more pixels than it has
            swapped = state.scale(node, swapped, 1.0, part="dense")
        return state.view(node, swapped, (height, width), 0, width, 1)
    parts: list[tuple[str, PartPlace]] = []
    for walk in crossings:
        taken, channels = take(state, node, tensor, flat[:, walk.indices].T[..., None], 0.0)
        swapped = swap(state, node, taken if channels is None else choose(state, node, taken, channels))
        if len(crossings) == 1:
            return state.view(node, swapped, (height, width), 0, width, 1)
        parts.append((swapped, PartPlace(0, walk.first, walk.stride, walk.stride)))
    return state.assemble(node, parts, (1, count, height, width), "crossed")


def _is_stack(state: Rewrite, tensor: str, flat: np.ndarray, crossings: Sequence[Walk]) -> bool:
    """Tell whether several crossings are matrices one behind the other that can be swapped together.

    ``flat`` [channels, pixels] has their elements' places in ``tensor``. All matrices read the same channels. Where all
    channels are alike the stack would be another one of the same kind, without end."""
    length = crossings[0].length
    alike = [Walk(number * length, 1, length) for number in range(len(crossings))]
    if len(crossings) == 1 or list(crossings) != alike or (flat == flat[:1]).all():
        return False
    _, _, height, width = state.shapes[tensor]
    channels = (flat[0] // (height * width)).reshape(len(crossings), -1)
    return bool((channels == channels[0]).all())


def _as_view(state: Rewrite, node: Node, tensor: str, pixels: np.ndarray) -> str | None:
    """Return the image ``pixels`` [height, width] of ``tensor`` as a View, or None if one View cannot do it.

    If all its rows or columns are the same, the View has one of them."""
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
    """Return ``tensor`` with its rows and columns repeated to ``size`` [height, width], and its channel map.

    ``chosen``: the channels that are read, None for all. A repeated tensor has only these."""
    if state.shapes[tensor][2:] == size:
        return tensor, chosen
    small = tensor if chosen is None else choose(state, node, tensor, chosen)
    return _repeat(state, node, small, size), None


def _repeat(state: Rewrite, node: Node, tensor: str, size: tuple[int, int]) -> str:
    """Return the tensor with its axes of one pixel repeated to ``size`` (height, width)."""
    _, _, *own = state.shapes[tensor]
    rows, columns = (size[axis] if own[axis] == 1 else 1 for axis in range(2))
    return state.enlarge(node, tensor, (rows, columns), "repeated")


def lie_as_they_are(state: Rewrite, node: Node) -> tuple[str, np.ndarray | None]:
    """Return the tensor that holds input 0, and its index array, without moving elements.

    It is for operators that treat all elements alike."""
    held = state.held[node.input(0)]
    if held.where is not None and (held.where == -1).any():
        return exact(state, node, node.input(0)), None
    return held.tensor, held.where
