# SPDX-License-Identifier: Apache-2.0
"""The addresses of a user's array's elements in memory: orders, strides, and vectors.

In memory a tensor is channel tiles x height x width vectors; lanes beyond the last channel must hold the real 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Shape = tuple[int, ...]
Order = Sequence[int] | np.ndarray
"""The place of every element of a user's array in a tensor, both flat."""


def scatter(values: np.ndarray, order: Order | None, shape: Shape) -> np.ndarray:
    """Return the tensor of ``shape`` that has the elements of a port's array at ``order``, zero elsewhere."""
    if order is None:
        return values.reshape(shape)
    tensor = np.zeros(math.prod(shape), values.dtype)
    tensor[np.asarray(order)] = values.ravel()
    return tensor.reshape(shape)


def gather(tensor: np.ndarray, order: Order | None, shape: Shape) -> np.ndarray:
    """Return a port's array of ``shape`` from the tensor that has it: the inverse of :func:`scatter`."""
    flat = tensor.reshape(-1)
    return (flat if order is None else flat[np.asarray(order)]).reshape(shape)


def positions(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Return an array of ``shape`` in which every element is the sum of its indices times ``strides``."""
    place: np.ndarray = np.zeros(shape, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        place += stride * np.arange(size).reshape(-1, *(1,) * (len(shape) - axis - 1))
    return place


def strides_of(index: np.ndarray) -> list[int] | None:
    """Return the strides from which :func:`positions` makes ``index``, or None if there are none."""
    if not index.size:
        return None
    start = index.ravel()[0]
    strides = [int(index.take(1, axis).ravel()[0] - start) if size > 1 else 0 for axis, size in enumerate(index.shape)]
    return strides if np.array_equal(index, positions(index.shape, strides)) else None


def pack(tensor: np.ndarray, lanes: int, fill: int = 0) -> np.ndarray:
    """Return a tensor [channels, height, width] as vectors [tiles x height x width, lanes].

    Missing channels are ``fill``."""
    channels, height, width = tensor.shape
    tiles = -(-channels // lanes)
    padded = np.full((tiles * lanes, height, width), fill, tensor.dtype)
    padded[:channels] = tensor
    return padded.reshape(tiles, lanes, height, width).transpose(0, 2, 3, 1).reshape(-1, lanes)


def unpack(vectors: np.ndarray, layout: tuple[int, int, int]) -> np.ndarray:
    """Return the tensor [channels, height, width] of vectors: the inverse of :func:`pack`."""
    channels, height, width = layout
    lanes = vectors.shape[1]
    tiles = vectors.reshape(-1, height, width, lanes).transpose(0, 3, 1, 2)
    return tiles.reshape(-1, height, width)[:channels]
