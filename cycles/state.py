# SPDX-License-Identifier: Apache-2.0
"""The state of the modelled machine from cycle to cycle, as numpy records for compiled code."""

from __future__ import annotations

import numpy as np

from weft.cycles.litedram_state import CONTROLLER, DRAM
from weft.cycles.program import NO_MEMORY, WORK
from weft.hw.contract.arch import Arch, largest
from weft.hw.contract.instructions import COUNTER_WIDTH
from weft.hw.contract.key_values import MOST_KERNEL_ROWS
from weft.hw.contract.timing import (
    DECODE_LATENCY,
    LOCAL_READ_LATENCY,
    OUTSTANDING_BURSTS,
    READ_STREAM_SPARE,
    READER_BEATS_WAITING,
    ROUNDED_READ_LATENCY,
    SIMD_IN_FLIGHT,
    SIMD_SLOTS,
    WRITER_BEATS_WAITING,
    WRITER_VECTORS_AHEAD,
)
from weft.hw.contract.units import UNIT_NAMES, UNITS, depths

(LOAD_WEIGHT, MAT_MUL, SIMD, MOVE_OUT, MOVE_IN, DRAM0_READ, DRAM0_WRITE, DRAM1_READ, DRAM1_WRITE, DRAM_READ,
 DRAM_WRITE, SYNC) = range(12)
assert UNIT_NAMES == ("load_weight", "mat_mul", "simd", "move_out", "move_in", "dram0_read", "dram0_write",
                      "dram1_read", "dram1_write", "dram_read", "dram_write", "sync")
UNIT_COUNT = len(UNIT_NAMES)
LOWER_WEIGHTS, FURTHER_ROWS = UNIT_COUNT, UNIT_COUNT + 1
CLIENT_COUNT = FURTHER_ROWS + MOST_KERNEL_ROWS - 1
"""The number of local memory's clients: the units, and those below.

With two rows of weights a cycle the lower part of the column has a client of its own. Further rows of taps of a MatMul
have one each, from FURTHER_ROWS on."""
SLOTS = max(unit.deep.outstanding for unit in UNITS.values())
NONE, LATER = -1, 1 << 62

_RANGE = [(f"{name}{operand}", "i8") for operand in (0, 1) for name in ("memory", "writes", "first", "last")]
TRACKED = np.dtype(_RANGE)
"""The ranges of an outstanding operation."""

UNIT = np.dtype([
    ("queue", "i8"), ("outstanding", "i8"),
    ("issued", "i8"), ("taken", "i8"), ("done", "i8"), ("taken_now", "i8"), ("done_now", "i8"), ("heard", "i8"),
    ("stored_from", "i8", SLOTS), ("there_from", "i8"), ("waits_for", "i8"), ("needed", "i8", (SLOTS, UNIT_COUNT)),
    ("work", "i8"), ("vector", "i8"), ("row", "i8"), ("extra", "i8"), ("before", "i8"),
    ("may_start", "i8"),
    ("left", "i8"), ("ahead", "i8"), ("asked", "i8"), ("head", "i8"), ("heads", "i8"),
])
"""A unit and its queue. ``issued``, ``taken``, ``done``: how many of its operations are; ``*_now``: at the end of this
cycle, which others see from the next one on; ``heard``: how many the interlock knows to be done. ``stored_from``: when
each can be fetched at the earliest, ``there_from``: when the next one stands at the head. ``needed`` [operation %
SLOTS, unit]: how many operations of that unit must be done; the units before ``waits_for`` are known to be that far.
``work``: the place in ``queued`` of the operation whose addresses are made, NONE if none, and its current ``row`` and
``vector``; ``extra``: LoadWeight's row of zeros is due, or so many results went behind a MatMul's last vector;
``before``: of which rows of taps its vector was read in earlier cycles, a bit each.

With register slices, ``may_start`` says whether the next operation was offered in the last cycle. ``ahead``: how many
addresses are made ahead of requests; ``left``: how many of the last operation are. ``asked``: the first of them was
requested in this cycle; it belongs to operation ``head`` (NONE: to the next), of which there were ``heads``."""

DEPTH = 2 * max(OUTSTANDING_BURSTS, SIMD_IN_FLIGHT, WRITER_VECTORS_AHEAD,
                LOCAL_READ_LATENCY + READ_STREAM_SPARE, ROUNDED_READ_LATENCY + READ_STREAM_SPARE)
"""Places of the rings below, more than any of them needs."""

STREAM = np.dtype([
    ("pushed", "i8"), ("popped", "i8"), ("ready", "i8", DEPTH), ("bank", "i8", DEPTH), ("last", "i8", DEPTH),
    ("accumulates", "i8", DEPTH),
    ("out", "i8"), ("given", "i8"), ("drained", "i8"),
])
"""Rows between a memory's answer and the other memory: a ring, and requests (``out``: how many wait), numbered in their
order; so many were ``given`` to the memory. ``drained``: all of them, already before
the last cycle. Into the accumulators the requests are those of GATE."""

READER = np.dtype([
    ("addressed", "i8"), ("row", "i8"), ("vector", "i8"), ("beat", "i8"), ("last_beat", "i8"), ("starts", "i8"),
    ("address_valid", "i8"), ("walk", "i8"), ("scaled", "i8"), ("fifo", "i8"), ("splitter", "i8"),
    ("address", "i8"), ("address_beats", "i8"), ("joins", "i8"), ("taken_at", "i8", SLOTS),
    ("bursts", "i8"), ("accepted", "i8"), ("answered", "i8"),
    ("due", "i8", DEPTH), ("beats", "i8", DEPTH), ("skip", "i8", DEPTH), ("end", "i8", DEPTH),
    ("beat_out", "i8"), ("offered", "i8"), ("offered_bytes", "i8"), ("waiting", "i8"),
    ("waiting_bytes", "i8", READER_BEATS_WAITING), ("level", "i8"), ("vectors", "i8"),
])
"""A DRAM reader and the DRAM behind it. ``address``, ``address_beats``: of the burst offered, and whether it
``joins`` other cores'. ``bursts`` made, ``accepted`` by the DRAM, ``answered`` to the last beat. ``offered``,
``waiting``: beats, on the bus and behind it;
``level``: bytes in the gearbox, ``vectors`` behind it."""

WRITER = np.dtype([
    *((name, READER[name]) for name in ("addressed", "row", "vector", "beat", "last_beat", "starts", "address_valid",
                                        "walk", "scaled", "fifo", "splitter", "address", "address_beats",
                                        "joins", "taken_at")),
    ("bursts", "i8"), ("accepted", "i8"), ("sent", "i8"), ("filled", "i8"), ("answered", "i8"),
    ("beats", "i8", DEPTH), ("ends", "i8", DEPTH), ("put", "i8", DEPTH), ("last_put", "i8"),
    ("places", "i8"), ("requested", "i8"), ("given", "i8"), ("ready", "i8", DEPTH),
    ("fill_work", "i8"), ("fill_row", "i8"), ("fill_vector", "i8"), ("level", "i8"), ("closing", "i8"),
    ("walked", "i8"), ("words", "i8"), ("word_last", "i8", WRITER_BEATS_WAITING), ("sent_beats", "i8"),
    ("responses", "i8"), ("done_at", "i8", SLOTS),
])
"""A DRAM writer and the DRAM behind it. ``sent``: bursts whose data is through the gearbox, ``filled``: those whose
data the DRAM has, ``put``: when it answers each. ``walked``: operations whose local addresses are made or were;
``words``: beats for the bus."""

REGISTERS = largest("simd_registers_depth") + 1
LOOP = largest("simd_loop_depth")
MICRO = np.dtype([(name, "i8") for name in (
    "valid", "reads", "read", "writes", "write", "accumulates", "done", "left", "right", "left_slot", "right_slot",
    "first_destination", "last_destination", "slot")])
"""A micro-operation of the SIMD unit. ``left``, ``right``: register numbers, 0 for none."""

SEQUENCER = np.dtype([
    ("state", "i8"), ("number", "i8"), ("body", "i8"), ("left", "i8"), ("place", "i8"), ("block", "i8"),
    ("in_order", "i8"), ("accesses", "i8"), ("ready_from", "i8"), ("written", "i8"),
    ("works", WORK, LOOP), ("own_left", "i8", LOOP), ("own_right", "i8", LOOP), ("iteration", "i8", LOOP),
])
PIPELINE = np.dtype([
    ("issued", "i8"), ("retired", "i8"), ("retired_now", "i8"), ("clear_from", "i8"), ("blocker", "i8"),
    ("queued", "i8"), ("ready", "i8", DEPTH), ("writes", "i8", DEPTH), ("write", "i8", DEPTH),
    ("accumulates", "i8", DEPTH), ("done", "i8", DEPTH),
    ("written_at", "i8", (REGISTERS, SIMD_SLOTS)),
])
"""Micro-operations under way: numbers in order of issue; those before ``queued`` have left the queue of results
and pass the accumulators or are ``retired``."""

GATE = np.dtype([("reader", "i8"), ("writer", "i8"), ("held", "i8"), ("whose", "i8", 2)])
"""The choice in front of the accumulators. ``reader``: the unit that lets the other one read first; ``writer``: the one
that was let to write last. ``held``: how many writes are held; ``whose``: the unit of each."""

BANKS = max(largest("local_banks"), largest("accumulator_banks"))
PORTS = np.dtype([("bank", "i8", CLIENT_COUNT), ("accumulates", "i8", CLIENT_COUNT), ("grant", "i8", CLIENT_COUNT),
                  *((name, "i8", BANKS) for name in ("last", "held", "winner"))])
"""The clients of one kind of port: which ``bank`` each asks for (NONE: no request), who was served last."""

STAGES = DECODE_LATENCY + largest("register_slices")
"""Instructions that the decoder holds at most."""

CONTROL = np.dtype([
    ("next", "i8"), ("instruction", "i8"), ("entered", "i8"), ("entered_at", "i8", STAGES), ("bytes", "i8"),
    ("word", "i8"), ("reads", "i8"), ("fetched", "i8"), ("step", "i8"), ("offered", "i8"),
    ("drain", "i8"), ("free_from", "i8"), ("turn", "i8"),
    ("swapped", "i8"), ("swapped_now", "i8"), ("finished", "i8"),
    ("contended", "i8"), ("starved", "i8"), ("enters_from", "i8"), ("beats", "i8"), ("first_at", "i8"),
    ("credit", "i8"),
])
"""The decoder and what units share: the ``next`` operation, the current ``instruction``; ``free_from``:
when the decoder is done with those before it; how many have ``entered`` the decoder, and when; ``bytes`` of program in
front of it, from which the next ``word`` comes, and so many ``beats`` in front of these; ``first_at``: when the first
instruction went in. Of the repeater: ``reads`` of the history that are left, whether a step is ``fetched`` and then the
next ``step``, and how many instructions are ``offered``. ``contended``: whether MatMul kept others waiting in the last
cycle, ``starved``: in how many in a row before it; ``enters_from``: when a MatMul may enter the bias anew. ``credit``:
what ports may move, in parts of a byte (``bus_share``)."""

ROWS = np.dtype([("operation", "i8"), ("row", "i8"), ("count", "i8")])
"""The rows that LoadWeight has dealt with, on machines with two rows of weights a cycle. ``count``: how many;
``operation``, ``row``: the next row, and its operation counted from the first."""

MOST_PRODUCTS = 1024
"""More cycles than a product takes on the largest array; a power of two, so that a remainder is cheap."""

PROGRAM = np.dtype([(name, "i8") for name in (
    "beat", "last_beat", "max_burst", "address_valid", "address", "address_beats", "received", "arriving")])
"""The reader of the program: the ``beat`` from which on the next burst is, and what is offered. ``received``: beats
behind the bus; ``arriving``: one goes to the decoder in this cycle."""

COUNTERS = np.dtype([("holds", "i8", 1 << COUNTER_WIDTH), ("posts", "i8"), ("counter", "i8")])
"""The count of each counter of a core, and the core's post in this cycle: to which cores (a bit each) and counter."""

STATE = np.dtype([
    ("control", CONTROL), ("units", UNIT, UNIT_COUNT), ("queued", WORK, (UNIT_COUNT, SLOTS)),
    ("numbers", "i8", (UNIT_COUNT, SLOTS)), ("tracked", TRACKED, (UNIT_COUNT, SLOTS)),
    ("loop", TRACKED), ("products", "i8", MOST_PRODUCTS), ("streams", STREAM, 2), ("readers", READER, 2),
    ("writers", WRITER, 2), ("sequencer", SEQUENCER), ("micro", MICRO, 4), ("between", "i8"),
    ("pipeline", PIPELINE), ("gate", GATE), ("walked", "i8"), ("asked", ROWS, 2), ("shifted", ROWS),
    ("ports", PORTS, 4), ("program", PROGRAM), ("paced", "i8"), ("dram", DRAM), ("controller", CONTROLLER),
    ("sync", COUNTERS),
])
"""``queued``: the operations issued and not done, ``numbers`` their places in the program. ``loop``: ranges of a SIMD
loop's body so far. ``products``: what MatMul requested in each of the last cycles, see ``array.py``. ``streams``: out
of the accumulators, into them. ``readers``, ``writers``: of DRAM0, DRAM1; those
of a shared port come first. ``micro``: given by the sequencer, at the
door of the pipeline, and so many (``between``) on their way there. ``walked``, ``asked``, ``shifted``: rows of
weights, see ``two_rows.py``; ``ports``: see ``memories.py``; ``program``, ``paced``, ``dram``, ``controller``: see
``board_dram.py``. All in one record,
because compiled code counts references to every array that it passes on, at ten times the cost of the work."""


def new_state(arch: Arch, writer_vectors: int) -> np.void:
    """Return a machine at rest."""
    state = np.zeros(1, STATE)[0]
    units, ports, pipeline = state["units"], state["ports"], state["pipeline"]
    units["queue"] = [depths(arch, name).queue for name in UNIT_NAMES]
    units["outstanding"] = [depths(arch, name).outstanding for name in UNIT_NAMES]
    units["work"] = units["head"] = NONE
    units["there_from"] = LATER
    state["loop"]["memory0"] = state["loop"]["memory1"] = NO_MEMORY
    state["products"] = NONE
    state["readers"]["starts"] = state["writers"]["starts"] = 1
    state["writers"]["places"] = writer_vectors
    pipeline["blocker"] = NONE
    state["control"]["beats"] = LATER
    state["gate"]["reader"], state["gate"]["writer"] = MOVE_OUT, MOVE_IN
    pipeline["written_at"] = -LATER
    ports["last"], ports["bank"] = CLIENT_COUNT - 1, NONE
    return state
