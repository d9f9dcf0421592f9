# SPDX-License-Identifier: Apache-2.0
"""Merge the operations of two independent layers into the order in which each would start if it ran alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import ACCUMULATORS
from weft.compiler.lir_table import LirTable
from weft.compiler.scheduler.interleave import start_cycles
from weft.hw.contract.arch import Arch


def merged(first: Sequence[lir.Operation], second: Sequence[lir.Operation], arch: Arch) -> np.ndarray:
    """Return the order of both layers' operations, as indices into the first ones and behind them the second ones.

    Each layer's own order stays. The shorter one is spread over the longer one, so that none of its operations, which
    units take in this order, comes before its turn."""
    times = [_due(operations, arch) for operations in (first, second)]
    ends = [part[-1] if len(part) else 0.0 for part in times]
    if 0 < ends[1] < ends[0]:
        times[1] = times[1] * (ends[0] / ends[1])
    return np.argsort(np.concatenate(times), kind="stable")


def _due(operations: Sequence[lir.Operation], arch: Arch) -> np.ndarray:
    """Return float [operations]: the time, in cycles, by which :func:`merged` sorts each operation of one layer.

    A time is the operation's start if the layer ran alone, or the latest start of one before it if that is later.

    SIMD operations in a row have one time, so that nothing comes between what writes a register and what reads it. So
    do a LoadScale and the moves out of the accumulators behind it."""
    if not operations:
        return np.zeros(0)
    due = np.maximum.accumulate(start_cycles(LirTable.of(operations), arch).astype(float))
    heads = np.array([True, *(not _follows(*pair, arch) for pair in itertools.pairwise(operations))])
    return np.asarray(due[np.maximum.accumulate(np.where(heads, np.arange(len(due)), 0))])


def _follows(before: lir.Operation, operation: lir.Operation, arch: Arch) -> bool:
    """Tell whether an operation needs what the one before it leaves in its unit: registers, or scales."""
    if isinstance(operation, lir.Simd | lir.SimdLoop):
        return isinstance(before, lir.Simd | lir.SimdLoop)
    return arch.scheme.per_lane and _leaves(operation) and (isinstance(before, lir.LoadScale) or _leaves(before))


def _leaves(operation: lir.Operation) -> bool:
    """Tell whether an operation moves results out of the accumulators."""
    return isinstance(operation, lir.DataMove) and operation.to_local and operation.far.memory == ACCUMULATORS
