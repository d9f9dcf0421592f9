# SPDX-License-Identifier: Apache-2.0
"""The readers, from DRAM to local memory, cycle by cycle."""

from __future__ import annotations

from weft.cycles.board_dram import port_of
from weft.cycles.dram import advance, next_burst, pays
from weft.cycles.interlock import address0, finish, is_last, step
from weft.cycles.jit import kernel
from weft.cycles.memories import LOCAL_WRITES, local_bank
from weft.cycles.state import DEPTH, NONE, SLOTS
from weft.hw.contract.timing import READER_BEATS_WAITING, READER_VECTORS_WAITING


@kernel
def ask(state, reader, number, machine):
    """Set the request to write a complete vector into local memory."""
    unit = state.units[number]
    if unit.work == NONE and unit.done < unit.taken:
        unit.work = unit.done % SLOTS
        unit.row = unit.vector = 0
    operation = state.queued[number, unit.work]
    there = unit.work != NONE and reader.vectors > 0
    state.ports[LOCAL_WRITES].bank[number] = local_bank(machine, address0(unit, operation)) if there else NONE


@kernel
def step_reader(state, reader, number, machine, now):
    """Step a reader by a cycle, from the memory's side back, so that each part sees the state before."""
    unit = state.units[number]
    address(state, reader, number, machine, now)
    advance(state, reader, number, machine, True, now)
    if reader.answered < reader.bursts or reader.offered or reader.waiting or reader.level or unit.work != NONE:
        written = state.ports[LOCAL_WRITES].grant[number]
        if written:
            operation = state.queued[number, unit.work]
            if is_last(unit, operation):
                finish(state, number)
            step(unit, operation)
        waiting, room = reader.waiting, reader.vectors < READER_VECTORS_WAITING
        reader.vectors -= written
        fill(reader, machine, room)
        if state.paced:
            take_beat(reader, machine, state.dram.ports[port_of(number)])
        else:
            answer(state.control, reader, machine, waiting, now)


@kernel
def fill(reader, machine, room):
    """Step the gearbox: a vector out, if there is room, and a beat in. It is only wires if both have one size."""
    wires = machine.vector_bytes == machine.beat_bytes
    if room and (reader.waiting if wires else reader.level >= machine.vector_bytes):
        reader.vectors += 1
        if wires:
            drop(reader)
        else:
            reader.level -= machine.vector_bytes
    if not wires and reader.waiting and reader.level < machine.vector_bytes:
        reader.level += reader.waiting_bytes[0]
        drop(reader)


@kernel
def drop(reader):
    """Remove the oldest beat that waits behind the bus."""
    for place in range(READER_BEATS_WAITING - 1):
        reader.waiting_bytes[place] = reader.waiting_bytes[place + 1]
    reader.waiting -= 1


@kernel
def answer(control, reader, machine, waiting, now):
    """Step the bus: the offered beat is taken if there is room, and the DRAM offers the next one."""
    if reader.offered and waiting < READER_BEATS_WAITING:
        reader.waiting_bytes[reader.waiting] = reader.offered_bytes
        reader.waiting += 1
        reader.offered = 0
    burst = reader.answered % DEPTH
    if reader.offered or reader.answered == reader.accepted or now < reader.due[burst] or not pays(control, machine):
        return
    reader.offered_bytes = next_bytes(reader, machine)
    reader.offered = 1


@kernel
def take_beat(reader, machine, port):
    """Take a beat when a board's memory says that it moves."""
    if port.r_taken:
        reader.waiting_bytes[reader.waiting] = next_bytes(reader, machine)
        reader.waiting += 1


@kernel
def next_bytes(reader, machine):
    """Return how many bytes of the next beat count, and go on to the one after it."""
    burst = reader.answered % DEPTH
    last = reader.beat_out == reader.beats[burst] - 1
    count = reader.end[burst] if last else machine.beat_bytes
    if reader.beat_out == 0:
        count -= reader.skip[burst]
    reader.beat_out += 1
    if last:
        reader.beat_out = 0
        reader.answered += 1
    return count


@kernel
def address(state, reader, number, machine, now):
    """Step the address channel: an offered address is taken while the DRAM has room, and the next one is made."""
    room = reader.accepted - reader.answered < machine.dram_bursts
    if state.dram.ports[port_of(number)].ar.taken if state.paced else reader.address_valid and room:
        reader.due[reader.accepted % DEPTH] = now + machine.dram_read_latency - 1
        reader.accepted += 1
        reader.address_valid = 0
    if not reader.address_valid:
        beats, skip, end, _, _ = next_burst(state, reader, number, machine)
        if beats:
            place = reader.bursts % DEPTH
            reader.beats[place], reader.skip[place], reader.end[place] = beats, skip, end
            reader.bursts += 1
            reader.address_valid = 1
