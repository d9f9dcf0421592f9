"""What DRAM readers and writers share: the bursts of their operations, in order."""

from __future__ import annotations

from weft.compiler.estimator.interlock import offered, take
from weft.compiler.estimator.jit import kernel
from weft.compiler.estimator.state import SLOTS
from weft.hw.contract.timing import DRAM_REQUEST_LATENCY, SEGMENTS_AHEAD


@kernel
def addresses_take(state, port, number, machine, now):
    """Take the next operation when the walk over the segments of the one before is over."""
    if port.segments > SEGMENTS_AHEAD + machine.slices or now < port.free_from:
        return
    if not offered(state, machine, number, now):
        return
    unit = state.units[number]
    port.taken_at[unit.taken % SLOTS] = now
    operation = state.queued[number, take(state, number)]
    segments = operation.rows * (1 if operation.stride1 == 1 else operation.size)
    port.segments += segments
    port.free_from = now + segments


@kernel
def next_burst(state, port, number, machine, now):
    """Make the next burst, if there is one by now: beats, bytes of the first beat left out, bytes of the last beat that
    count, whether it ends its segment, whether that ends its operation. No beats: there is none."""
    unit = state.units[number]
    if port.addressed == unit.taken or now < port.taken_at[port.addressed % SLOTS] + DRAM_REQUEST_LATENCY - 1:
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
    port.beat = until + 1
    port.starts = until == port.last_beat
    ends = False
    if port.starts:
        end = (first + vectors * machine.vector_bytes - 1) % machine.beat_bytes + 1
        ends = next_segment(port, operation, vectors)
    return beats, skip, end, port.starts, ends


@kernel
def next_segment(port, operation, vectors):
    """On to the next contiguous run of vectors; whether there is none left in this operation."""
    port.segments -= 1
    port.vector += vectors
    if port.vector == operation.size:
        port.vector = 0
        port.row += 1
        if port.row == operation.rows:
            port.row = 0
            port.addressed += 1
            return True
    return False
