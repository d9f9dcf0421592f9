# SPDX-License-Identifier: Apache-2.0
"""The machine's ports on a board's memory: what they offer in a cycle, and the reader of the program."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.litedram import step_dram
from weft.hw.contract.timing import READER_BEATS_WAITING
from weft.hw.contract.units import UNIT_NAMES

SECOND = tuple(name.startswith("dram1") for name in UNIT_NAMES).index(True)
"""The first unit of the second DRAM port; units of a shared port come after those of both."""
SHARED = UNIT_NAMES.index("dram_read")
FETCH_BEATS = 2
"""The places of each of the two FIFOs between the bus and the cutting of beats into instructions."""


@kernel
def port_of(number):
    """Return the crossbar's master that serves a unit's port: the host comes first, the program last."""
    return 2 if SECOND <= number < SHARED else 1


@kernel
def step_memory(state, machine, now):
    """Step the memory by a cycle, on what the ports offered when it began."""
    ports = state.dram.ports
    windows = 1 if machine.shared_dram else 2
    for number in range(windows):
        offer(ports[1 + number], state.readers[number], state.writers[number])
    port, program = ports[1 + windows], state.program
    port.ar.valid, port.ar.address, port.ar.beats = program.address_valid, program.address, program.address_beats
    port.r_ready = program.received < FETCH_BEATS
    step_dram(state.dram, state.controller, now)
    program.arriving = program.received > 0 and state.control.beats < FETCH_BEATS
    program.received += port.r_taken - program.arriving
    if port.ar.taken:
        next_burst(program, machine)


@kernel
def offer(port, reader, writer):
    """Set a port's channels to what a reader and a writer offer."""
    port.ar.valid, port.ar.address, port.ar.beats = reader.address_valid, reader.address, reader.address_beats
    port.ar_joins = reader.address_valid and reader.joins
    port.aw.valid, port.aw.address, port.aw.beats = writer.address_valid, writer.address, writer.address_beats
    port.w_valid, port.w_last = writer.words > 0, writer.word_last[0]
    port.r_ready, port.b_ready = reader.waiting < READER_BEATS_WAITING, 1


@kernel
def next_burst(program, machine):
    """Offer the program's next burst, if there is one."""
    program.address_valid = program.beat <= program.last_beat
    if program.address_valid:
        until = min(program.last_beat, program.beat | (program.max_burst - 1))
        program.address = program.beat * machine.stream_bytes
        program.address_beats = until - program.beat + 1
        program.beat = until + 1
