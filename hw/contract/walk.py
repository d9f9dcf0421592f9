# SPDX-License-Identifier: Apache-2.0
"""Walks: the vectors of one memory that an operand of an instruction names, in the order of visits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Walk(NamedTuple):
    """A walk over ``rows`` rows of ``size`` vectors: row r, vector k is at base + r * pitch + k * stride.

    All numbers are in vectors. ``base`` and ``last`` also work if the fields are arrays, with a walk for each
    element."""

    base: int
    size: int
    stride: int = 1
    rows: int = 1
    pitch: int = 0

    @property
    def last(self) -> int:
        """The highest address, if stride and pitch are not negative."""
        return self.base + (self.size - 1) * self.stride + (self.rows - 1) * self.pitch

    def moved(self, vectors: int) -> Walk:
        """Return this walk moved by a number of vectors."""
        return self._replace(base=self.base + vectors)

    def addresses(self) -> np.ndarray:
        """Return every address, int [rows, size]."""
        return self.base + self.pitch * np.arange(self.rows)[:, None] + self.stride * np.arange(self.size)

    def slices(self) -> Iterator[slice]:
        """Yield one slice of addresses for each row; no address comes twice in it, since strides are 1 or more."""
        length = (self.size - 1) * self.stride + 1
        for row in range(self.rows):
            start = self.base + row * self.pitch
            yield slice(start, start + length, self.stride)

    def parts(self) -> Iterator[slice | np.ndarray]:
        """Yield indices of the addresses, in order: one of all rows that lie behind each other, else one for each row.

        No address comes twice in an index."""
        if self.pitch == self.size * self.stride:
            yield slice(self.base, self.last + 1, self.stride)
        elif self.rows > 1 and self.pitch > (self.size - 1) * self.stride:
            yield self.addresses().ravel()
        else:
            yield from self.slices()


def encodable(stride: int, depth: int) -> bool:
    """Tell whether a stride of so many vectors has a code on a machine with strides up to 2 ** (depth - 1)."""
    return stride > 0 and not stride & (stride - 1) and stride.bit_length() <= depth
