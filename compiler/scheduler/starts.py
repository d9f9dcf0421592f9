# SPDX-License-Identifier: Apache-2.0
"""The starts of operations on a machine with endless queues, as machine code, and the gaps that later operations fill.

They are in one file with the numbers of their columns, because compiled code is kept as long as its own file stays."""

from __future__ import annotations

import numpy as np

from weft.cycles.native import kernel, native

COLUMNS = ("unit", "joined", "fills", "cycles", "latency", "read", "read_first", "read_last", "write", "write_first",
           "write_last")
"""The columns of an operation's row, as integers: ``read`` and ``write`` are numbers of memories, -1 for none.

``joined``: JOINT operations start together with the one before them; CHAINED ones only where that fills a gap. One that
``fills`` may start in a gap of its unit. One that does neither closes all gaps before it."""
JOINT, CHAINED = 1, 2
UNIT, JOINED, FILLS, CYCLES, LATENCY, READ, WRITE = (COLUMNS.index(name) for name in (
    "unit", "joined", "fills", "cycles", "latency", "read", "write"))

GAPS = 32
"""The most gaps of a unit that are kept; the one that ends first gives way to a new one."""


@kernel
def _free_after(start, range_, writes, unit, touches, bases, read_until, written_until):  # type: ignore
    """Return the cycle from which ``unit`` may touch a range: after what it conflicts with, at least ``start``."""
    memory = range_[0]
    if memory < 0:
        return start
    first, end = bases[memory] + range_[1], bases[memory] + range_[2] + 1
    for other in range(touches.shape[1]):
        if other != unit and touches[memory, other, 1]:
            for vector in range(first, end):
                start = max(start, written_until[other, vector])
        if other != unit and writes and touches[memory, other, 0]:
            for vector in range(first, end):
                start = max(start, read_until[other, vector])
    return start


@kernel
def _hold(range_, unit, bases, until, done):  # type: ignore
    """Note that ``unit`` is at work on a range until cycle ``done``."""
    if range_[0] >= 0:
        for vector in range(bases[range_[0]] + range_[1], bases[range_[0]] + range_[2] + 1):
            until[unit, vector] = max(until[unit, vector], done)


@kernel
def _keep(gaps, first, end):  # type: ignore
    """Note that a unit has nothing to do from cycle ``first`` to before ``end``."""
    if end > first:
        place = np.argmin(gaps[:, 1])
        gaps[place, 0], gaps[place, 1] = first, end


@kernel
def _filled(gaps, ready, cycles):  # type: ignore
    """Return the start of an operation of ``cycles`` in a unit's first gap that has room from cycle ``ready`` on.

    The gap shrinks by it. Return -1 if no gap has room. ``gaps`` [GAPS, 2]: first cycle, and the one behind the last;
    both are 0 in unused rows."""
    best = -1
    for place in range(len(gaps)):
        if max(gaps[place, 0], ready) + cycles <= gaps[place, 1] and (best < 0 or gaps[place, 0] < gaps[best, 0]):
            best = place
    if best < 0:
        return -1
    first = gaps[best, 0]
    start = max(first, ready)
    gaps[best, 0] = start + cycles
    _keep(gaps, first, start)
    return start


@kernel
def _behind_own(rows, start, bases, reads, written):  # type: ignore
    """Return the cycle from which operations of one unit may start together: behind its earlier ones on their ranges.

    It is at least ``start``. ``reads``, ``written`` [vectors]: when the unit's operations on each vector are done, all
    of which take as long behind their last vector as the last of ``rows``."""
    latency = rows[-1, LATENCY]
    for row in rows:
        for column in (READ, WRITE):
            if row[column] >= 0:
                base = bases[row[column]]
                for vector in range(base + row[column + 1], base + row[column + 2] + 1):
                    start = max(start, written[vector] - latency)
                    if column == WRITE:
                        start = max(start, reads[vector] - latency)
    return start


@kernel
def _joined(rows, first, kind):  # type: ignore
    """Return the end of the operations from number ``first`` on that are joined in this way."""
    end = first + 1
    while end < len(rows) and rows[end, JOINED] == kind:
        end += 1
    return end


@kernel
def _ready(rows, start, touches, bases, read_until, written_until):  # type: ignore
    """Return the cycle, at least ``start``, from which operations of one unit have what they wait for in others."""
    unit = rows[0, UNIT]
    for row in rows:
        start = _free_after(start, row[READ:WRITE], False, unit, touches, bases, read_until, written_until)
        start = _free_after(start, row[WRITE:], True, unit, touches, bases, read_until, written_until)
    return start


@native
def start_all(rows, least, bases, touches, mat_mul, load_weight,  # type: ignore
              read_until, written_until, free, gaps, starts, ends):
    """Write the start and the end of every operation, in cycles, to ``starts`` and ``ends`` [operations].

    The first operation starts at ``least`` or later.

    ``bases`` puts the memories one after the other in one array of vectors. A SIMD loop, header and body, starts as
    one. A MatMul starts after the loads of weights before it; such a load starts after the MatMuls before it have
    started, because these take over the weights as they start. ``read_until``, ``written_until`` [units, vectors],
    ``free`` [units + 2] and ``gaps`` [units, GAPS, 2] are kept from call to call; behind the units' numbers ``free``
    has when weights are loaded, and when they were taken."""
    units = touches.shape[1]
    weights_ready, weights_taken, first = free[units], free[units + 1], 0
    while first < len(rows):
        end, unit, start = first + 1, rows[first, UNIT], -1
        if rows[first, FILLS]:
            end = _joined(rows, first, CHAINED)
            ready = _ready(rows[first:end], least, touches, bases, read_until, written_until)
            if ready < free[unit]:
                own = bases, read_until[unit], written_until[unit]
                ready = _behind_own(rows[first:end], ready, *own)
                start = _filled(gaps[unit], ready, rows[first:end, CYCLES].sum())
        if start < 0:
            end = _joined(rows, first, JOINT)
            ready = _ready(rows[first:end], least, touches, bases, read_until, written_until)
            if unit == mat_mul:
                ready = max(ready, weights_ready)
            if unit == load_weight:
                ready = max(ready, weights_taken + 1)
            if rows[first, FILLS] and _joined(rows, first, CHAINED) > end:  # no earlier than what follows needs it
                follower = _ready(rows[first + 1:first + 2], 0, touches, bases, read_until, written_until)
                ready = max(ready, follower - rows[first, CYCLES])
            start = max(ready, free[unit])
            if rows[first, FILLS]:
                _keep(gaps[unit], free[unit], start)
            elif not rows[first, JOINED]:
                gaps[unit] = 0
            free[unit] = start + rows[first:end, CYCLES].sum()
        least = 0
        done = start + rows[first:end, CYCLES].sum() + rows[end - 1, LATENCY]
        for row in rows[first:end]:
            _hold(row[READ:WRITE], unit, bases, read_until, done)
            _hold(row[WRITE:], unit, bases, written_until, done)
        starts[first:end], ends[first:end] = start, done
        if unit == mat_mul:
            weights_taken = start
        if unit == load_weight:
            weights_ready = done
        first = end
    free[units], free[units + 1] = weights_ready, weights_taken
