# SPDX-License-Identifier: Apache-2.0
"""Decoder, interlock and queues: when an operation reaches its unit, and what it has to wait for."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.program import NO_MEMORY
from weft.cycles.state import LATER, NONE, SIMD, SLOTS, STAGES, UNIT_COUNT
from weft.hw.contract.timing import DECODE_LATENCY, FETCH_LATENCY, ISSUE_LATENCY, SIMD_ISSUE_LATENCY

ISSUED, STARTED, FINISHED = range(3)
"""The columns of ``times`` [operations, 3]."""


# -- the decoder -------------------------------------------------------------------------------------------------------
@kernel
def fetch(control, machine, drains, repeats, given, now):
    """Let a complete instruction word into the decoder, or into the repeater of a machine that has one.

    The decoder has a stage for each cycle of its latency and closes gaps. Nothing enters after an instruction that
    waits until the machine is empty. Then a beat of the program arrives, if there is one, and room. ``given``: how many
    instructions have left the decoder, as far as its entrance knows. With a register slice in place of the last stage
    it holds one more, and the entrance learns a cycle later what leaves it."""
    room = control.entered - given < DECODE_LATENCY + machine.slices
    drains_inside = control.drain < len(drains) and drains[control.drain] < control.entered
    takes = room and not drains_inside
    wires = machine.instruction_bytes == machine.stream_bytes
    there = control.beats > 0 if wires else control.bytes >= machine.instruction_bytes
    whole = there and control.word < len(repeats)
    offered = control.offered > 0 if machine.repeats else whole
    enters = takes and offered
    if expand(control, machine, repeats, whole, enters) if machine.repeats else enters:
        control.word += 1
        if wires:
            control.beats -= 1
        else:
            control.bytes -= machine.instruction_bytes
    if enters:
        if control.entered == 0:
            control.first_at = now
        control.entered_at[control.entered % STAGES] = now
        control.entered += 1
    if not wires and control.bytes < machine.instruction_bytes and control.beats > 0:
        control.bytes += machine.stream_bytes
        control.beats -= 1


@kernel
def expand(control, machine, repeats, whole, enters):
    """Step the repeater by a cycle; tell whether it takes the next word, which may be ``whole``.

    The instruction that it offers ``enters`` the decoder or not. A Repeat's steps go through the memory (``fetched``)
    and its output register (``step``) to the instructions offered, of which a register slice holds two."""
    free = not (control.reads or control.fetched or control.step)
    repeat = whole and free and repeats[control.word] > 0
    word = whole and free and not repeat
    room = control.offered < 2 if machine.slices else control.offered == 0 or enters
    control.offered -= enters
    if room:
        control.offered += control.step or word
    if room or not control.step:
        control.step, control.fetched = control.fetched, control.reads > 0
        control.reads -= control.reads > 0
    if repeat:
        control.reads = repeats[control.word]
    return repeat or word and room


@kernel
def decode(state, machine, work, drains, times, now):
    """Pass the instruction at the decoder's output on, if it can go."""
    control = state.control
    release(control, drains, now)
    there_from = control.entered_at[control.instruction % STAGES] + DECODE_LATENCY
    if control.instruction == control.entered or now < there_from:
        return
    operation = control.next
    if control.drain < len(drains) and drains[control.drain] == control.instruction:
        return
    if operation < len(work) and work[operation].instruction == control.instruction:
        unit = state.units[work[operation].unit]
        if unit.issued - unit.taken == unit.queue or unit.issued - unit.heard == unit.outstanding:
            return
        issue(state, machine, work[operation], operation, now)
        times[operation, ISSUED] = now
        control.next += 1
    control.free_from = now + 1
    control.instruction += 1


@kernel
def release(control, drains, now):
    """Let an instruction go on that waits until the machine is empty, once it is.

    It waits in the decoder's first stage until all instructions before it have left the decoder and are done."""
    if control.drain == len(drains) or drains[control.drain] != control.instruction:
        return
    place = control.instruction % STAGES
    if control.instruction < control.entered and now > control.entered_at[place] and control.finished >= control.next:
        control.entered_at[place] = now - 1
        control.drain += 1


# -- the interlock -----------------------------------------------------------------------------------------------------
@kernel
def issue(state, machine, operation, index, now):
    """Issue an operation: note what it waits for, and its ranges, which later operations may wait for."""
    number = operation.unit
    unit = state.units[number]
    slot = unit.issued % SLOTS
    state.queued[number, slot] = operation
    state.numbers[number, slot] = index
    for other in range(UNIT_COUNT):
        unit.needed[slot, other] = 0 if other == number else newest_conflict(state, operation, other)
    track(state.tracked[number, slot], state.loop, operation)
    unit.stored_from[slot] = now + (SIMD_ISSUE_LATENCY if number == SIMD else ISSUE_LATENCY - FETCH_LATENCY)
    unit.issued += 1


@kernel
def newest_conflict(state, operation, other):
    """Return how many operations of another unit have to be done before an operation may start."""
    unit = state.units[other]
    for index in range(unit.issued - 1, unit.heard - 1, -1):
        if conflicts(state.tracked[other, index % SLOTS], operation):
            return index + 1
    return 0


@kernel
def conflicts(tracked, operation):
    """Tell whether an outstanding operation's ranges conflict with those of an operation."""
    return (meet(tracked.memory0, tracked.writes0, tracked.first0, tracked.last0, operation)
            or meet(tracked.memory1, tracked.writes1, tracked.first1, tracked.last1, operation))


@kernel
def meet(memory, writes, first, last, operation):
    """Tell whether a range must keep its order with one of the operation's: they overlap, and one is written."""
    if memory == NO_MEMORY:
        return False
    return (memory == operation.memory0 and (writes or operation.writes0)
            and first <= operation.last0 and operation.first0 <= last
            or memory == operation.memory1 and (writes or operation.writes1)
            and first <= operation.last1 and operation.first1 <= last)


@kernel
def track(tracked, loop, operation):
    """Note the ranges of an operation; in a SIMD loop the last instruction stands for the whole body."""
    tracked.writes0, tracked.writes1 = operation.writes0, operation.writes1
    tracked.memory0, tracked.first0, tracked.last0 = operation.memory0, operation.first0, operation.last0
    tracked.memory1, tracked.first1, tracked.last1 = operation.memory1, operation.first1, operation.last1
    if not operation.in_loop:
        return
    if loop.memory0 != NO_MEMORY:
        first = tracked.memory0 == NO_MEMORY
        tracked.first0 = loop.first0 if first else min(loop.first0, tracked.first0)
        tracked.last0 = loop.last0 if first else max(loop.last0, tracked.last0)
        tracked.memory0, tracked.writes0 = loop.memory0, loop.writes0
    if loop.memory1 != NO_MEMORY:
        first = tracked.memory1 == NO_MEMORY
        tracked.first1 = loop.first1 if first else min(loop.first1, tracked.first1)
        tracked.last1 = loop.last1 if first else max(loop.last1, tracked.last1)
        tracked.memory1, tracked.writes1 = loop.memory1, loop.writes1
    loop.memory0 = loop.memory1 = NO_MEMORY
    if operation.body_left:
        loop.memory0, loop.writes0, loop.first0, loop.last0 = (tracked.memory0, tracked.writes0, tracked.first0,
                                                               tracked.last0)
        loop.memory1, loop.writes1, loop.first1, loop.last1 = (tracked.memory1, tracked.writes1, tracked.first1,
                                                               tracked.last1)
        tracked.memory0 = tracked.memory1 = NO_MEMORY


# -- the queues --------------------------------------------------------------------------------------------------------
@kernel
def fetch_heads(state, machine, now):
    """Let one queue fetch its next operation from the shared memory of queues, round robin.

    SIMD's queue has a memory of its own."""
    if fetchable(state.units[SIMD], now):
        state.units[SIMD].there_from = now
    control = state.control
    for behind in range(1, UNIT_COUNT + 1):
        number = (control.turn + behind) % UNIT_COUNT
        if number != SIMD and fetchable(state.units[number], now):
            state.units[number].there_from = now + FETCH_LATENCY
            control.turn = number
            return


@kernel
def fetchable(unit, now):
    """Tell whether a unit's next operation can be fetched from the memory of queues."""
    return unit.there_from == LATER and unit.taken < unit.issued and unit.stored_from[unit.taken % SLOTS] <= now


@kernel
def offered(state, machine, number, now):
    """Tell whether the unit's next operation is offered to it."""
    if machine.slices and number != SIMD:
        return state.units[number].may_start != 0
    return waits_for_nothing(state, number, now)


@kernel
def waits_for_nothing(state, number, now):
    """Tell whether the unit's next operation is at the head of the queue and waits for nothing."""
    unit = state.units[number]
    if now < unit.there_from:
        return False
    slot = unit.taken % SLOTS
    for other in range(unit.waits_for, UNIT_COUNT):
        if state.units[other].heard < unit.needed[slot, other]:
            unit.waits_for = other
            return False
    unit.waits_for = UNIT_COUNT
    return True


@kernel
def take(state, number):
    """Let the unit take its next operation; return its place in ``queued``."""
    unit = state.units[number]
    unit.taken_now = unit.taken + 1
    unit.waits_for = 0
    unit.there_from = LATER
    unit.may_start = 0
    return unit.taken % SLOTS


@kernel
def finish(state, number):
    """Note that the unit's oldest operation is done."""
    unit = state.units[number]
    unit.done_now = unit.done + 1


@kernel
def commit(state, machine, times, now):
    """End the cycle: publish what was taken and done, with register slices a cycle later."""
    control = state.control
    if machine.slices:
        for number in range(UNIT_COUNT):
            unit = state.units[number]
            unit.may_start = waits_for_nothing(state, number, now)
            control.finished += unit.done - unit.heard
        for number in range(UNIT_COUNT):
            state.units[number].heard = state.units[number].done
    control.swapped = control.swapped_now
    for number in range(UNIT_COUNT):
        unit = state.units[number]
        if unit.taken != unit.taken_now:
            times[state.numbers[number, unit.taken % SLOTS], STARTED] = now
            unit.taken = unit.taken_now
        if unit.done != unit.done_now:
            times[state.numbers[number, unit.done % SLOTS], FINISHED] = now
            unit.done = unit.done_now
            if not machine.slices:
                unit.heard = unit.done
                control.finished += 1


# -- addresses ---------------------------------------------------------------------------------------------------------
@kernel
def address0(unit, operation):
    """Return the address of operand 0 for the unit's next vector."""
    return operation.base0 + unit.row * operation.pitch0 + unit.vector * operation.stride0


@kernel
def address1(unit, operation):
    """Return the address of operand 1 for the unit's next vector."""
    return operation.base1 + unit.row * operation.pitch1 + unit.vector * operation.stride1


@kernel
def is_last(unit, operation):
    """Tell whether the unit's next vector is the last of its operation."""
    return unit.vector == operation.size - 1 and unit.row == operation.rows - 1


@kernel
def step(unit, operation):
    """Go on to the next vector; after the last one the walk is over."""
    unit.vector += 1
    if unit.vector == operation.size:
        unit.vector = 0
        unit.row += 1
        if unit.row == operation.rows:
            unit.work = unit.head = NONE
    unit.asked = 1


@kernel
def begin(state, machine, number, now):
    """Let the unit take its next operation if its walk is over and one is offered.

    Its addresses come from the next cycle on, with a register slice a cycle later."""
    unit = state.units[number]
    if machine.slices:
        walk_ahead(unit)
        if unit.left == 0 and offered(state, machine, number, now):
            start_walk(unit, state.queued[number, take(state, number)])
    elif unit.work == NONE and offered(state, machine, number, now):
        unit.work = take(state, number)
        unit.row = unit.vector = 0


@kernel
def walk_ahead(unit):
    """Move one address into the register slice, if it has room, and one out if it was requested."""
    walks = unit.left > 0 and unit.ahead < 2
    unit.left -= walks
    unit.ahead += walks - unit.asked
    unit.asked = 0
    if unit.head == NONE and unit.ahead > 0:
        unit.head = unit.heads % SLOTS
        unit.heads += 1
        unit.row = unit.vector = 0
    unit.work = unit.head if unit.ahead > 0 else NONE


@kernel
def start_walk(unit, operation):
    """Start the walk over an operation's vectors."""
    unit.left = operation.size * operation.rows
