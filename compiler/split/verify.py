# SPDX-License-Identifier: Apache-2.0
"""Check the LIR of all cores together: what one core reads, another may have written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler import lir
from weft.compiler.errors import Fault
from weft.compiler.lir import DRAM0
from weft.compiler.lir_verifier import Verifier
from weft.compiler.memory.places import Allocation
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch


def verify_cores(schedules: Sequence[Schedule], arch: Arch, written: Sequence[Allocation], const_size: int) -> None:
    """Raise Fault at the first wrong operation of any core, or where cores would wait for each other for ever.

    Cores run in turns, each up to a wait that is not filled. ``written``: Vars that are there before they run."""
    checkers = [Verifier(arch, written, const_size) for _ in schedules]
    for checker in checkers[1:]:
        checker.valid[DRAM0] = checkers[0].valid[DRAM0]
    counters = np.zeros((arch.cores, arch.cores), np.int64)
    places = [0] * len(schedules)
    moved = True
    while moved:
        moved = False
        for core, schedule in enumerate(schedules):
            while places[core] < len(schedule.operations):
                operation = schedule.operations[places[core]]
                if isinstance(operation, lir.Signal) and not _signal(operation, core, counters):
                    break
                checkers[core].check(places[core], operation)
                places[core] += 1
                moved = True
    for core, (schedule, checker) in enumerate(zip(schedules, checkers, strict=True)):
        if places[core] < len(schedule.operations):
            raise Fault(f"core {core}, operation {places[core]}: a wait that no post fills")
        checker.finish(len(schedule.operations))
    if counters.any():
        raise Fault(f"posts that no core waits for: {counters.tolist()}")


def _signal(signal: lir.Signal, core: int, counters: np.ndarray) -> bool:
    """Run a Signal on counters [core, counter]; tell whether it ran."""
    if not signal.wait:
        counters[:, signal.counter] += [signal.above >> other & 1 for other in range(len(counters))]
        return True
    if counters[core, signal.counter] < signal.above:
        return False
    counters[core, signal.counter] -= signal.above
    return True
