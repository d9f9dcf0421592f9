# SPDX-License-Identifier: Apache-2.0
"""Bring elements to where an operator needs them piece by piece: the general case of ``gather.py``.

A piece is a box of output pixels that one 1x1 convolution for each source pixel makes; or one convolution for each
output pixel, if these are fewer. All pieces are counted before the first is made."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Node
from weft.compiler.indices.boxes import Walk, alike_columns, boxes
from weft.compiler.indices.index import FILL
from weft.compiler.lowering.rewrite import PartPlace, Rewrite

PIECES = 256
"""The most copies that make one tensor."""


def choose(state: Rewrite, node: Node, tensor: str, channels: np.ndarray, fill: np.ndarray | float = 0.0,
           part: str = "channels") -> str:
    """Return the result of a 1x1 convolution that selects channels.

    Channel c of the result is channel ``channels[c]`` of ``tensor``, or for FILL the constant ``fill`` [channels] or
    one number for all."""
    _, count, *size = state.shapes[tensor]
    weights = state.weights(node, (len(channels), count, 1, 1))
    rows = np.flatnonzero(channels != FILL)
    weights[rows, channels[rows]] = 1
    return state.conv(node, tensor, weights, np.where(channels == FILL, fill, 0.0), size, part)


class Piece(NamedTuple):
    """A box of output pixels that is a sum of terms, each of which takes its pixels from the same source image.

    For each term: ``sources`` [height, width], the source pixel of each output pixel of the whole image, and
    ``selections`` [channels], the channels that it takes there, FILL for none."""

    rows: Walk
    columns: Walk
    sources: Sequence[np.ndarray]
    selections: Sequence[np.ndarray]

    @property
    def pixel_by_pixel(self) -> bool:
        """Whether a convolution for each output pixel makes the piece of fewer than one for each term of its sum."""
        return self.rows.length * self.columns.length < len(self.sources)

    @property
    def convolutions(self) -> int:
        """The number of convolutions that make the piece."""
        return max(min(self.rows.length * self.columns.length, len(self.sources)), 1)


def in_pieces(state: Rewrite, node: Node, tensor: str, pixels: np.ndarray, channels: np.ndarray, fill: float) -> str:
    """Return a tensor made of pieces; ``pixels`` and ``channels`` say where each element lies in ``tensor``.

    Both are [channels, height, width]. Output pixels that take the same channels are cut into boxes, each made by 1x1
    convolutions, and assembled. Raise CompileError if these are too many."""
    count, height, width = pixels.shape
    found = list(_cut(state, node, pixels, channels))
    filled = np.zeros(count)
    parts: list[tuple[str, PartPlace]] = []
    state.need_weights(node, sum(piece.convolutions for piece in found) * count * state.shapes[tensor][1])
    for piece in found:
        bias = np.where((np.stack(piece.selections) == FILL).all(0), fill, 0.0) if piece.selections else filled + fill
        parts += _made(state, node, tensor, piece, bias, width)
    if len(parts) == 1:
        return parts[0][0]
    return state.assemble(node, parts, (1, count, height, width), "assembled")


def _cut(state: Rewrite, node: Node, pixels: np.ndarray, channels: np.ndarray) -> Iterator[Piece]:
    """Yield the pieces of an output [channels, height, width]. Raise CompileError beyond PIECES convolutions."""
    count, height, width = pixels.shape
    terms, sources = _terms(pixels, channels)
    keys, group = alike_columns(np.concatenate([terms, channels]).reshape(2 * count, -1))
    made = keys.shape[1]
    if made > PIECES:
        raise _too_many(state, node, made)
    group, made = group.reshape(height, width), 0
    for number in range(keys.shape[1]):
        term, channel = keys[:count, number], keys[count:, number]
        selections = [np.where(term == place, channel, FILL) for place in range(term.max() + 1)]
        for box in boxes(group == number, sources[:len(selections)]):
            state.count_piece()
            piece = Piece(*box, list(sources[:len(selections)]), selections)
            made += piece.convolutions
            if made > PIECES:
                raise _too_many(state, node, made)
            yield piece


def _too_many(state: Rewrite, node: Node, least: int) -> CompileError:
    """Return the error for a rearrangement that takes ``least`` or more pieces."""
    error = state.refusal(node, "rearrangement of elements", f"{least} pieces or more",
                          f"at most {PIECES} boxes of pixels to be copied")
    error.of_order = True
    return error


def _terms(pixels: np.ndarray, channels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the term of each channel, and the source pixel of each term, for every output pixel.

    An output pixel may take channels from several source pixels, its terms, the nearest to the start first. The first
    result is [channels, height, width], FILL for constants; the second [terms, height, width], 0 for missing terms."""
    left = np.where(channels == FILL, np.iinfo(np.int64).max, pixels)
    order = np.argsort(left, axis=0, kind="stable")
    near = np.take_along_axis(left, order, 0)
    new = np.concatenate([np.zeros((1, *near.shape[1:]), np.int64), np.diff(near, axis=0) != 0])
    number = np.cumsum(new, axis=0)
    terms = np.empty_like(number)
    np.put_along_axis(terms, order, number, 0)
    terms[channels == FILL] = FILL
    sources = np.zeros((terms.max() + 1, *near.shape[1:]), np.int64)
    there = near != np.iinfo(np.int64).max
    places = np.nonzero(there)
    sources[number[there], places[1], places[2]] = near[there]
    return terms, sources


def _made(state: Rewrite, node: Node, tensor: str, piece: Piece, bias: np.ndarray,
          width: int) -> Iterator[tuple[str, PartPlace]]:
    """Yield the tensors of a piece and their places in an image of ``width`` pixels."""
    rows, columns = piece.rows, piece.columns
    if not piece.pixel_by_pixel:
        yield (_piece(state, node, tensor, piece, bias),
               PartPlace(0, rows.first * width + columns.first, rows.stride * width, columns.stride))
        return
    for row, column in itertools.product(rows.indices, columns.indices):
        yield _pixel(state, node, tensor, piece, (int(row), int(column)), bias), PartPlace(
            0, int(row) * width + int(column), width, 1)


def _pixel(state: Rewrite, node: Node, tensor: str, piece: Piece, pixel: tuple[int, int], bias: np.ndarray) -> str:
    """Return one output pixel: a convolution whose kernel is the smallest image that contains all of its terms."""
    width, count = state.shapes[tensor][3], state.shapes[tensor][1]
    places = np.array([divmod(int(source[pixel]), width) for source in piece.sources])
    first, size = places.min(0), np.ptp(places, axis=0) + 1
    weights = state.weights(node, (len(bias), count, *size.tolist()))
    for selection, (row, column) in zip(piece.selections, places - first, strict=True):
        taken = np.flatnonzero(selection != FILL)
        weights[taken, selection[taken], row, column] = 1
    view = state.view(node, tensor, size.tolist(), int(first[0]) * width + int(first[1]), width, 1)
    return state.conv(node, view, weights, bias, (1, 1), "piece")


def _piece(state: Rewrite, node: Node, tensor: str, piece: Piece, bias: np.ndarray) -> str:
    """Return one box: the sum of what it takes from each source, plus ``bias`` [channels] for constants."""
    rows, columns = piece.rows, piece.columns
    size = (rows.length, columns.length)
    if not piece.selections:
        return choose(state, node, _any_pixels(state, node, tensor, size), np.full(len(bias), FILL), bias, "fill")
    total = ""
    for selection, source in zip(piece.selections, piece.sources, strict=True):
        first = int(source[rows.first, columns.first])
        down = int(source[rows.first + rows.stride, columns.first]) - first if rows.length > 1 else 0
        right = int(source[rows.first, columns.first + columns.stride]) - first if columns.length > 1 else 0
        view = state.view(node, tensor, size, first, down or state.shapes[tensor][3] * size[1], right or 1)
        taken = choose(state, node, view, selection, 0.0, "piece")
        if not total and bias.any():
            taken = state.scale(node, taken, 1.0, bias, "piece")
        total = state.add(node, taken, total, "piece") if total else taken
    return total


def _any_pixels(state: Rewrite, node: Node, tensor: str, size: tuple[int, int]) -> str:
    """Return any image of a size, for a result that does not depend on it: every tap of its padding is clipped."""
    _, channels, height, width = state.shapes[tensor]
    if height >= size[0] and width >= size[1]:
        return state.view(node, tensor, size, 0, width, 1)
    one = state.view(node, tensor, (1, 1), 0, height * width, 1)
    pads = (size[0] - 1, size[1] - 1, 0, 0)
    return state.conv(node, one, np.zeros((1, channels, 1, 1)), np.zeros(1), size, "nothing", pads=pads)


