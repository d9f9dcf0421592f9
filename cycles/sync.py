# SPDX-License-Identifier: Apache-2.0
"""Posts and waits: the unit of ``hw/control/sync_unit.py``, and the way of posts from core to core."""

from __future__ import annotations

from weft.cycles.interlock import finish, offered, take
from weft.cycles.jit import kernel
from weft.cycles.state import NONE, SYNC


@kernel
def step_sync(state, machine, now):
    """Step a core's unit by a cycle: the operation under way acts, or the next one is taken."""
    unit, counters = state.units[SYNC], state.sync
    counters.posts = 0
    if unit.work == NONE:
        if offered(state, machine, SYNC, now):
            unit.work = take(state, SYNC)
        return
    operation = state.queued[SYNC, unit.work]
    if operation.waits:
        if counters.holds[operation.counter] < operation.above:
            return
        counters.holds[operation.counter] -= operation.above
    else:
        counters.posts, counters.counter = operation.above, operation.counter
    unit.work = NONE
    finish(state, SYNC)


@kernel
def deliver_posts(states, cores):
    """End a cycle of all cores: count their posts, which waits see from the next cycle on."""
    for poster in range(cores):
        sent = states[poster].sync
        for core in range(cores):
            states[core].sync.holds[sent.counter] += sent.posts >> core & 1
