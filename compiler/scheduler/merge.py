# SPDX-License-Identifier: Apache-2.0
"""Merge the operations of two independent layers into the order in which each would start if it ran alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler import lir
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
    """Return [operations]: when each would start, or one before it if that is later.

    SIMD operations in a row have one time, so that nothing comes between what writes a register and what reads it."""
    if not operations:
        return np.zeros(0)
    due = np.maximum.accumulate(start_cycles(LirTable.of(operations), arch).astype(float))
    on_simd = np.array([isinstance(operation, lir.Simd | lir.SimdLoop) for operation in operations])
    heads = ~(on_simd & np.concatenate([[False], on_simd[:-1]]))
    return np.asarray(due[np.maximum.accumulate(np.where(heads, np.arange(len(due)), 0))])
