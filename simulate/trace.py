# SPDX-License-Identifier: Apache-2.0
"""Turn the simulation's event file into a table: when each operation was issued, started and finished.

The events are those of the machine's trace port (``hw/control/trace.py``); ``sv/trace.cpp`` writes them."""

from __future__ import annotations

import enum
from pathlib import Path

import numpy as np

from weft.hw.contract.units import NEVER, OPERATION, UNIT_NAMES

__all__ = ["NEVER", "OPERATION", "UNIT_NAMES", "Kind", "read_operations"]


class Kind(enum.IntEnum):
    """The kinds of events; the port's signals are in this order."""

    BEGIN = 0
    ISSUED = 1
    STARTED = 2
    FINISHED = 3


_EVENT = np.dtype([("cycle", "<u8"), ("program_counter", "<u4"), ("kind", "u1"), ("unit", "u1"), ("core", "<u2")])


def read_operations(file: Path, core: int = 0) -> list[np.ndarray]:
    """Return ``OPERATION`` [operations] in the order of issue, for each program that was started on a core."""
    events = np.fromfile(file, _EVENT)
    events = events[events["core"] == core]
    events["cycle"] += 1  # the port's count is a cycle behind
    begins = np.flatnonzero(events["kind"] == Kind.BEGIN)
    return [_operations(part) for part in np.split(events, begins)[1:]]


def _operations(events: np.ndarray) -> np.ndarray:
    """Return the operations of one program: the n-th start and finish of a unit belong to its n-th issue."""
    of_kind = {kind: events[events["kind"] == kind] for kind in Kind}
    issued = of_kind[Kind.ISSUED]
    table = np.full(len(issued), NEVER, OPERATION)
    table["program_counter"], table["unit"] = issued["program_counter"], issued["unit"]
    table["issue_cycle"] = issued["cycle"]
    for column, kind in (("start_cycle", Kind.STARTED), ("finish_cycle", Kind.FINISHED)):
        for unit in range(len(UNIT_NAMES)):
            cycles = of_kind[kind]["cycle"][of_kind[kind]["unit"] == unit]
            table[column][np.flatnonzero(table["unit"] == unit)[:len(cycles)]] = cycles
    return table
