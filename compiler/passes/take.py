"""Elements brought to where an operator needs them: views where that is enough, else copies through the array.

A copy is a 1x1 convolution whose weights choose channels, from a View to a part of an assembled tensor; a tensor is
cut into boxes of pixels that one such convolution serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Node, Shape
from weft.compiler.passes.index import FILL, in_memory_order
from weft.compiler.passes.rewrite import PartPlace, Rewrite
from weft.compiler.passes.swap import swap

PIECES = 256
"""At most this many copies make one tensor."""

STRIDES = range(1, 9)


class Walk(NamedTuple):
    """``length`` steps from ``first``, ``stride`` apart."""

    first: int
    stride: int
    length: int

    @property
    def indices(self) -> np.ndarray:
        return self.first + self.stride * np.arange(self.length)


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


def choose(state: Rewrite, node: Node, tensor: str, channels: np.ndarray, fill: float = 0.0,
           part: str = "channels") -> str:
    """A 1x1 convolution: channel c of the result is channel ``channels[c]`` of ``tensor``; where that is FILL, the
    constant ``fill``. Returns the result's name."""
    _, count, *size = state.shapes[tensor]
    weights = np.zeros((len(channels), count, 1, 1))
    rows = np.flatnonzero(channels != FILL)
    weights[rows, channels[rows]] = 1
    return state.conv(node, tensor, weights, np.where(channels == FILL, fill, 0.0), size, part)


def take(state: Rewrite, node: Node, tensor: str, source: np.ndarray,
         fill: float) -> tuple[str, np.ndarray | None]:
    """``source`` [channels, height, width] of positions in ``tensor`` -> a tensor of these, and its channel map."""
    _, count, height, width = state.shapes[tensor]
    pixels, channels = source % (height * width), np.where(source == FILL, FILL, source // (height * width))
    same = (channels == channels[:, :1, :1]).all() and not (source == FILL).any()
    if same and (pixels == pixels[:1]).all():
        found = _as_view(state, node, tensor, pixels[0])
        if found is not None:
            chosen = channels[:, 0, 0]
            return found, None if np.array_equal(chosen, np.arange(count)) else chosen
    crossings = _crossings(pixels, channels)
    if len(source) > 1 and crossings and all(walk.length > 1 for walk in crossings):
        return _crossed(state, node, tensor, source, crossings), None
    return _pieces(state, node, tensor, pixels, channels, fill), None


def _crossings(pixels: np.ndarray, channels: np.ndarray) -> list[Walk]:
    """Walks over all pixels of [channels, height, width] in which each channel is a pixel of the source, and each pixel
    a channel; none where it is not so."""
    if channels.min() == FILL or (channels != channels[:1]).any():
        return []
    _, group = np.unique(pixels.reshape(len(pixels), -1), axis=1, return_inverse=True)
    members = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
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
    """The image of ``pixels`` [height, width] as a View, repeated where it is a single row or column."""
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
    small = state.view(node, tensor, size, int(pixels[0, 0]), down or max(right, 1) * size[1], right or 1)
    return _repeat(state, node, small, (height, width))


def _repeat(state: Rewrite, node: Node, tensor: str, size: tuple[int, int]) -> str:
    """Axes of one pixel become ``size``."""
    _, _, *own = state.shapes[tensor]
    rows, columns = (size[axis] if own[axis] == 1 else 1 for axis in range(2))
    return state.enlarge(node, tensor, (rows, columns), "repeated")


def _pieces(state: Rewrite, node: Node, tensor: str, pixels: np.ndarray, channels: np.ndarray, fill: float) -> str:
    """The general case; ``pixels`` and ``channels`` [channels, height, width] say where each element lies in
    ``tensor``. Output pixels that take the same channels are cut into boxes, each made by 1x1 convolutions, and
    assembled."""
    count, height, width = pixels.shape
    terms = _terms(pixels, channels)
    if len(terms) > PIECES:
        raise _too_many(state, node)
    keys, group = np.unique(np.stack([term[1] for term in terms]).reshape(-1, height * width), axis=1,
                            return_inverse=True)
    group = group.reshape(height, width)
    parts: list[tuple[str, PartPlace]] = []
    for number in range(keys.shape[1]):
        selections = keys[:, number].reshape(len(terms), count)
        used = [index for index in range(len(terms)) if (selections[index] != FILL).any()]
        sources = [terms[index][0] for index in used]
        for rows, columns in boxes(group == number, sources):
            parts.append((_piece(state, node, tensor, [selections[index] for index in used], sources, rows, columns,
                                 (selections == FILL).all(0), fill),
                          PartPlace(0, rows.first * width + columns.first, rows.stride * width, columns.stride)))
            if len(parts) > PIECES:
                raise _too_many(state, node)
    if len(parts) == 1:
        return parts[0][0]
    return state.assemble(node, parts, (1, count, height, width), "assembled")


def _too_many(state: Rewrite, node: Node) -> CompileError:
    return state.refusal(node, "rearrangement of elements", f"more than {PIECES} pieces",
                         f"at most {PIECES} boxes of pixels to be copied")


def _terms(pixels: np.ndarray, channels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """An output pixel may take channels from several source pixels. Term n: each output pixel's n-th source [height,
    width], and the channels that it takes there [channels, height, width], FILL for none."""
    left = np.where(channels == FILL, np.iinfo(np.int64).max, pixels)
    terms: list[tuple[np.ndarray, np.ndarray]] = []
    while True:
        nearest = left.min(0)
        hit = (left == nearest) & (channels != FILL) & (left != np.iinfo(np.int64).max)
        if not hit.any() and terms:
            return terms
        terms.append((np.where(hit.any(0), nearest, 0), np.where(hit, channels, FILL)))
        left = np.where(hit, np.iinfo(np.int64).max, left)
        if len(terms) > PIECES:
            return terms


def _piece(state: Rewrite, node: Node, tensor: str, selections: Sequence[np.ndarray], sources: Sequence[np.ndarray],
           rows: Walk, columns: Walk, filled: np.ndarray, fill: float) -> str:
    """One box: the sum of what it takes from each source. ``selections``: for each source the channels [channels]
    taken; ``filled`` [channels]: those that are the constant ``fill``."""
    size = (rows.length, columns.length)
    if not selections:
        view = _any_pixels(state, node, tensor, size)
        return choose(state, node, view, np.full(len(filled), FILL), fill, "fill")
    total = ""
    for selection, source in zip(selections, sources, strict=True):
        first = int(source[rows.first, columns.first])
        down = int(source[rows.first + rows.stride, columns.first]) - first if rows.length > 1 else 0
        right = int(source[rows.first, columns.first + columns.stride]) - first if columns.length > 1 else 0
        view = state.view(node, tensor, size, first, down or state.shapes[tensor][3] * size[1], right or 1)
        taken = choose(state, node, view, selection, 0.0, "piece")
        if not total and fill and filled.any():
            taken = state.scale(node, taken, 1.0, np.where(filled, fill, 0.0), "piece")
        total = state.add(node, taken, total, "piece") if total else taken
    return total


def _any_pixels(state: Rewrite, node: Node, tensor: str, size: tuple[int, int]) -> str:
    """Some image of a size, for a result that does not depend on it: every tap of its padding is clipped."""
    _, channels, height, width = state.shapes[tensor]
    if height >= size[0] and width >= size[1]:
        return state.view(node, tensor, size, 0, width, 1)
    one = state.view(node, tensor, (1, 1), 0, height * width, 1)
    pads = (size[0] - 1, size[1] - 1, 0, 0)
    return state.conv(node, one, np.zeros((1, channels, 1, 1)), np.zeros(1), size, "nothing", pads=pads)


def boxes(member: np.ndarray, sources: Sequence[np.ndarray]) -> Iterator[tuple[Walk, Walk]]:
    """Boxes (rows, columns) that together cover ``member`` [height, width]. In a box every one of ``sources`` [height,
    width] grows evenly from row to row and from column to column."""
    left = member.copy()
    for row, column in np.argwhere(member):
        if not left[row, column]:
            continue
        columns = _longest([_line(np.asarray(left[row]), [source[row] for source in sources], column, stride)
                            for stride in STRIDES], column)
        lines = left[:, columns.indices].all(1)
        steps = [source[:, columns.indices] - source[:, columns.first:columns.first + 1] for source in sources]
        for step in steps:
            lines &= (step == step[row]).all(1)
        rows = _longest([_line(np.asarray(lines), [source[:, columns.first] for source in sources], row, stride)
                         for stride in STRIDES], row)
        left[np.ix_(rows.indices, columns.indices)] = False
        yield rows, columns


def _line(member: np.ndarray, sources: Sequence[np.ndarray], first: int, stride: int) -> Walk:
    """The longest walk from ``first`` that stays inside ``member`` [pixels] and on which each source [pixels] grows by
    one and the same step."""
    places = np.arange(first, len(member), stride)
    good = member[places]
    for source in sources:
        steps = np.diff(source[places])
        if len(steps):
            good = good & np.concatenate([[True], (steps == steps[0]) & (steps[0] > 0)])
    bad = np.flatnonzero(~good)
    return Walk(int(first), stride, int(bad[0]) if len(bad) else len(places))


def _longest(walks: Sequence[Walk], first: int) -> Walk:
    best = max(walks, key=lambda walk: walk.length)
    return best if best.length > 1 else Walk(int(first), 1, 1)
