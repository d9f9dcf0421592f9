# SPDX-License-Identifier: Apache-2.0
"""Check the LIR of all cores together: what one core reads, another may have written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler import lir
from weft.compiler.errors import Fault
from weft.compiler.lir_verifier import Program, Turn, verify_together
from weft.compiler.memory.allocation import Allocation
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch


def verify_cores(schedules: Sequence[Schedule], arch: Arch, written: Sequence[Allocation], const_size: int) -> None:
    """Raise Fault at the first wrong operation of any core, or where cores would wait for each other for ever.

    ``written``: Vars that are there before they run."""
    programs = [Program(schedule.table, f"core {core}, ")
                for core, schedule in enumerate(schedules)]
    verify_together(programs, turns_of(schedules, arch), arch, written, const_size)


def turns_of(schedules: Sequence[Schedule], arch: Arch) -> list[Turn]:
    """Return the turns in which cores may run, each up to a wait that is not filled.

    Raise Fault if they would wait for ever, and for posts that no core waits for."""
    counters = np.zeros((arch.cores, arch.cores), np.int64)
    signals = [schedule.table.numbers[lir.Signal].tolist() for schedule in schedules]
    places = [0] * len(schedules)
    turns: list[Turn] = []
    moved = True
    while moved:
        moved = False
        for core, schedule in enumerate(schedules):
            while signals[core] and _signal(schedule.operations[signals[core][0]], core, counters):
                del signals[core][0]
            end = signals[core][0] if signals[core] else schedule.table.count
            if end > places[core]:
                turns.append(Turn(core, places[core], end))
                places[core], moved = end, True
    for core, left in enumerate(signals):
        if left:
            raise Fault(f"core {core}, operation {left[0]}: a wait that no post fills")
    if counters.any():
        raise Fault(f"posts that no core waits for: {counters.tolist()}")
    return turns


def _signal(signal: lir.Operation, core: int, counters: np.ndarray) -> bool:
    """Run a Signal on counters [core, counter]; tell whether it ran."""
    assert isinstance(signal, lir.Signal)
    if not signal.wait:
        counters[lir.posted_to(signal.above), signal.counter] += 1
        return True
    if counters[core, signal.counter] < signal.above:
        return False
    counters[core, signal.counter] -= signal.above
    return True
