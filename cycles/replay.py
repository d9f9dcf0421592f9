# SPDX-License-Identifier: Apache-2.0
"""The replay: every cycle of a program on the modelled machine."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from weft.cycles import array, moves, reader, rescale, simd, sync, writer
from weft.cycles.board_dram import step_memory
from weft.cycles.dram import charge, earn
from weft.cycles.errors import EstimateError, refuse
from weft.cycles.interlock import STARTED, commit, decode, fetch, fetch_heads, release
from weft.cycles.jit import entry, kernel
from weft.cycles.litedram_state import USES
from weft.cycles.machine import machine_record
from weft.cycles.memories import (
    ACCUMULATOR_READS,
    ACCUMULATOR_WRITES,
    LOCAL_READS,
    LOCAL_WRITES,
    grant_accumulators,
    grant_local,
)
from weft.cycles.origin import RESET, Origin, join_board
from weft.cycles.program import NO_MEMORY, DecodedProgram, passed_vectors, read_program
from weft.cycles.state import (
    DRAM0_READ,
    DRAM0_WRITE,
    DRAM1_READ,
    DRAM1_WRITE,
    DRAM_READ,
    DRAM_WRITE,
    LOAD_WEIGHT,
    MAT_MUL,
    MOVE_OUT,
    NONE,
    new_state,
)
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, DramModel, IdealDram, LiteDram
from weft.hw.contract.timing import LOCAL_READ_LATENCY, weight_latency
from weft.hw.contract.units import OPERATION

STUCK_CYCLES = 10_000_000
"""The cycles without an operation ending after which a program counts as stuck."""
MOST_VECTORS = 1 << 18
"""The most vectors of an operation, so that none takes as long as STUCK_CYCLES.

The largest memory has 1 << 16 vectors, but rows without a pitch may be any number."""
MOST_VECTORS_IN_ALL = 1_000_000_000
"""The most vectors of a program: some minutes of stepping."""
PIECE_CYCLES = 1 << 22
"""The cycles, about a second of stepping, after which progress is reported and interrupts are heard."""
LOOKS, SHORTEST_PIECE_CYCLES = 64, 1 << 12
"""The number of checks whether a program takes too long, and the least cycles between two checks."""


@dataclass(frozen=True)
class Estimate:
    """The estimate for a program.

    ``cycles`` as the machine counts them; ``operations``: a row of ``units.OPERATION`` for each operation."""

    cycles: int
    operations: np.ndarray
    program: DecodedProgram
    dram_use: dict[str, int] = field(default_factory=dict)
    """On a board's memory: cycles of the chip's bus by use, from when the program is asked for."""


def estimate(program: bytes, arch: Arch, dram: DramModel = EXPECTED,
             progress: Callable[[int, int], None] | None = None, origin: Origin = RESET) -> Estimate:
    """Return when every operation of a legal program runs on a machine.

    ``progress(operations done, all)`` is called now and then; ``origin``: the state of a board's memory when the
    program starts. Raise IsaError if the program is truncated, EstimateError if it ends within a SIMD loop or is
    endless."""
    found = estimate_within(program, arch, None, dram, progress, origin)
    assert found is not None
    return found


def estimate_within(program: bytes, arch: Arch, most_cycles: int | None, dram: DramModel = EXPECTED,
                    progress: Callable[[int, int], None] | None = None, origin: Origin = RESET,
                    alone: bool = False) -> Estimate | None:
    """Return the estimate, or None as soon as the program surely takes more than ``most_cycles``.

    That is if the vectors that the array still has to take, one a cycle, do not fit into the rest. ``alone``: of
    several cores the others rest. Other parameters and errors: see :func:`estimate`."""
    if arch.cores > 1 and not alone:
        raise refuse("architecture key cores", arch.cores, "1: a program alone says nothing of ports that cores share",
                     "estimate one of them (--set cores=1)")
    read = read_program(program, arch)
    refuse_endless(read)
    machine = machine_record(arch, dram if isinstance(dram, IdealDram) else EXPECTED)
    state = new_state(arch, int(machine["writer_vectors"]))
    first = int(machine["decode_latency"])
    mat_muls, vectors = _vectors(read.work)
    times = np.full((len(read.work), 3), NONE)
    if isinstance(dram, LiteDram):
        join_board(state, arch, dram, origin, read.work, len(program))
        first = 0
    else:
        start(state, machine, read.drains, read.repeats)
    piece = PIECE_CYCLES if most_cycles is None else max(most_cycles // LOOKS, SHORTEST_PIECE_CYCLES)
    clock = np.array([first, 0, first, piece], np.int64)
    while not replay(state, machine, read.work, read.drains, read.repeats, read.instructions, times, clock):
        now, finished, finished_at, _ = map(int, clock)
        counted = now - int(state["control"]["first_at"])
        if most_cycles is not None and counted + _vectors_left(mat_muls, vectors, times) > most_cycles:
            return None
        if now - finished_at > STUCK_CYCLES:
            raise stuck()
        if progress:
            progress(finished, len(read.work))
    use = dict(zip(USES, map(int, state["dram"]["use"]), strict=True)) if state["paced"] else {}
    return estimate_of(arch, read, state["control"], times, use)


def estimate_of(arch: Arch, read: DecodedProgram, control: np.void, times: np.ndarray,
                use: dict[str, int]) -> Estimate:
    """Return the estimate of the program ``read``, whose replay has ended.

    ``control`` is the record CONTROL of the core that ran it. ``times`` [operations, (issue, start, finish)] has cycles
    of the replay; in the estimate they count from ``first_at`` of that record. ``use`` has cycles of the bus of a
    board's memory by their use, and is empty for an ideal memory."""
    began = int(control["first_at"])
    operations = np.zeros(len(times), OPERATION)
    operations["program_counter"], operations["unit"] = read.program_counters, read.work["unit"]
    for column, name in enumerate(("issue_cycle", "start_cycle", "finish_cycle")):
        operations[name] = times[:, column] - began
    end = _end(arch, read.work, operations, int(control["free_from"]) - began)
    return Estimate(end, operations, read, use)


def stuck() -> EstimateError:
    """Return the error for operations that wait for each other."""
    return refuse("program", "operations that wait for each other for ever", "a program that ends",
                  "run it on rtl, and report both")


def _vectors(work: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the MatMuls' places in ``work``, and how many vectors those before each of them take, and all of them."""
    mat_muls = np.flatnonzero(work["unit"] == MAT_MUL)
    return mat_muls, np.concatenate([[0], np.cumsum(passed_vectors(work[mat_muls]))])


def _vectors_left(mat_muls: np.ndarray, vectors: np.ndarray, times: np.ndarray) -> int:
    """Return the vectors of the MatMuls that have not begun; they begin in order."""
    begun = bisect.bisect_left(mat_muls, True, key=lambda place: times[place, STARTED] == NONE)
    return int(vectors[-1] - vectors[begun])


def refuse_endless(program: DecodedProgram) -> None:
    """Raise EstimateError for a program that takes too long to step through."""
    counts = passed_vectors(program.work)
    if len(counts) and counts.max() > MOST_VECTORS:
        raise refuse(f"operation of instruction {program.work['instruction'][counts.argmax()]}",
                     f"{counts.max()} vectors", f"at most {MOST_VECTORS}", "split it, or run the program on rtl")
    if counts.sum() > MOST_VECTORS_IN_ALL:
        raise refuse("program", f"{counts.sum()} vectors to move", f"at most {MOST_VECTORS_IN_ALL}",
                     "run a part of it")


def _end(arch: Arch, work: np.ndarray, operations: np.ndarray, decoded: int) -> int:
    """Return the cycle in which the machine is idle.

    The decoder is empty, the interlock knows every operation to be done, no weights and no scales are on their way."""
    finishes = operations["finish_cycle"]
    loads = finishes[operations["unit"] == LOAD_WEIGHT]
    scales = finishes[(operations["unit"] == MOVE_OUT) & (work["memory1"] == NO_MEMORY)]
    return max(decoded, 1 + int(finishes.max(initial=0)) + arch.register_slices,
               1 + int(loads.max(initial=0)) + weight_latency(arch),
               1 + int(scales.max(initial=0)) + LOCAL_READ_LATENCY)


@entry
def start(state, machine, drains, repeats):
    """Fill the decoder before time 0, when the first instruction is at it (at the repeater a cycle earlier)."""
    control = state.control
    beats = -(-machine.instruction_bytes // machine.stream_bytes)
    control.bytes = beats * machine.stream_bytes
    for before in range(-machine.repeats, machine.decode_latency):
        release(control, drains, before)
        fetch(control, machine, drains, repeats, 0, before)


@entry
def replay(state, machine, work, drains, repeats, instructions, times, clock):
    """Step some cycles and fill ``times`` [operations, (issue, start, finish)]; tell whether the program ended.

    ``clock``: the cycle, how many operations have finished, when the last one did, and how many cycles to step."""
    control = state.control
    now, finished, finished_at = clock[0], clock[1], clock[2]
    until = now + clock[3]
    while now < until and (control.finished < len(work) or control.instruction < instructions):
        if control.finished != finished:
            finished, finished_at = control.finished, now
        if state.paced:
            step_memory(state, machine, now)
        step_core(state, machine, work, drains, repeats, times, now)
        now += 1
    clock[0], clock[1], clock[2] = now, finished, finished_at
    return not (control.finished < len(work) or control.instruction < instructions)


@kernel
def step_core(state, machine, work, drains, repeats, times, now):
    """Step everything by a cycle, except a memory behind the ports of machines with ``paced`` set."""
    control = state.control
    given = control.instruction
    earn(control, machine)
    decode(state, machine, work, drains, times, now)
    beats = control.beats
    fetch(control, machine, drains, repeats, given if machine.slices else control.instruction, now)
    if not state.paced:
        charge(control, machine, beats - control.beats)
    control.beats += state.program.arriving
    fetch_heads(state, machine, now)
    ask(state, machine, now)
    step(state, machine, now)
    commit(state, machine, times, now)


@kernel
def ask(state, machine, now):
    """Set the units' requests to the memories, and grant them."""
    array.ask(state, machine, now)
    simd.ask(state, machine, now)
    moves.ask(state, machine)
    rescale.ask(state, machine)
    if machine.shared_dram:
        reader.ask(state, state.readers[0], DRAM_READ, machine)
        writer.ask(state, state.writers[0], DRAM_WRITE, machine)
    else:
        reader.ask(state, state.readers[0], DRAM0_READ, machine)
        reader.ask(state, state.readers[1], DRAM1_READ, machine)
        writer.ask(state, state.writers[0], DRAM0_WRITE, machine)
        writer.ask(state, state.writers[1], DRAM1_WRITE, machine)
    grant_local(state.ports[LOCAL_READS], machine.local_banks, MAT_MUL)
    grant_local(state.ports[LOCAL_WRITES], machine.local_banks, machine.first_writer)
    leaving = array.leaving_sum(state, now)
    sum_bank = leaving >> array.BANK_SHIFT if leaving != NONE else NONE
    sum_adds = leaving != NONE and leaving & array.ACCUMULATES != 0
    grant_accumulators(state.ports[ACCUMULATOR_READS], state.ports[ACCUMULATOR_WRITES],
                       machine.accumulator_banks, sum_bank, sum_adds)


@kernel
def step(state, machine, now):
    """Step every unit by a cycle."""
    array.step_load_weight(state, machine, now)
    array.step_mat_mul(state, machine, now)
    rescale.step_gate(state, machine, now)
    simd.step_simd(state, machine, now)
    moves.step_move_out(state, machine, now)
    moves.step_move_in(state, machine, now)
    if machine.sync_counters:
        sync.step_sync(state, machine, now)
    if machine.shared_dram:
        reader.step_reader(state, state.readers[0], DRAM_READ, machine, now)
        writer.step_writer(state, state.writers[0], DRAM_WRITE, machine, now)
    else:
        reader.step_reader(state, state.readers[0], DRAM0_READ, machine, now)
        reader.step_reader(state, state.readers[1], DRAM1_READ, machine, now)
        writer.step_writer(state, state.writers[0], DRAM0_WRITE, machine, now)
        writer.step_writer(state, state.writers[1], DRAM1_WRITE, machine, now)
