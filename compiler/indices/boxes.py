# SPDX-License-Identifier: Apache-2.0
"""Cut an image of source positions into boxes in which they grow evenly along rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

STRIDES = range(1, 9)
FEW_PLACES = 64


class Walk(NamedTuple):
    """A walk along one axis: ``length`` steps from ``first``, ``stride`` apart."""

    first: int
    stride: int
    length: int

    @property
    def indices(self) -> np.ndarray:
        """The places of the walk [length]."""
        return self.first + self.stride * np.arange(self.length)


def boxes(member: np.ndarray, sources: Sequence[np.ndarray] | np.ndarray) -> Iterator[tuple[Walk, Walk]]:
    """Yield boxes (rows, columns) that together cover ``member`` [height, width].

    In a box each of ``sources`` [height, width] grows evenly from row to row and from column to column."""
    left = member.copy()
    stack = np.asarray(sources, np.int64).reshape(-1, *member.shape)
    for row, column in np.argwhere(member):
        if not left[row, column]:
            continue
        columns = _longest([_line(left[row], stack[:, row], column, stride) for stride in STRIDES], column)
        taken = stack[:, :, columns.indices]
        steps = taken - taken[:, :, :1]
        lines = left[:, columns.indices].all(1) & (steps == steps[:, row:row + 1]).all((0, 2))
        rows = _longest([_line(lines, taken[:, :, 0], row, stride) for stride in STRIDES], row)
        left[np.ix_(rows.indices, columns.indices)] = False
        yield rows, columns


def _line(member: np.ndarray, sources: np.ndarray, first: int, stride: int) -> Walk:
    """Return the longest walk from ``first`` that stays inside ``member`` [pixels] and has one step in each source.

    ``sources`` is [sources, pixels]. Few places are tested first, since most walks of a shuffled image are short."""
    whole = range(first, len(member), stride)
    if len(whole) == 1:
        return Walk(int(first), stride, 1)
    count = FEW_PLACES
    while True:
        places = np.asarray(whole[:count])
        good = member[places]
        steps = np.diff(sources[:, places], axis=1)
        if steps.size:
            good = good & np.concatenate([[True], ((steps == steps[:, :1]) & (steps[:, :1] > 0)).all(0)])
        bad = np.flatnonzero(~good)
        if len(bad) or len(places) == len(whole):
            return Walk(int(first), stride, int(bad[0]) if len(bad) else len(places))
        count *= 8


def _longest(walks: Sequence[Walk], first: int) -> Walk:
    """Return the longest of ``walks``; if that has one step, the walk of the single place ``first``."""
    best = max(walks, key=lambda walk: walk.length)
    return best if best.length > 1 else Walk(int(first), 1, 1)


def alike_columns(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different columns of ``values`` [rows, columns] in ascending order [rows, kinds], and their kinds.

    The second result [columns] has the kind of each column. Columns are told apart by one sum each, in n log n steps;
    if two kinds have the same sum, by their values."""
    factors = np.random.default_rng(0).integers(np.iinfo(np.int64).max, size=(len(values), 1), dtype=np.int64) | 1
    _, first, kind = np.unique((values * factors).sum(0), return_index=True, return_inverse=True)
    if (values != values[:, first[kind]]).any():
        first = kind = np.arange(values.shape[1])
    order = np.lexsort(values[::-1, first])
    ordered = values[:, first[order]]
    new = np.concatenate([[True], (ordered[:, 1:] != ordered[:, :-1]).any(0)])
    number = np.empty_like(order)
    number[order] = np.cumsum(new) - 1
    return ordered[:, new], number[kind]
