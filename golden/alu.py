# SPDX-License-Identifier: Apache-2.0
"""The SIMD operations on scalars of the data type, lane by lane (docs/machine/number-schemes.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.numerics import DataType

Vectors = np.ndarray
"""Vectors of scalars, int64 of shape [..., lanes]."""


def logical(number: DataType, truth: np.ndarray) -> Vectors:
    """Return the scalars 1 and 0 for true and false."""
    return truth.astype(np.int64) << number.point


OPERATIONS: dict[SimdOpcode, Callable[..., Vectors]] = {
    SimdOpcode.NO_OP: lambda number, input: input,
    SimdOpcode.ZERO: lambda number, input: np.zeros_like(input),
    SimdOpcode.MOVE: lambda number, left: left,
    SimdOpcode.NOT: lambda number, left: logical(number, left == 0),
    SimdOpcode.AND: lambda number, left, right: logical(number, (left != 0) & (right != 0)),
    SimdOpcode.OR: lambda number, left, right: logical(number, (left != 0) | (right != 0)),
    SimdOpcode.INCREMENT: lambda number, left: number.saturate(left + number.one),
    SimdOpcode.DECREMENT: lambda number, left: number.saturate(left - number.one),
    SimdOpcode.ADD: lambda number, left, right: number.saturate(left + right),
    SimdOpcode.SUBTRACT: lambda number, left, right: number.saturate(left - right),
    SimdOpcode.MULTIPLY: lambda number, left, right: number.multiply(left, right),
    SimdOpcode.ABS: lambda number, left: number.saturate(np.abs(left)),
    SimdOpcode.GREATER_THAN: lambda number, left, right: logical(number, left > right),
    SimdOpcode.GREATER_THAN_EQUAL: lambda number, left, right: logical(number, left >= right),
    SimdOpcode.MIN: lambda number, left, right: np.minimum(left, right),
    SimdOpcode.MAX: lambda number, left, right: np.maximum(left, right),
}
"""Opcode -> function of the data type and the sources; NoOp and Zero, without sources, get the input.

Lookup is not in it: see :func:`lookup`."""


def lookup(number: DataType, luts: np.ndarray, argument: Vectors) -> list[Vectors]:
    """Return the difference of ``argument`` to the nearest key, and the value of each table there.

    ``luts`` is [1 + tables, entries, lanes], keys first; the keys' spacing is the lowest power of two in key 1 - key
    0."""
    lanes = np.arange(luts.shape[2])
    first = luts[0, 0]
    shift = spacing_log2(luts[0, 1] - first, number.width)
    index = (argument - first + ((1 << shift) >> 1)) >> shift
    index = np.clip(index, 0, luts.shape[1] - 1)
    difference = number.saturate(argument - (first + (index << shift)))
    return [difference, *(table[index, lanes] for table in luts[1:])]


def spacing_log2(difference: Vectors, width: int) -> Vectors:
    """Return the trailing zeros of key 1 - key 0; width - 1 if the keys are equal."""
    difference = np.where(difference == 0, 1 << (width - 1), difference)
    return np.bitwise_count((difference & -difference) - 1).astype(np.int64)
