# SPDX-License-Identifier: Apache-2.0
"""The writers, from local memory to DRAM, cycle by cycle."""

from __future__ import annotations

from weft.cycles.board_dram import port_of
from weft.cycles.dram import advance, next_burst, pays
from weft.cycles.interlock import address0, finish, start_walk, step, walk_ahead
from weft.cycles.jit import kernel
from weft.cycles.memories import LOCAL_READS, local_bank
from weft.cycles.state import DEPTH, NONE, SLOTS
from weft.hw.contract.timing import (
    BURSTS_BEFORE_DATA,
    DRAM_REQUEST_LATENCY,
    LOCAL_READ_LATENCY,
    WRITER_BEATS_WAITING,
    WRITER_OPERATIONS_AHEAD,
)


@kernel
def ask(state, writer, number, machine):
    """Set the request to read the next vector, if there is a place for it."""
    unit = state.units[number]
    operation = state.queued[number, unit.work]
    asks = unit.work != NONE and writer.places > 0
    state.ports[LOCAL_READS].bank[number] = local_bank(machine, address0(unit, operation)) if asks else NONE


@kernel
def step_writer(state, writer, number, machine, now):
    """Step a writer by a cycle, from the memory's side back, so that each part sees the state before."""
    unit = state.units[number]
    if unit.done < unit.taken:
        if unit.done < writer.responses and writer.done_at[unit.done % SLOTS] == now:
            finish(state, number)
        room = writer.words < WRITER_BEATS_WAITING
        if state.paced:
            take_beat(writer, state.dram.ports[port_of(number)], now)
        else:
            send(state.control, writer, machine, now)
        given = fill(state, writer, number, machine, room, now)
        if state.ports[LOCAL_READS].grant[number]:
            writer.ready[writer.requested % DEPTH] = now + LOCAL_READ_LATENCY + 1
            writer.requested += 1
            writer.places -= 1
            step(unit, state.queued[number, unit.work])
        writer.places += given
        address(state, writer, number, machine, now)
    advance(state, writer, number, machine, unit.taken - writer.walked < WRITER_OPERATIONS_AHEAD, now)
    if machine.slices:
        walk_ahead(unit)
        if unit.left == 0 and writer.walked < unit.taken:
            start_walk(unit, state.queued[number, writer.walked % SLOTS])
            writer.walked += 1
    elif unit.work == NONE and writer.walked < unit.taken:
        unit.work = writer.walked % SLOTS
        unit.row = unit.vector = 0
        writer.walked += 1


@kernel
def send(control, writer, machine, now):
    """Let the bus take the offered beat if the DRAM has its burst's address.

    Note when the DRAM will answer, if it is a burst's last beat."""
    while writer.answered < writer.filled and writer.put[writer.answered % DEPTH] < now:
        writer.answered += 1
    if not writer.words or writer.filled == writer.accepted or not pays(control, machine) or not drop(writer):
        return
    place = writer.filled % DEPTH
    writer.last_put = max(now + machine.dram_write_latency - 1, writer.last_put + 1)
    writer.put[place] = writer.last_put
    if writer.ends[place]:
        writer.done_at[writer.responses % SLOTS] = writer.last_put + 2
        writer.responses += 1
    writer.filled += 1


@kernel
def drop(writer):
    """Remove the offered beat; tell whether it was its burst's last one."""
    last = writer.word_last[0]
    for place in range(WRITER_BEATS_WAITING - 1):
        writer.word_last[place] = writer.word_last[place + 1]
    writer.words -= 1
    return last


@kernel
def take_beat(writer, port, now):
    """Send a beat, and take a response, when a board's memory says that they move."""
    if port.w_taken and drop(writer):
        writer.filled += 1
    if port.b_taken:
        if writer.ends[writer.answered % DEPTH]:
            writer.done_at[writer.responses % SLOTS] = now + 1
            writer.responses += 1
        writer.answered += 1


@kernel
def fill(state, writer, number, machine, room, now):
    """Step the gearbox: a beat out, a vector in; return how many vectors went in."""
    moves = room and writer.sent < writer.bursts
    there = (writer.given < writer.requested and writer.ready[writer.given % DEPTH] <= now
             and now >= writer.taken_at[writer.fill_work % SLOTS] + DRAM_REQUEST_LATENCY - 1)
    wires = machine.vector_bytes == machine.beat_bytes
    if moves and (there if wires else writer.level >= machine.beat_bytes or writer.closing):
        offer(writer)
        writer.level -= machine.beat_bytes
        if writer.closing and writer.level <= 0:
            writer.level = writer.closing = 0
    elif wires:
        return 0
    if not there or not wires and (writer.closing or writer.level >= machine.beat_bytes):
        return 0
    operation = state.queued[number, writer.fill_work % SLOTS]
    if operation.stride1 != 1 or writer.fill_vector == 0:
        start = operation.base1 + writer.fill_row * operation.pitch1 + writer.fill_vector * operation.stride1
        writer.level = start * machine.vector_bytes % machine.beat_bytes
    writer.level = 0 if wires else writer.level + machine.vector_bytes
    writer.closing = not wires and (operation.stride1 != 1 or writer.fill_vector == operation.size - 1)
    writer.given += 1
    writer.fill_vector += 1
    if writer.fill_vector == operation.size:
        writer.fill_vector = 0
        writer.fill_row += 1
        if writer.fill_row == operation.rows:
            writer.fill_row = 0
            writer.fill_work += 1
    return 1


@kernel
def offer(writer):
    """Offer a beat to the bus."""
    writer.sent_beats += 1
    last = writer.sent_beats == writer.beats[writer.sent % DEPTH]
    writer.word_last[writer.words] = last
    writer.words += 1
    if last:
        writer.sent_beats = 0
        writer.sent += 1


@kernel
def address(state, writer, number, machine, now):
    """Step the address channel: an offered address is taken while the DRAM has room, and the next one is made.

    It is only made while not too many bursts wait for data."""
    room = writer.accepted - writer.answered < machine.dram_bursts
    if state.dram.ports[port_of(number)].aw.taken if state.paced else writer.address_valid and room:
        writer.accepted += 1
        writer.address_valid = 0
    if not writer.address_valid and writer.bursts - writer.sent < BURSTS_BEFORE_DATA:
        beats, _, _, _, ends = next_burst(state, writer, number, machine)
        if beats:
            writer.beats[writer.bursts % DEPTH], writer.ends[writer.bursts % DEPTH] = beats, ends
            writer.bursts += 1
            writer.address_valid = 1
