# SPDX-License-Identifier: Apache-2.0
"""LoadWeights and MatMuls as rows of integers: from step to step they are the same but for where they begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import ACCUMULATORS, LOCAL, Address, Settings
from weft.compiler.lir_table import ABSENT, MEMORY_NUMBERS, LirTable


class Row(NamedTuple):
    """A LoadWeight or a MatMul; addresses count from the bases of its ``MatMuls``.

    ``loads``: it is a LoadWeight, of ``size`` vectors from ``near`` on, and ``flag`` is its ``zero_bias``. Of a MatMul
    ``flag`` is ``accumulate``, and ``settings`` a number of the emitter's settings; ``there``: it has an input."""

    loads: bool
    there: bool
    near: int
    far: int
    size: int
    flag: bool
    settings: int = 0
    near_stride: int = 1
    far_stride: int = 1
    rows: int = 1
    near_pitch: int = 0
    far_pitch: int = 0


class MatMuls(NamedTuple):
    """LoadWeights and MatMuls in program order: ``rows`` int64 [operations, fields of ``Row``].

    LoadWeights count from vector ``weights`` of local memory on, MatMuls from vector ``near`` of local memory and
    vector ``far`` of the accumulators."""

    rows: np.ndarray
    weights: int
    near: int
    far: int


Emitted = lir.Operation | MatMuls
"""What layers are emitted as: operations, and many of them at once."""


class Emission(NamedTuple):
    """The operations that a layer emits, in program order; rows have the numbers of ``settings``."""

    emitted: Sequence[Emitted]
    settings: Sequence[Settings]

    @property
    def counts(self) -> list[int]:
        """The number of operations of each thing that is emitted."""
        return [len(each.rows) if isinstance(each, MatMuls) else 1 for each in self.emitted]


def within(emitted: Iterable[Emitted], most: int) -> list[Emitted]:
    """Return what is emitted, up to the first operation beyond ``most`` operations."""
    found: list[Emitted] = []
    for each in emitted:
        found.append(each)
        most -= len(each.rows) if isinstance(each, MatMuls) else 1
        if most < 0:
            break
    return found


def table_of(emissions: Sequence[Emission]) -> LirTable:
    """Return the table of what layers emit, one layer's operations behind another's."""
    every = [each for emission in emissions for each in emission.emitted]
    groups = [each for each in every if isinstance(each, MatMuls)]
    apart = [each for each in every if not isinstance(each, MatMuls)]
    grouped = np.repeat(np.array([isinstance(each, MatMuls) for each in every], bool),
                        np.array([count for emission in emissions for count in emission.counts], np.int64))
    order = np.empty(len(grouped), np.int64)
    order[~grouped] = np.arange(len(apart))
    order[grouped] = np.arange(len(apart), len(grouped))
    return LirTable.joined([LirTable.of(apart), _table(groups, emissions)]).ordered(order)


def _table(groups: Sequence[MatMuls], emissions: Sequence[Emission]) -> LirTable:
    """Return the table of all ``groups`` of LoadWeights and MatMuls that are in ``emissions``."""
    none = np.zeros((0, len(Row._fields)), np.int64)
    rows = np.concatenate([none, *(group.rows for group in groups)])
    firsts = np.cumsum([0, *(len(emission.settings) for emission in emissions)])[:-1]
    many = [sum(isinstance(each, MatMuls) for each in emission.emitted) for emission in emissions]
    bases = np.column_stack([np.array([group[1:] for group in groups], np.int64).reshape(-1, 3),
                             np.repeat(firsts, many)])  # of weights, near, far and settings
    bases = np.repeat(bases, [len(group.rows) for group in groups], axis=0)
    loads = rows[:, 0] != 0
    load: Any = Row(*rows[loads].T)
    own: Any = Row(*rows[~loads].T)
    weights, (near, far, first) = bases[loads, 0], bases[~loads, 1:].T
    empty = LirTable.of(())
    mat_muls = lir.MatMul(
        _address(np.where(own.there, MEMORY_NUMBERS[LOCAL], ABSENT), np.where(own.there, near + own.near, 0)),
        _address(np.full(len(far), MEMORY_NUMBERS[ACCUMULATORS]), far + own.far), own.size, first + own.settings,
        own.flag, own.near_stride, own.far_stride, own.rows, own.near_pitch, own.far_pitch)
    load_weights = lir.LoadWeight(_address(np.full(len(weights), MEMORY_NUMBERS[LOCAL]), weights + load.near),
                                  load.size, load.flag)
    numbers = {**empty.numbers, lir.MatMul: np.flatnonzero(~loads), lir.LoadWeight: np.flatnonzero(loads)}
    fields = {**empty.fields, lir.MatMul: mat_muls, lir.LoadWeight: load_weights}
    settings = tuple(each for emission in emissions for each in emission.settings)
    return LirTable(numbers, fields, settings, len(rows))


def _address(memories: np.ndarray, offsets: np.ndarray) -> Address:
    """Return addresses as a table has them: one ``Address`` of two arrays."""
    return Address(memories, offsets)  # type: ignore[arg-type]
