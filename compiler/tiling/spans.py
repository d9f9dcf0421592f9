# SPDX-License-Identifier: Apache-2.0
"""Turn boxes of vectors into walks that one instruction can do: rows x size, with strides and pitches."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.walk import encodable
from weft.tmodel.window import Size


class Axis(NamedTuple):
    """One axis of a copy: ``steps`` of ``near`` vectors on one side and of ``far`` vectors on the other."""

    steps: int
    near: int
    far: int


class PairedWalk(NamedTuple):
    """The addresses of one instruction on both sides; ``near`` and ``far`` count from the sides' bases."""

    near: int
    far: int
    size: int
    near_stride: int
    far_stride: int
    rows: int
    near_pitch: int
    far_pitch: int


class Box(NamedTuple):
    """A box of a tensor: channel tiles, rows and columns, each half open."""

    tiles: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def size(self) -> Size:
        """The numbers of rows and columns."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]

    @property
    def pixels(self) -> int:
        """The pixels of one channel tile."""
        return (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])

    @property
    def vectors(self) -> int:
        """The vectors of all channel tiles."""
        return (self.tiles[1] - self.tiles[0]) * self.pixels

    def of(self, tiles: tuple[int, int]) -> Box:
        """Return the same rows and columns of other channel tiles."""
        return Box(tiles, self.rows, self.columns)

    def meeting(self, other: Box) -> Box | None:
        """Return what two boxes have in common, None for nothing."""
        axes = [(max(own[0], its[0]), min(own[1], its[1])) for own, its in (
            (self.tiles, other.tiles), (self.rows, other.rows), (self.columns, other.columns))]
        return Box(*axes) if all(low < high for low, high in axes) else None

    def within(self, rows: tuple[int, int], columns: tuple[int, int]) -> Box:
        """Return other rows and columns of the same channel tiles."""
        return Box(self.tiles, rows, columns)


class View(NamedTuple):
    """The place of a box of a tensor in some memory, from address ``base`` on, columns innermost.

    ``walk``: vectors from channel tile to channel tile, row to row, column to column, if the box lies inside a larger
    tensor; None if it lies densely."""

    base: int
    box: Box
    walk: tuple[int, int, int] | None = None

    @property
    def pitches(self) -> tuple[int, int, int]:
        """Vectors from channel tile to channel tile, from row to row and from column to column."""
        if self.walk is not None:
            return self.walk
        _, (top, bottom), (left, right) = self.box
        return (bottom - top) * (right - left), right - left, 1

    @property
    def pitch(self) -> int:
        """Vectors from row to row."""
        return self.pitches[1]

    @property
    def tile_pitch(self) -> int:
        """Vectors from channel tile to channel tile."""
        return self.pitches[0]

    @property
    def step(self) -> int:
        """Vectors from column to column."""
        return self.pitches[2]

    def address(self, tile: int, row: int, column: int) -> int:
        """Return the address of a pixel of a channel tile."""
        base, ((first, _), (top, bottom), (left, right)), walk = self
        tile_pitch, pitch, step = walk or ((bottom - top) * (right - left), right - left, 1)
        return base + (tile - first) * tile_pitch + (row - top) * pitch + (column - left) * step


def spans(axes: Sequence[Axis], arch: Arch) -> tuple[PairedWalk, ...]:
    """Return the fewest walks, in order, that cover ``axes`` (outermost first)."""
    return _spans(tuple(axes), arch.stride0_depth, arch.stride1_depth)


@functools.lru_cache(maxsize=1 << 14)
def _spans(axes: tuple[Axis, ...], near_depth: int, far_depth: int) -> tuple[PairedWalk, ...]:
    """Return :func:`spans` on a machine with strides of these depths; many boxes of a layer have the same."""
    merged = _merge(axes)
    inner = merged[-1]
    strided = encodable(inner.near, near_depth) and encodable(inner.far, far_depth)
    size_axis = inner if strided else Axis(1, 1, 1)
    rest = merged[:-1] if strided else merged
    rows = rest[-1] if rest else Axis(1, 0, 0)
    return tuple(PairedWalk(near, far, size_axis.steps, size_axis.near, size_axis.far, rows.steps, rows.near, rows.far)
                 for near, far in _offsets(rest[:-1]))


def repeated(walks: Iterable[PairedWalk]) -> list[PairedWalk]:
    """Return fewer walks that visit the same vectors.

    Single-row walks with the same far vectors, and near vectors at equal distances, become one walk of several rows."""
    found: list[PairedWalk] = []
    for span in walks:
        last = found[-1] if found else span
        pitch = span.near - last.near - (last.rows - 1) * last.near_pitch
        alike = last._replace(near=span.near, rows=1, near_pitch=span.near_pitch) == span
        if found and alike and not last.far_pitch and pitch > 0 and (last.rows == 1 or pitch == last.near_pitch):
            found[-1] = last._replace(rows=last.rows + 1, near_pitch=pitch)
        else:
            found.append(span)
    return found


def _merge(axes: Sequence[Axis]) -> list[Axis]:
    """Return the axes without those of one step, with neighbours joined if one continues the other on both sides."""
    merged: list[Axis] = []
    for axis in reversed([axis for axis in axes if axis.steps > 1]):
        inner = merged[0] if merged else None
        if inner and axis.near == inner.steps * inner.near and axis.far == inner.steps * inner.far:
            merged[0] = Axis(axis.steps * inner.steps, inner.near, inner.far)
        else:
            merged.insert(0, axis)
    return merged or [Axis(1, 1, 1)]


def _offsets(axes: Sequence[Axis]) -> Iterator[tuple[int, int]]:
    """Yield the offset on both sides of every step of ``axes``, the last axis innermost."""
    if not axes:
        yield 0, 0
        return
    for step in range(axes[0].steps):
        for near, far in _offsets(axes[1:]):
            yield step * axes[0].near + near, step * axes[0].far + far


def between(box: Box, near: View, far: View) -> list[Axis]:
    """Return the axes of a copy of ``box`` between two views that both hold it: channel tiles, rows, columns.

    Each axis has the number of steps, and the vectors from one step to the next in both views."""
    return [Axis(end - first, own, other)
            for (first, end), own, other in zip(box, near.pitches, far.pitches, strict=True)]


@overload
def part_count(count: int, size: int) -> int: ...


@overload
def part_count(count: int | np.ndarray, size: np.ndarray) -> np.ndarray: ...


def part_count(count: Any, size: Any) -> Any:
    """Return the number of groups of ``size`` that ``count`` things make; arrays are taken element by element."""
    return -(-count // size)


def groups(count: int, size: int, first: int = 0) -> list[tuple[int, int]]:
    """Return first..count cut into half-open ranges of at most ``size``."""
    if first < count <= first + size:
        return [(first, count)]
    return [(low, min(low + size, count)) for low in range(first, count, size)]
