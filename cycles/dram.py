# SPDX-License-Identifier: Apache-2.0
"""The common part of DRAM readers and writers: segments and bursts of their operations, in order."""

from __future__ import annotations

from weft.cycles.interlock import offered, take
from weft.cycles.jit import kernel
from weft.cycles.machine import SHARES
from weft.cycles.state import SLOTS
from weft.hw.contract.arch import largest
from weft.hw.contract.timing import SEGMENTS_WAITING

MOST_BEATS = 2 * max(2, largest("memory_ports"))
"""The beats that move in a cycle at most: a read and a write of each port."""


@kernel
def advance(state, port, number, machine, takes, now):
    """Move segments (contiguous runs of vectors) one stage on, after this cycle's burst.

    They go from the walk over an operation through the register of the address arithmetic (a slice holds two) and the
    FIFO into the splitter. All stay in order, so only their numbers are kept. The walk ``takes`` the next operation as
    its last segment leaves it."""
    room = port.fifo < SEGMENTS_WAITING
    free = port.scaled < 2 if machine.slices else room or not port.scaled
    if port.fifo and not port.splitter:
        port.fifo -= 1
        port.splitter = 1
    if port.scaled and room:
        port.scaled -= 1
        port.fifo += 1
    if port.walk and free:
        port.walk -= 1
        port.scaled += 1
    if takes and not port.walk and offered(state, machine, number, now):
        unit = state.units[number]
        port.taken_at[unit.taken % SLOTS] = now
        operation = state.queued[number, take(state, number)]
        port.walk = operation.rows * (1 if operation.stride1 == 1 else operation.size)


@kernel
def earn(control, machine):
    """Add a cycle's share of the bus that all ports have together; what nobody uses is kept for a beat of each."""
    if machine.bus_share:
        control.credit = min(control.credit + machine.bus_share, MOST_BEATS * SHARES * machine.beat_bytes)


@kernel
def pays(control, machine):
    """Tell whether the bus moves another beat in this cycle, and take it."""
    if not machine.bus_share:
        return True
    if control.credit < SHARES * machine.beat_bytes:
        return False
    control.credit -= SHARES * machine.beat_bytes
    return True


@kernel
def charge(control, machine, beats):
    """Take ``beats`` of the program from the bus; they come first, so that DRAM ports wait for what is owed."""
    if machine.bus_share:
        control.credit -= SHARES * machine.stream_bytes * beats


@kernel
def next_burst(state, port, number, machine):
    """Make the next burst, and return its size.

    The size is five numbers: beats (0: there is no burst), bytes of the first beat left out, and bytes of the last beat
    that count. Then: whether the burst ends its segment, and whether that ends its operation."""
    if not port.splitter:
        return 0, 0, 0, False, False
    operation = state.queued[number, port.addressed % SLOTS]
    vectors = operation.size if operation.stride1 == 1 else 1
    first = (operation.base1 + port.row * operation.pitch1 + port.vector * operation.stride1) * machine.vector_bytes
    skip, end = 0, machine.beat_bytes
    if port.starts:
        port.beat = first // machine.beat_bytes
        port.last_beat = (first + vectors * machine.vector_bytes - 1) // machine.beat_bytes
        skip = first % machine.beat_bytes
    until = min(port.last_beat, port.beat | (machine.max_burst - 1))
    beats = until - port.beat + 1
    port.address = operation.window + port.beat * machine.beat_bytes
    port.address_beats, port.joins = beats, operation.joins
    port.beat = until + 1
    port.starts = until == port.last_beat
    ends = False
    if port.starts:
        end = (first + vectors * machine.vector_bytes - 1) % machine.beat_bytes + 1
        ends = next_segment(port, operation, vectors)
    return beats, skip, end, port.starts, ends


@kernel
def next_segment(port, operation, vectors):
    """Go on to the next contiguous run of vectors; tell whether the operation has none left."""
    port.splitter = 0
    port.vector += vectors
    if port.vector == operation.size:
        port.vector = 0
        port.row += 1
        if port.row == operation.rows:
            port.row = 0
            port.addressed += 1
            return True
    return False
