# SPDX-License-Identifier: Apache-2.0
"""Make sparse weights of a TensorFlow Lite file dense.

A sparse tensor is a tree: its levels are the tensor's axes in ``order``, then the axes inside a block. A dense level
has ``size`` children at every node; a sparse one lists the children of node n as ``indices[segments[n]:segments[n +
1]]``. Numbers are stored in the order of the leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.compiler.errors import CompileError, refuse

CONVERT_AGAIN = "convert the network again without sparsity"


class Dimension(NamedTuple):
    """A level of the tree: dense with ``size`` children, or sparse if there are ``segments``."""

    size: int
    segments: np.ndarray | None = None
    indices: np.ndarray | None = None


class Sparsity(NamedTuple):
    """The tree of a sparse tensor.

    ``order``: level -> axis, axes of blocks numbered after those of the tensor. ``blocks``: axis of a block -> the
    tensor's axis that it cuts."""

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[Dimension, ...]


def dense(numbers: np.ndarray, shape: tuple[int, ...], sparsity: Sparsity, name: str) -> np.ndarray:
    """Return an array of ``shape`` with the stored ``numbers`` in their places and 0 elsewhere. Raises CompileError."""
    order, blocks, levels = sparsity
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order) or not all(
            0 <= axis < rank for axis in blocks) or len(set(blocks)) != len(blocks):
        raise _unfit(name, f"levels {list(order)} with blocks of axes {list(blocks)}", f"one for each of {rank} axes")
    sizes = {axis: level.size for axis, level in zip(order, levels, strict=True) if axis >= rank}
    block = [1] * rank
    for number, axis in enumerate(blocks):
        block[axis] = sizes[rank + number]
    if min(block, default=1) < 1 or any(size % part for size, part in zip(shape, block, strict=True)):
        raise _unfit(name, f"blocks of {block}", f"sizes that divide {list(shape)}")
    whole = [size // part for size, part in zip(shape, block, strict=True)] + [block[axis] for axis in blocks]
    places = _leaves(levels, [whole[axis] for axis in order], numbers.size, name)
    found = np.zeros(whole, numbers.dtype)
    found[tuple(places[order.index(axis)] for axis in range(len(whole)))] = numbers
    axes = [axis for place in range(rank)
            for axis in (place, *(rank + number for number, cut in enumerate(blocks) if cut == place))]
    return found.transpose(axes).reshape(shape)


def _leaves(levels: tuple[Dimension, ...], sizes: list[int], count: int, name: str) -> list[np.ndarray]:
    """Return, for each level, the place along it of every leaf. There must be ``count`` leaves."""
    places: list[np.ndarray] = []
    nodes = 1
    most = max([count, *(len(level.segments) for level in levels if level.segments is not None)])
    for level, size in zip(levels, sizes, strict=True):
        if level.segments is None or level.indices is None:
            if level.size != size or nodes * size > most:
                raise _unfit(name, f"a level of {level.size}", size)
            children, inside = np.full(nodes, size), np.tile(np.arange(size), nodes)
        else:
            children, inside = np.diff(level.segments), level.indices
            if len(children) != nodes or (children < 0).any() or level.segments[0] != 0 or int(
                    level.segments[-1]) != len(inside) or not ((inside >= 0) & (inside < size)).all():
                raise _unfit(name, "indices that do not fit its segments", f"places below {size}")
        places = [np.repeat(there, children) for there in places] + [inside]
        nodes = len(inside)
    if nodes != count:
        raise _unfit(name, f"{count} numbers", f"{nodes}, as many as places")
    return places


def _unfit(name: str, found: str, allowed: object) -> CompileError:
    """Return the error for sparse weights that do not fit their tensor."""
    return refuse(f"sparse constant {name!r}", found, str(allowed), CONVERT_AGAIN)
