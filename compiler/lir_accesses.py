# SPDX-License-Identifier: Apache-2.0
"""The accesses of a LIR program: the exact walks that each operation reads and writes, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.compiler import lir
from weft.compiler.lir_table import MEMORY_NUMBERS, LirTable
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES

ACCESS = np.dtype([("operation", "<i8"), ("memory", "<i8"), ("writes", "<i8"), ("base", "<i8"), ("size", "<i8"),
                   ("stride", "<i8"), ("rows", "<i8"), ("pitch", "<i8")])
"""A walk of an operation: row r, vector k is at base + r * pitch + k * stride of ``memory``, of MEMORY_NUMBERS."""

_LOCAL, _ACCUMULATORS = MEMORY_NUMBERS[lir.LOCAL], MEMORY_NUMBERS[lir.ACCUMULATORS]


class _Some(NamedTuple):
    """Accesses of some operations: ``rank`` says which ones of an operation come first."""

    rank: int
    table: np.ndarray


def accesses_of(table: LirTable) -> np.ndarray:
    """Return the ACCESS of all operations, in program order; of one operation reads come before writes."""
    found = [*_mat_muls(table), *_data_moves(table), *_simd(table)]
    for kind, size in ((lir.LoadWeight, None), (lir.LoadLut, None), (lir.LoadScale, SCALE_VECTORS),
                       (lir.LoadActivationTable, TABLE_ENTRIES)):
        numbers, entry = table.of_kind(kind)
        found.append(_access(0, numbers, entry.local, False, entry.size if size is None else size))
    ranks = np.repeat([some.rank for some in found], [len(some.table) for some in found])
    together = np.concatenate([some.table for some in found])
    return together[np.lexsort((ranks, together["operation"]))]


def _access(rank: int, numbers: np.ndarray, address: Any, writes: bool, size: Any, stride: Any = 1, rows: Any = 1,
            pitch: Any = 0, where: Any = True) -> _Some:
    """Return the accesses of the operations ``numbers`` at addresses that are there, and ``where`` that is true."""
    there = (address.memory >= 0) & where
    made = np.empty(int(there.sum()), ACCESS)
    for name, values in (("operation", numbers), ("memory", address.memory), ("writes", writes),
                         ("base", address.offset), ("size", size), ("stride", stride), ("rows", rows),
                         ("pitch", pitch)):
        made[name] = np.broadcast_to(values, there.shape)[there]
    return _Some(rank, made)


def _mat_muls(table: LirTable) -> list[_Some]:
    """Return the walks that MatMuls read and write; a depthwise one reads a walk for each row of taps that counts."""
    numbers, entry = table.of_kind(lir.MatMul)
    moves = table.tap_moves()
    found = []
    for row in range(max(map(len, moves), default=0)):
        counts = np.array([len(own) > row for own in moves])[entry.settings]
        moved = np.array([own[row] if len(own) > row else 0 for own in moves])[entry.settings]
        local = entry.local._replace(offset=entry.local.offset + moved)
        found.append(_access(row, numbers, local, False, entry.size, entry.local_stride, entry.rows,
                             entry.local_pitch, counts))
    dropped = np.where(table.setting(Register.TAP_ORIGIN) > 0, table.setting(Register.TAP_DROPPED), 0)
    written = (entry.size - dropped[entry.settings], entry.accumulator_stride, entry.rows, entry.accumulator_pitch)
    return [*found, _access(8, numbers, entry.accumulator, False, *written, where=entry.accumulate != 0),
            _access(9, numbers, entry.accumulator, True, *written)]


def _data_moves(table: LirTable) -> list[_Some]:
    """Return the walks that DataMoves read and write; a move that accumulates reads its target too."""
    numbers, entry = table.of_kind(lir.DataMove)
    inward = entry.to_local != 0
    near = (entry.size, entry.local_stride, entry.rows, entry.local_pitch)
    far = (entry.size, entry.far_stride, entry.rows, entry.far_pitch)
    return [_access(0, numbers, entry.far, False, *far, where=inward),
            _access(0, numbers, entry.local, False, *near, where=~inward),
            _access(1, numbers, entry.far, False, *far, where=~inward & (entry.accumulate != 0)),
            _access(2, numbers, entry.local, True, *near, where=inward),
            _access(2, numbers, entry.far, True, *far, where=~inward)]


def _simd(table: LirTable) -> list[_Some]:
    """Return the walks that SIMD operations read and write; in a loop's body those of all iterations."""
    numbers, entry = table.of_kind(lir.Simd)
    _, counts = table.loops()
    return [_access(0, numbers, entry.read, False, np.where(entry.hold, 1, counts), entry.read_stride),
            _access(1, numbers, entry.write, True, counts, entry.write_stride)]
