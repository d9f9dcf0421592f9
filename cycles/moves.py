# SPDX-License-Identifier: Apache-2.0
"""DataMoves between accumulators and local memory: requests, rows that come back in order, requests to write."""

from __future__ import annotations

from weft.cycles.interlock import address0, address1, begin, finish, is_last, step
from weft.cycles.jit import kernel
from weft.cycles.memories import ACCUMULATOR_READS, LOCAL_READS, LOCAL_WRITES, accumulator_bank, local_bank
from weft.cycles.program import NO_MEMORY
from weft.cycles.state import DEPTH, MOVE_IN, MOVE_OUT, NONE
from weft.hw.contract.timing import LOCAL_READ_LATENCY, READ_STREAM_LATENCY, READ_STREAM_SPARE

OUT_OF, INTO = range(2)
"""The numbers of the streams: out of the accumulators, into them."""
INTO_LATENCY = LOCAL_READ_LATENCY + READ_STREAM_LATENCY
"""Cycles from a request to its row at the stream's end; the stream out of the accumulators has its own."""
INTO_DEPTH = LOCAL_READ_LATENCY + READ_STREAM_SPARE
"""The rows that a stream holds, those requested included."""


@kernel
def ask(state, machine):
    """Set the memory requests of both units for this cycle, except those to write accumulators."""
    unit, stream = state.units[MOVE_OUT], state.streams[OUT_OF]
    operation = state.queued[MOVE_OUT, unit.work]
    scales = unit.work != NONE and operation.memory1 == NO_MEMORY  # begin when all before them can be read
    drained = stream.pushed == stream.given and (stream.drained or not machine.slices)
    state.ports[LOCAL_READS].bank[MOVE_OUT] = (
        local_bank(machine, address0(unit, operation)) if scales and drained else NONE)
    asks = unit.work != NONE and not scales and (
        stream.pushed - stream.popped < machine.move_out_latency + READ_STREAM_SPARE)
    state.ports[ACCUMULATOR_READS].bank[MOVE_OUT] = (
        accumulator_bank(machine, address1(unit, operation)) if asks else NONE)
    state.ports[LOCAL_WRITES].bank[MOVE_OUT] = stream.bank[stream.given % DEPTH] if stream.out else NONE
    unit, stream = state.units[MOVE_IN], state.streams[INTO]
    operation = state.queued[MOVE_IN, unit.work]
    asks = unit.work != NONE and stream.pushed - stream.popped < INTO_DEPTH
    state.ports[LOCAL_READS].bank[MOVE_IN] = local_bank(machine, address0(unit, operation)) if asks else NONE


@kernel
def step_move_out(state, machine, now):
    """Step the moves out of the accumulators by a cycle."""
    stream, unit = state.streams[OUT_OF], state.units[MOVE_OUT]
    stream.drained = stream.pushed == stream.given
    granted = state.ports[ACCUMULATOR_READS].grant[MOVE_OUT]
    if give(state, machine, stream) and ready(stream, now):
        stream.out += 1
        stream.popped += 1
    if granted:
        operation = state.queued[MOVE_OUT, unit.work]
        push(stream, local_bank(machine, address0(unit, operation)), is_last(unit, operation), False,
             now + machine.move_out_latency + READ_STREAM_LATENCY)
        step(unit, operation)
    if state.ports[LOCAL_READS].grant[MOVE_OUT]:
        operation = state.queued[MOVE_OUT, unit.work]
        if is_last(unit, operation):
            finish(state, MOVE_OUT)
        step(unit, operation)
    begin(state, machine, MOVE_OUT, now)


@kernel
def step_move_in(state, machine, now):
    """Step the moves into the accumulators by a cycle, up to the end of the stream."""
    stream, unit = state.streams[INTO], state.units[MOVE_IN]
    if state.ports[LOCAL_READS].grant[MOVE_IN]:
        operation = state.queued[MOVE_IN, unit.work]
        push(stream, accumulator_bank(machine, address1(unit, operation)), is_last(unit, operation),
             operation.accumulate, now + INTO_LATENCY)
        step(unit, operation)
    begin(state, machine, MOVE_IN, now)


@kernel
def give(state, machine, stream):
    """Let local memory take the row that asks to be written; tell whether there is room for the next one.

    An operation is done with its last row. There is one register, or a FIFO of two in its place."""
    room = stream.out < 2
    if stream.out and state.ports[LOCAL_WRITES].grant[MOVE_OUT]:
        if stream.last[stream.given % DEPTH]:
            finish(state, MOVE_OUT)
        stream.given += 1
        stream.out -= 1
    return room if machine.slices else stream.out == 0


@kernel
def ready(stream, now):
    """Tell whether a row is at the stream's end."""
    return stream.popped < stream.pushed and stream.ready[stream.popped % DEPTH] <= now


@kernel
def push(stream, bank, last, accumulates, ready_from):
    """Note that a row was requested, which is ready from cycle ``ready_from`` on."""
    place = stream.pushed % DEPTH
    stream.bank[place], stream.last[place], stream.accumulates[place] = bank, last, accumulates
    stream.ready[place] = ready_from
    stream.pushed += 1
