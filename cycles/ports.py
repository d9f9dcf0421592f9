# SPDX-License-Identifier: Apache-2.0
"""Memory ports that cores share: the arbiter of ``hw/bus/port_arbiter.py`` and the ideal memory behind it.

Cores use them as they use a board's memory: by the records ``PORT`` of ``state.dram.ports``. Where the memory limits
what all ports move together (``bus_share``), the credit of core 0 is everybody's, programs included."""

from __future__ import annotations

import numpy as np

from weft.cycles.board_dram import FETCH_BEATS, next_burst, offer
from weft.cycles.dram import pays
from weft.cycles.jit import kernel
from weft.hw.contract.arch import Arch, largest
from weft.hw.contract.timing import (
    OUTSTANDING_BURSTS,
    PORT_ADDRESSES_WAITING,
    PORT_BEATS_WAITING,
    PORT_BURSTS_AHEAD,
    program_places,
)

DATA, PROGRAM = 1, 2
"""The places of a core's two masters in ``state.dram.ports``."""
RING = 2 * OUTSTANDING_BURSTS
"""The places of the rings below, a power of two: more bursts are never outstanding."""

CORE = np.dtype([
    ("free", "i8"), ("queued", "i8"), ("ahead", "i8"), ("ahead_before", "i8"),
])
"""A core at its port. ``free``: places of its program's queue for which nobody asked beats; ``queued``: beats that wait
there. ``ahead``: bursts to be written whose address is ahead of their data; ``ahead_before``: the same when the cycle
began."""

SHARED = np.dtype([
    ("cores", "i8"), ("first", "i8"), ("every", "i8"), ("core", CORE, largest("cores")),
    ("read_last", "i8"), ("write_last", "i8"),
    # reads: asked by the arbiter, taken and ended by the memory, answered to the last beat
    ("asked", "i8"), ("taken", "i8"), ("ended", "i8"), ("answered", "i8"),
    ("whose", "i8", RING), ("beats", "i8", RING), ("due", "i8", RING), ("beat", "i8"), ("offered", "i8"),
    ("offered_last", "i8"),
    # writes: begun by the arbiter, address taken, filled and put by the memory, answered
    ("begun", "i8"), ("addressed", "i8"), ("filled", "i8"), ("put", "i8"), ("heard", "i8"), ("owner", "i8"),
    ("writer", "i8", RING), ("put_at", "i8", RING), ("response", "i8"),
    ("waiting", "i8"), ("lasts", "i8", PORT_BEATS_WAITING), ("read_beats", "i8"), ("write_beats", "i8"),
    ("members", "i8"), ("waited", "i8"),
])
"""A memory port. Its cores are ``first``, ``first`` + ``every`` and so on. ``read_last``, ``write_last``: the client
served last. ``beat``: of the burst that is being read; ``offered``: a beat is on R, ``response``: one is on B;
``owner``: place of the core within whose burst the port is, NONE for none; ``waiting``: beats for the memory, and
whether each is its burst's last; ``read_beats``, ``write_beats``: how many there were. ``whose``: clients, a bit
each; joined reads have several. ``members``: the cores that started together; ``waited``: cycles for which a read that
may be joined waited."""

NONE = -1


def new_ports(arch: Arch, started: int) -> np.ndarray:
    """Return the records SHARED [memory_ports], at rest, behind cores of which the first ``started`` start together."""
    ports = np.zeros(arch.memory_ports, SHARED)
    for number, port in enumerate(ports):
        port["cores"] = len(range(number, arch.cores, arch.memory_ports))
        port["first"], port["every"] = number, arch.memory_ports
        port["members"] = sum(1 << place for place, core in enumerate(range(number, arch.cores, arch.memory_ports))
                              if core < started)
        port["core"]["free"] = program_places(arch)
        port["read_last"], port["write_last"], port["owner"] = 2 * port["cores"] - 1, port["cores"] - 1, NONE
    return ports


@kernel
def step_port(port, states, machine, now):
    """Step a port by a cycle, on what everybody offered when it began."""
    for place in range(port.cores):
        state = states[port.first + place * port.every]
        offer(state.dram.ports[DATA], state.readers[0], state.writers[0])
        own, program = state.dram.ports[PROGRAM], state.program
        own.ar.valid, own.ar.beats = program.address_valid, program.address_beats
        own.r_ready = program.received < FETCH_BEATS
        for master in (DATA, PROGRAM):
            each = state.dram.ports[master]
            each.ar.taken = each.r_taken = each.aw.taken = each.w_taken = each.b_taken = 0
    step_reads(port, states, machine, now)
    step_writes(port, states, machine, now)
    for place in range(port.cores):
        state, core = states[port.first + place * port.every], port.core[place]
        own, program = state.dram.ports[PROGRAM], state.program
        program.arriving = program.received > 0 and state.control.beats < FETCH_BEATS
        program.received += own.r_taken - program.arriving
        core.queued -= own.r_taken
        core.free += own.r_taken
        if own.ar.taken:
            core.free -= own.ar.beats
            next_burst(program, machine)


# -- reads -------------------------------------------------------------------------------------------------------------
@kernel
def step_reads(port, states, machine, now):
    """Step reads by a cycle: beats first, then the memory, then the arbiter.

    Each sees the others as they were when the cycle began."""
    asked, taken, ended = port.asked, port.taken, port.ended
    for place in range(port.cores):
        own = states[port.first + place * port.every].dram.ports[PROGRAM]
        own.r_taken = port.core[place].queued > 0 and own.r_ready
    moves = False
    room = asked - port.answered < OUTSTANDING_BURSTS
    if port.offered:
        whose = port.whose[port.answered % RING]
        moves = True
        for place in range(port.cores):
            if whose >> place & 1:
                moves = moves and states[port.first + place * port.every].dram.ports[DATA].r_ready
        for place in range(port.cores):
            if whose >> place & 1:
                states[port.first + place * port.every].dram.ports[DATA].r_taken = moves
            if whose >> port.cores + place & 1:
                port.core[place].queued += 1
        if moves:
            port.read_beats += 1
            port.answered += port.offered_last
            port.offered = 0
    if not port.offered and ended < taken and now >= port.due[ended % RING] and pays(states[0].control, machine):
        port.beat += 1
        port.offered, port.offered_last = 1, port.beat == port.beats[ended % RING]
        if port.offered_last:
            port.beat = 0
            port.ended += 1
    if taken < asked and taken - ended < machine.dram_bursts:
        port.due[taken % RING] = now + machine.dram_read_latency - 1
        port.taken += 1
    if room and asked - taken < PORT_ADDRESSES_WAITING:
        grant_read(port, states, machine)
    if machine.join_cycles:
        wait_for_others(port, states, machine)


@kernel
def grant_read(port, states, machine):
    """Grant the next client, round robin, that may be served, and with it all whose reads are joined."""
    count = 2 * port.cores
    for behind in range(1, count + 1):
        client = (port.read_last + behind) % count
        place = client % port.cores
        own = states[port.first + place * port.every].dram.ports[DATA if client < port.cores else PROGRAM]
        if own.ar.valid and (may_be_read(port, states, place, machine) if client < port.cores
                             else port.core[place].free >= own.ar.beats):
            whose = 1 << client
            if client < port.cores and own.ar_joins and machine.join_cycles:
                whose = alike(port, states, place)
            for other in range(port.cores):
                if whose >> other & 1:
                    states[port.first + other * port.every].dram.ports[DATA].ar.taken = 1
            own.ar.taken = 1
            port.read_last = client
            port.whose[port.asked % RING], port.beats[port.asked % RING] = whose, own.ar.beats
            port.asked += 1
            return


@kernel
def alike(port, states, place):
    """Return the cores, a bit each, whose read may be joined with that of the core at ``place``."""
    own, found = states[port.first + place * port.every].dram.ports[DATA], 0
    for other in range(port.cores):
        each = states[port.first + other * port.every].dram.ports[DATA]
        if each.ar_joins and each.ar.address == own.ar.address and each.ar.beats == own.ar.beats:
            found |= 1 << other
    return found


@kernel
def may_be_read(port, states, place, machine):
    """Tell whether the read that a core offers need not wait, or no longer, for others to offer the same."""
    own = states[port.first + place * port.every].dram.ports[DATA]
    if not (machine.join_cycles and own.ar_joins) or port.waited >= machine.join_cycles:
        return True
    return port.members & ~alike(port, states, place) == 0


@kernel
def wait_for_others(port, states, machine):
    """Count the cycles for which reads wait to be joined; none waits anew while others still do."""
    waits = False
    for place in range(port.cores):
        own = states[port.first + place * port.every].dram.ports[DATA]
        waits = waits or (own.ar_joins and not own.ar.taken)
    port.waited = min(port.waited + 1, machine.join_cycles) if waits else 0


# -- writes ------------------------------------------------------------------------------------------------------------
@kernel
def step_writes(port, states, machine, now):
    """Step writes by a cycle: the memory first, then the arbiter; each sees the other as it was."""
    begun, addressed, filled, put = port.begun, port.addressed, port.filled, port.put
    room = begun - addressed < PORT_ADDRESSES_WAITING and begun - port.heard < OUTSTANDING_BURSTS
    free = port.waiting < PORT_BEATS_WAITING
    if port.response:
        states[port.first + port.writer[port.heard % RING] * port.every].dram.ports[DATA].b_taken = 1
        port.heard += 1
        port.response = 0
    if put < filled and now >= port.put_at[put % RING]:
        port.response = 1
        port.put += 1
    if port.waiting and filled < addressed and pays(states[0].control, machine):
        if port.lasts[0]:
            port.put_at[filled % RING] = now + machine.dram_write_latency - 1
            port.filled += 1
        for place in range(PORT_BEATS_WAITING - 1):
            port.lasts[place] = port.lasts[place + 1]
        port.waiting -= 1
    if addressed < begun and addressed - put < machine.dram_bursts:
        port.addressed += 1
    if free:
        take_beat(port, states, room)
    for place in range(port.cores):
        own, core = states[port.first + place * port.every].dram.ports[DATA], port.core[place]
        own.aw.taken = own.aw.valid and core.ahead_before < PORT_BURSTS_AHEAD
        core.ahead += own.aw.taken
        core.ahead_before = core.ahead


@kernel
def take_beat(port, states, room):
    """Take a beat of the port's current burst, or the first of the next one."""
    if port.owner == NONE:
        if not room:
            return
        for behind in range(1, port.cores + 1):
            place = (port.write_last + behind) % port.cores
            if port.core[place].ahead and states[port.first + place * port.every].dram.ports[DATA].w_valid:
                port.owner = port.write_last = place
                port.writer[port.begun % RING] = place
                port.begun += 1
                port.core[place].ahead -= 1
                break
        if port.owner == NONE:
            return
    own = states[port.first + port.owner * port.every].dram.ports[DATA]
    if own.w_valid:
        own.w_taken = 1
        port.write_beats += 1
        port.lasts[port.waiting] = own.w_last
        port.waiting += 1
        if own.w_last:
            port.owner = NONE
