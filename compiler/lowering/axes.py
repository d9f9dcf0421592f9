# SPDX-License-Identifier: Apache-2.0
"""The axes of tensors: which ones are stored as channels, and one order for all tensors of an operator.

By default axis 1 lies as channels (``index.default_place``). A row [1, 1, n] that a product of matrices made, or heads
[1, heads, 1, n] of it, lie otherwise: n, or heads and n, are channels. Operators that treat all elements alike take
them as they are, as a tensor of three axes: one image, its channels and its pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Shape
from weft.compiler.indices.index import FILL, default_index, default_place
from weft.compiler.lowering.rewrite import Rewrite


class Axes(NamedTuple):
    """The axes of a shape that lie as channels and those that lie as pixels, the outermost first."""

    channels: tuple[int, ...]
    pixels: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The axes from the outermost in: those of channels, then those of pixels."""
        return self.channels + self.pixels

    def turned(self, shape: Shape) -> Shape:
        """Return ``shape`` as [1, channels, pixels]: one image."""
        return 1, *(math.prod(shape[axis] for axis in axes) for axes in self)

    def places(self, shape: Shape) -> np.ndarray:
        """Return where the elements of a tensor of ``shape`` lie in a canonical tensor of :meth:`turned`."""
        sizes = [shape[axis] for axis in self.order]
        return np.arange(math.prod(shape)).reshape(sizes).transpose(np.argsort(self.order))


def default_axes(rank: int) -> Axes:
    """Return the axes of ``default_place``: axis 1 as channels."""
    return Axes((1,), (0, *range(2, rank))) if rank > 1 else Axes((), tuple(range(rank)))


def last_axis(rank: int) -> Axes:
    """Return the last axis as channels: the axes of the rows of a matrix, or of a stack of matrices."""
    return Axes((rank - 1,), tuple(range(rank - 1)))


def operand_index(state: Rewrite, name: str, rank: int) -> np.ndarray:
    """Return the index array of a tensor as an operand of an operator of ``rank`` axes."""
    index = state.index(name)
    return index.reshape((1,) * (rank - index.ndim) + index.shape)


def _split(state: Rewrite, name: str, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the channel and the pixel of each element; constants have none of their own."""
    _, _, height, width = state.shapes[state.held[name].tensor]
    return np.where(index == FILL, FILL, index // (height * width)), np.where(index == FILL, FILL,
                                                                              index % (height * width))


def _changes(numbers: np.ndarray, axis: int) -> bool:
    """Return whether numbers differ along an axis."""
    return bool((numbers != numbers.take([0], axis)).any())


def lie_so(state: Rewrite, name: str, axes: Axes) -> bool:
    """Return whether a tensor lies with ``axes`` as they say.

    Then no channel depends on an axis of pixels, and no pixel on an axis of channels."""
    channel, pixel = _split(state, name, operand_index(state, name, len(axes.order)))
    return not any(_changes(channel, axis) for axis in axes.pixels) and not any(
        _changes(pixel, axis) for axis in axes.channels)


def axes_of(state: Rewrite, name: str, rank: int) -> Axes | None:
    """Return the axes with which a tensor lies, None if an axis is one of channels and of pixels."""
    index = operand_index(state, name, rank)
    channel, pixel = _split(state, name, index)
    channels = [axis for axis in range(rank) if _changes(channel, axis)]
    if any(_changes(pixel, axis) for axis in channels):
        return None
    steps = {axis: abs(int(np.diff(channel.take([0, 1], axis), axis=axis).flat[0])) for axis in channels}
    return Axes(tuple(sorted(channels, key=lambda axis: -steps[axis])),
                tuple(axis for axis in range(rank) if axis not in channels))


def common_axes(state: Rewrite, names: Sequence[str], shape: Shape,
                constants: Sequence[np.ndarray] = ()) -> Axes:
    """Return the axes with which tensors that broadcast to ``shape`` lie together at the least cost.

    First the fewest elements have to be moved, and the fewest of ``constants`` are not one number for each channel.
    Of equal ones the fewest vectors decide, and at last the default. Inputs that have no place yet lie as is wanted."""
    rank, decided = len(shape), [name for name in names if state.held[name].tensor not in state.unplaced]
    plain, full = default_axes(rank), [value.reshape((1,) * (rank - value.ndim) + value.shape) for value in constants]

    def moved(axes: Axes) -> int:
        uneven = (value.size for value in full if any(_changes(value, axis) for axis in axes.pixels))
        return sum(uneven, sum(state.index(name).size for name in decided if not lie_so(state, name, axes)))

    def vectors(axes: Axes) -> int:
        _, channels, pixels = axes.turned(shape)
        return -(-channels // state.lanes) * pixels

    if all(lie_so(state, name, plain) for name in decided):
        return plain
    found = (axes_of(state, name, rank) for name in decided)
    return min([plain, *filter(None, found)], key=lambda axes: (moved(axes), vectors(axes)))


def turned_values(values: np.ndarray, axes: Axes, shape: Shape) -> np.ndarray:
    """Return ``values`` that broadcast to ``shape`` as [1, channels, pixels]."""
    return np.broadcast_to(values, shape).transpose(axes.order).reshape(axes.turned(shape))


def turn(state: Rewrite, name: str, made: str, axes: Axes, shape: Shape) -> str:
    """Declare the tensor or constant ``name``, which broadcasts to ``shape``, as ``made`` [1, channels, pixels].

    Return ``made``."""
    if state.is_constant(name):
        state.know(made, turned_values(state.constant(name), axes, shape))
        return made
    held, turned = state.held[name], axes.turned(shape)
    index = turned_values(operand_index(state, name, len(shape)), axes, shape)
    whole = default_place(turned) == state.shapes[held.tensor] and np.array_equal(index, default_index(turned))
    state.declare(made, turned)
    state.hold(made, held.tensor, None if whole else index, held.fill)
    return made
