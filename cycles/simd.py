# SPDX-License-Identifier: Apache-2.0
"""The SIMD unit, cycle by cycle: loops unrolled into micro-operations, and their pipeline."""

from __future__ import annotations

from weft.cycles.interlock import offered, take
from weft.cycles.jit import kernel
from weft.cycles.memories import ACCUMULATOR_READS, LOCAL_READS, accumulator_bank, local_bank
from weft.cycles.program import NO_MEMORY
from weft.cycles.state import DEPTH, LATER, NONE, SIMD, SLOTS
from weft.hw.contract.timing import LOCAL_READ_LATENCY, SIMD_IN_FLIGHT

PLAIN, CAPTURE, CHECK, RUN, LOAD = range(5)
GIVEN, DOOR, BETWEEN = range(3)
"""The places where micro-operations wait.

GIVEN: behind the sequencer; DOOR: at the pipeline's entrance; from BETWEEN on: in the register slice between the
two."""


@kernel
def ask(state, machine, now):
    """Set this cycle's requests: to read for the micro-operation at the door, or to load a table."""
    door, pipeline = state.micro[DOOR], state.pipeline
    reads = door.valid and door.reads and clear(pipeline, now)
    state.ports[ACCUMULATOR_READS].bank[SIMD] = accumulator_bank(machine, door.read) if reads else NONE
    sequencer, operation = state.sequencer, state.queued[SIMD, state.units[SIMD].taken % SLOTS]
    loads = sequencer.state == LOAD and sequencer.number < operation.size
    table = operation.base0 + sequencer.number * operation.stride0
    state.ports[LOCAL_READS].bank[SIMD] = local_bank(machine, table) if loads else NONE


@kernel
def clear(pipeline, now):
    """Tell whether the micro-operation at the door waits for nothing but the memory."""
    return (now >= pipeline.clear_from and pipeline.blocker < pipeline.retired
            and pipeline.issued - pipeline.retired < SIMD_IN_FLIGHT)


@kernel
def step_simd(state, machine, now):
    """Step the unit by a cycle, from the pipeline back, so that each part sees the state before.

    Its results have left it (``rescale.py``)."""
    pipeline, door, given = state.pipeline, state.micro[DOOR], state.micro[GIVEN]
    issues = door.valid and clear(pipeline, now) and (
        not door.reads or state.ports[ACCUMULATOR_READS].grant[SIMD])
    if issues:
        enter(pipeline, machine, door, now)
    room = state.between < 2
    if issues or not door.valid:
        arrive(state, machine, now)
    if machine.slices and room and given.valid:
        copy(state.micro[BETWEEN + state.between], given)
        state.between += 1
        given.valid = 0
    if not given.valid:
        sequence(state, machine, now)
    pipeline.retired = pipeline.retired_now


# -- the pipeline ------------------------------------------------------------------------------------------------------
@kernel
def enter(pipeline, machine, micro, now):
    """Let the micro-operation at the door into the pipeline."""
    place = pipeline.issued % DEPTH
    pipeline.ready[place] = now + machine.simd_latency + 1
    pipeline.writes[place], pipeline.write[place] = micro.writes, micro.write
    pipeline.accumulates[place], pipeline.done[place] = micro.accumulates, micro.done
    for register in range(micro.first_destination, micro.last_destination + 1):
        pipeline.written_at[register, micro.slot] = now
    pipeline.issued += 1


@kernel
def arrive(state, machine, now):
    """Let the next micro-operation come to the door, and find what it has to wait for."""
    pipeline, door = state.pipeline, state.micro[DOOR]
    if machine.slices:
        copy(door, state.micro[BETWEEN])
        copy(state.micro[BETWEEN], state.micro[BETWEEN + 1])
        state.micro[BETWEEN + 1].valid = 0
        state.between -= door.valid
    else:
        copy(door, state.micro[GIVEN])
        state.micro[GIVEN].valid = 0
    if not door.valid:
        return
    pipeline.blocker = NONE
    if door.reads:
        for number in range(pipeline.issued - 1, pipeline.retired_now - 1, -1):
            if pipeline.writes[number % DEPTH] and pipeline.write[number % DEPTH] == door.read:
                pipeline.blocker = number
                break
    pipeline.clear_from = now + 1
    if door.left:
        written = pipeline.written_at[door.left, door.left_slot]
        pipeline.clear_from = max(pipeline.clear_from, written + machine.register_latency)
    if door.right:
        written = pipeline.written_at[door.right, door.right_slot]
        pipeline.clear_from = max(pipeline.clear_from, written + machine.register_latency)


@kernel
def copy(target, source):
    """Copy a micro-operation's record."""
    target.valid, target.done, target.slot = source.valid, source.done, source.slot
    target.reads, target.read, target.writes, target.write = source.reads, source.read, source.writes, source.write
    target.accumulates = source.accumulates
    target.left, target.right = source.left, source.right
    target.left_slot, target.right_slot = source.left_slot, source.right_slot
    target.first_destination, target.last_destination = source.first_destination, source.last_destination


# -- the sequencer -----------------------------------------------------------------------------------------------------
@kernel
def sequence(state, machine, now):
    """Step the sequencer: give the next micro-operation."""
    sequencer = state.sequencer
    if sequencer.state == RUN:
        run(state, machine)
    elif sequencer.state == CHECK:
        if now >= sequencer.ready_from:
            sequencer.state = RUN
            sequencer.in_order = order_matters(sequencer)
            next_block(sequencer, machine)
    elif sequencer.state == LOAD:
        load(state, now)
    elif offered(state, machine, SIMD, now):
        if sequencer.state == CAPTURE:
            if now >= sequencer.ready_from:
                capture(state, machine, state.queued[SIMD, take(state, SIMD)], now)
            return
        if not state.queued[SIMD, state.units[SIMD].taken % SLOTS].table:
            begin_operation(state, machine, state.queued[SIMD, take(state, SIMD)], now)
        elif not state.micro[DOOR].valid and not state.between and state.pipeline.issued == state.pipeline.retired:
            sequencer.state, sequencer.number, sequencer.ready_from = LOAD, 0, LATER


@kernel
def begin_operation(state, machine, operation, now):
    """Begin the unit's next operation: a loop, a table load or a single instruction."""
    sequencer = state.sequencer
    if operation.loop:
        marker(state.micro[GIVEN])
        sequencer.state = CAPTURE
        sequencer.number = sequencer.accesses = sequencer.written = 0
        sequencer.body, sequencer.left = operation.body, operation.size
        sequencer.ready_from = now + 1
    else:
        fill(state.micro[GIVEN], operation, machine, 0, 0, 0, 0)


@kernel
def marker(micro):
    """Fill a micro-operation that only signals the end of an operation."""
    micro.valid, micro.done = 1, 1
    micro.reads = micro.writes = micro.left = micro.right = micro.slot = 0
    micro.first_destination, micro.last_destination = 0, -1


@kernel
def fill(micro, operation, machine, iteration, slot, own_left, own_right):
    """Fill the micro-operation of an instruction's iteration."""
    micro.valid, micro.done, micro.slot = 1, 1, slot
    micro.reads, micro.writes = operation.memory1 != NO_MEMORY, operation.memory0 != NO_MEMORY
    micro.read = operation.base1 + iteration * operation.stride1
    micro.write = operation.base0 + iteration * operation.stride0
    micro.accumulates = operation.accumulate
    micro.left, micro.right = operation.left, operation.right
    micro.left_slot, micro.right_slot = slot if own_left else 0, slot if own_right else 0
    spread = machine.lut_count if operation.lookup else 0
    micro.first_destination = operation.destination
    micro.last_destination = operation.destination + spread if operation.destination or spread else -1


@kernel
def capture(state, machine, operation, now):
    """Store an instruction of a loop's body; its accesses are compared with earlier ones, one a cycle."""
    sequencer = state.sequencer
    place = sequencer.number
    sequencer.works[place] = operation
    sequencer.iteration[place] = 0
    sequencer.own_left[place] = sequencer.written >> operation.left & 1
    sequencer.own_right[place] = sequencer.written >> operation.right & 1
    spread = machine.lut_count if operation.lookup else 0
    sequencer.written |= ((2 << spread) - 1) << operation.destination
    if operation.memory0 != NO_MEMORY or operation.memory1 != NO_MEMORY:
        sequencer.ready_from = now + max(sequencer.accesses, 1)
        sequencer.accesses += 1
    sequencer.number += 1
    if sequencer.number < sequencer.body:
        marker(state.micro[GIVEN])
    else:
        sequencer.number, sequencer.state = 0, CHECK
        sequencer.ready_from = max(sequencer.ready_from, now + 1)


@kernel
def order_matters(sequencer):
    """Tell whether an instruction writes what another one reads or writes in another iteration."""
    for one in range(sequencer.body):
        for other in range(sequencer.body):
            left, right = sequencer.works[one], sequencer.works[other]
            if one == other or left.memory0 == NO_MEMORY:
                continue
            if right.memory0 != NO_MEMORY and clash(left.base0, left.stride0, left.last0,
                                                    right.base0, right.stride0, right.last0):
                return True
            if right.memory1 != NO_MEMORY and clash(left.base0, left.stride0, left.last0,
                                                    right.base1, right.stride1, right.last1):
                return True
    return False


@kernel
def clash(first, stride, last, other_first, other_stride, other_last):
    """Tell whether two sequences of addresses overlap without being the same; a stride of 0 is never the same."""
    same = first == other_first and stride == other_stride and stride != 0
    return first <= other_last and other_first <= last and not same


@kernel
def next_block(sequencer, machine):
    """Choose how many iterations run together; the rest is halved if it takes two blocks."""
    most = machine.simd_block
    sequencer.place = 0
    if sequencer.in_order and sequencer.body > 1:
        sequencer.block = 1
    elif sequencer.left <= most:
        sequencer.block = sequencer.left
    else:
        sequencer.block = (sequencer.left + 1) // 2 if sequencer.left <= 2 * most else most


@kernel
def run(state, machine):
    """Give one iteration of the body's current instruction."""
    sequencer = state.sequencer
    number = sequencer.number
    fill(state.micro[GIVEN], sequencer.works[number], machine, sequencer.iteration[number], sequencer.place + 1,
         sequencer.own_left[number], sequencer.own_right[number])
    sequencer.iteration[number] += 1
    sequencer.place += 1
    ends = sequencer.place == sequencer.block
    last = number == sequencer.body - 1
    state.micro[GIVEN].done = ends and last and sequencer.left == sequencer.block
    if not ends:
        return
    sequencer.place = 0
    sequencer.number = 0 if last else number + 1
    if last:
        sequencer.left -= sequencer.block
        if sequencer.left:
            next_block(sequencer, machine)
        else:
            sequencer.state = PLAIN


@kernel
def load(state, now):
    """Fill a table from local memory; the operation is taken when it is full."""
    sequencer = state.sequencer
    if state.ports[LOCAL_READS].grant[SIMD]:
        sequencer.number += 1
        if sequencer.number == state.queued[SIMD, state.units[SIMD].taken % SLOTS].size:
            sequencer.ready_from = now + LOCAL_READ_LATENCY
    if now == sequencer.ready_from:
        take(state, SIMD)
        marker(state.micro[GIVEN])
        sequencer.state = PLAIN
