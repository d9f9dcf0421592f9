# SPDX-License-Identifier: Apache-2.0
"""Reduce groups of elements where they lie, to sums, means or maxima, and spread results over them again.

A group is one class of channels in one class of rows and one of columns. So a tensor is normalised without moving it,
whichever of its axes lie as channels. Sums over channels are 1x1 convolutions. The maximum of channels is a tournament:
for each pair max(a, b) = a + relu(b - a), with half as many left in each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler.frontend.graph import Node, Within
from weft.compiler.indices.index import FILL
from weft.compiler.lowering.gather import exact, take
from weft.compiler.lowering.pieces import choose
from weft.compiler.lowering.pool import weighted
from weft.compiler.lowering.rewrite import NO_WINDOW, Rewrite


@dataclass(frozen=True)
class Groups:
    """Groups of elements of the canonical ``tensor`` that are reduced together.

    ``channels``, ``rows``, ``columns``: the class of each, numbered from 0. ``where``: the places of the elements.
    ``kept`` [classes of channels, of rows, of columns]: the number of each group among the results."""

    tensor: str
    where: np.ndarray
    channels: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    kept: np.ndarray

    @property
    def members(self) -> tuple[int, int]:
        """The channels and the pixels of a group."""
        channels, rows, columns = self.kept.shape
        pixels = len(self.rows) * len(self.columns)
        return len(self.channels) // channels, pixels // (rows * columns)

    def result_index(self, shape: Sequence[int]) -> np.ndarray:
        """Return where the elements of a result of ``shape`` lie in a tensor [1, *kept.shape]."""
        index = np.empty(self.kept.size, np.int64)
        index[self.kept.ravel()] = np.arange(self.kept.size)
        return index.reshape(shape)


def groups(state: Rewrite, node: Node, name: str, axes: Sequence[int]) -> Groups:
    """Return the groups of a tensor of the model that is reduced over ``axes``.

    Elements are moved only if nothing else helps. Raise CompileError if even then they do not form groups."""
    found = _lying(state, node, name, axes)
    if found is None:
        shape = state.graph.shapes[name]
        state.hold(name, exact(state, node, name), None)
        found = _lying(state, node, name, axes)
        if found is None:
            raise state.refusal(node, "axes", list(axes), f"axes of {list(shape)} that lie as whole groups")
    return found


def _lying(state: Rewrite, node: Node, name: str, axes: Sequence[int]) -> Groups | None:
    """Return the groups of a tensor where its elements lie, or None if they do not form groups there."""
    shape, index, tensor = state.graph.shapes[name], state.index(name), state.held[name].tensor
    _, channels, height, width = state.shapes[tensor]
    if (index == FILL).any() or len(np.unique(index)) != index.size:
        return None
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    number = np.broadcast_to(np.arange(np.prod(kept, dtype=int)).reshape(kept), shape)
    grid = np.full((channels, height, width), FILL)
    grid.ravel()[index.ravel()] = number.ravel()
    used = (grid != FILL).any((1, 2))
    if (grid[used] == FILL).any():
        return None
    classes = [_classes(line) for line in (grid[used][:, 0, 0], grid[used][0, :, 0], grid[used][0, 0])]
    firsts = np.ix_(*(first for first, _ in classes))
    of_group = grid[used][firsts]
    numbers = classes[0][1], classes[1][1], classes[2][1]
    if len(np.unique(of_group)) != of_group.size or (of_group[np.ix_(*numbers)] != grid[used]).any():
        return None
    if not used.all():
        tensor = choose(state, node, tensor, np.flatnonzero(used))
        place = np.cumsum(used) - 1
        index = place[index // (height * width)] * (height * width) + index % (height * width)
    return Groups(tensor, index, *numbers, of_group)


def _classes(line: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first place of each different number in ``line``, in order, and the class of each element."""
    _, first, inverse = np.unique(line, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


# -- reductions --------------------------------------------------------------------------------------------------------
def total(state: Rewrite, node: Node, tensor: str, of: Groups, factor: float, part: str) -> str:
    """Add nodes that compute ``factor`` times the sum of each group of ``of``; return the name of their result.

    The result has the shape [1, *of.kept.shape]. ``tensor`` has its elements where ``of.tensor`` has them, and may have
    further channels behind those. ``part`` ends the name of the convolution that adds or scales channels."""
    count = state.shapes[tensor][1]
    classes, rows, columns = of.kept.shape
    if classes != len(of.channels) or count != classes:
        weights = state.weights(node, (classes, count, 1, 1))
        weights[of.channels, np.arange(len(of.channels))] = factor
        tensor = state.conv(node, tensor, weights, np.zeros(1), state.shapes[tensor][2:], part)
        factor = 1.0
    if of.members[1] > 1:
        for of_line, kinds in ((of.rows, rows), (of.columns, columns)):
            state.need_matrix(node, kinds, len(of_line))
        return weighted(state, node, tensor, _chosen(of.rows, rows) * factor, _chosen(of.columns, columns))
    return tensor if factor == 1 else state.scale(node, tensor, factor, part=part)


def _chosen(classes: np.ndarray, count: int) -> np.ndarray:
    """Return the matrix [count, elements] that adds up the elements of each class."""
    return (np.arange(count)[:, None] == classes).astype(np.float64)


def largest(state: Rewrite, node: Node, of: Groups) -> str:
    """Add nodes that compute the maximum of each group; return the name of the result, [1, *of.kept.shape]."""
    tensor = of.tensor
    for axis, classes in ((3, of.columns), (2, of.rows)):
        tensor = _pooled(state, node, tensor, axis, classes, of.kept.shape[axis - 1])
    order = np.argsort(of.channels, kind="stable").reshape(of.kept.shape[0], -1)
    while order.shape[1] > 1:
        tensor, order = _round(state, node, tensor, order)
    return tensor if np.array_equal(order.ravel(), np.arange(state.shapes[tensor][1])) else choose(
        state, node, tensor, order.ravel())


def _pooled(state: Rewrite, node: Node, tensor: str, axis: int, classes: np.ndarray, count: int) -> str:
    """Add a MaxPool over rows (axis 2) or columns (axis 3) if it is needed; return the name of the result.

    ``classes`` has the class of each row or column, below ``count``. Raise CompileError unless the members of a class
    are neighbours, or lie ``count`` apart."""
    members = len(classes) // count
    if members == 1:
        return tensor
    line = np.arange(len(classes))
    stride, dilation = (members, 1) if np.array_equal(classes, line // members) else (1, count)
    if not np.array_equal(classes, line // members if dilation == 1 else line % count):
        raise state.refusal(node, "axes", "elements of a group far apart", "axes next to each other")
    pairs = {key: tuple(value if place == axis else 1 for place in (2, 3))
             for key, value in (("kernel_shape", members), ("strides", stride), ("dilations", dilation))}
    size = [count if place == axis else state.shapes[tensor][place] for place in (2, 3)]
    made = state.emit(node, "MaxPool", [tensor], {**NO_WINDOW, "ceil_mode": 0, **pairs},
                      (1, state.shapes[tensor][1], *size), "largest")
    return state.bound(made, Within(tensor))


def _round(state: Rewrite, node: Node, tensor: str, order: np.ndarray) -> tuple[str, np.ndarray]:
    """Add nodes that compute the larger of each pair of channels; return the result's name, and its channels by class.

    ``order`` [classes, members] has the channels of each class in ``tensor``. The channels that are returned have the
    same form, with half as many members, rounded up."""
    half = -(-order.shape[1] // 2)
    left, right = order[:, :half].ravel(), order[:, -half:].ravel()
    count, place, size = state.shapes[tensor][1], np.arange(len(left)), state.shapes[tensor][2:]
    ahead, own = (state.weights(node, (len(left), count, 1, 1)) for _ in range(2))
    ahead[place, right] += 1
    ahead[place, left] -= 1
    own[place, left] = 1
    lead = state.conv(node, tensor, ahead, np.zeros(1), size, "lead")
    state.bound(lead, Within(tensor, differences=True))
    kept = state.conv(node, tensor, own, np.zeros(1), size, "kept")
    made = state.bound(state.add(node, kept, state.relu(node, lead, "lead"), "larger"), Within(tensor))
    return made, np.arange(len(left)).reshape(len(order), half)


# -- and back ----------------------------------------------------------------------------------------------------------
def spread(state: Rewrite, node: Node, small: str, of: Groups, factor: float = 1.0, filled: int = 0) -> str:
    """Add nodes that copy ``factor`` times the result of each group to all its elements; return the tensor's name.

    ``small`` holds the results, [1, *of.kept.shape], perhaps with further channels behind them. The new tensor has at
    least ``filled`` channels; those without a group hold 0."""
    made = max(len(of.channels), filled)
    _, rows, columns = of.kept.shape
    count = state.shapes[small][1]
    if of.members[1] > 1:
        pixels = of.rows[:, None] * columns + of.columns
        source = np.arange(count)[:, None, None] * (rows * columns) + pixels
        small, moved = take(state, node, small, source, 0.0)
        assert moved is None
    if factor == 1 and np.array_equal(of.channels, np.arange(count)) and made == count:
        return small
    weights = state.weights(node, (made, count, 1, 1))
    weights[np.arange(len(of.channels)), of.channels] = factor
    return state.conv(node, small, weights, np.zeros(1), state.shapes[small][2:], "spread")
