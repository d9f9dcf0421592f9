# SPDX-License-Identifier: Apache-2.0
"""Merge the operations of two independent layers into the order in which each would start if it ran alone."""

from __future__ import annotations

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import ACCUMULATORS
from weft.compiler.lir_table import MEMORY_NUMBERS, LirTable
from weft.compiler.scheduler.interleave import start_cycles
from weft.hw.contract.arch import Arch


def merged(first: LirTable, second: LirTable, arch: Arch) -> np.ndarray:
    """Return the order of both layers' operations, as indices into the first ones and behind them the second ones.

    Each layer's own order stays. The shorter one is spread over the longer one, so that none of its operations, which
    units take in this order, comes before its turn."""
    times = [_due(table, arch) for table in (first, second)]
    ends = [part[-1] if len(part) else 0.0 for part in times]
    if 0 < ends[1] < ends[0]:
        times[1] = times[1] * (ends[0] / ends[1])
    return np.argsort(np.concatenate(times), kind="stable")


def _due(table: LirTable, arch: Arch) -> np.ndarray:
    """Return float [operations]: the time, in cycles, by which :func:`merged` sorts each operation of one layer.

    A time is the operation's start if the layer ran alone, or the latest start of one before it if that is later.

    SIMD operations in a row have one time, so that nothing comes between what writes a register and what reads it. So
    do a LoadScale and the moves out of the accumulators behind it."""
    due = np.maximum.accumulate(start_cycles(table, arch).astype(float))
    heads = np.where(_follows(table, arch), 0, np.arange(table.count))
    return np.asarray(due[np.maximum.accumulate(heads)])


def _follows(table: LirTable, arch: Arch) -> np.ndarray:
    """Return bool [operations]: whether each needs what the one before it leaves in its unit, registers or scales."""
    simd, scales, leaves = np.zeros((3, table.count), bool)
    for kind in (lir.Simd, lir.SimdLoop):
        simd[table.numbers[kind]] = True
    scales[table.numbers[lir.LoadScale]] = True
    numbers, move = table.of_kind(lir.DataMove)
    leaves[numbers] = (move.to_local != 0) & (move.far.memory == MEMORY_NUMBERS[ACCUMULATORS])
    found = np.zeros(table.count, bool)
    found[1:] = simd[1:] & simd[:-1]
    if arch.scheme.per_lane:
        found[1:] |= leaves[1:] & (scales | leaves)[:-1]
    return found
