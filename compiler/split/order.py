# SPDX-License-Identifier: Apache-2.0
"""Sort the operations of all cores by when they would start, so that a wait stands behind the post that fills it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from weft.compiler import lir
from weft.compiler.scheduler.interleave import Timeline
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch


def ordered(schedules: Sequence[Schedule], arch: Arch) -> list[Schedule]:
    """Return the schedules of all cores in the order of starts, which is one order for all of them.

    So run one after another by their starts, operations of all cores never wait in vain: no core waits for a post that
    stands behind a wait of its own."""
    return [schedule.ordered(np.argsort(starts, kind="stable"))
            for schedule, starts in zip(schedules, common_starts(schedules, arch), strict=True)]


def common_starts(schedules: Sequence[Schedule], arch: Arch) -> list[np.ndarray]:
    """Return [cores][operations]: the cycle in which each would start; a wait starts behind its post's end."""
    lines = [Timeline(schedule.table, arch) for schedule in schedules]
    places = [schedule.table.numbers[lir.Signal].tolist() for schedule in schedules]
    posted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # (core, counter): ends of posts not taken yet
    moved = True
    while moved:
        moved = False
        for core, (schedule, line) in enumerate(zip(schedules, lines, strict=True)):
            while places[core]:
                number = places[core][0]
                signal = schedule.operations[number]
                assert isinstance(signal, lir.Signal)
                filled = posted[core, signal.counter]
                if signal.wait and len(filled) < signal.above:
                    break
                line.advance(number)
                line.advance(number + 1, filled[signal.above - 1] if signal.wait else 0)
                if signal.wait:
                    del filled[:signal.above]
                else:
                    for other in lir.posted_to(signal.above):
                        posted[other, signal.counter].append(int(line.done[number]))
                places[core].pop(0)
                moved = True
    assert not any(places), "a wait that no post fills"
    return [line.advance(schedule.table.count) for schedule, line in zip(schedules, lines, strict=True)]
