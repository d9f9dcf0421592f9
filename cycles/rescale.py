# SPDX-License-Identifier: Apache-2.0
"""The paths into and out of the accumulators that SIMD and DataMoves share."""

from __future__ import annotations

from weft.cycles.interlock import finish
from weft.cycles.jit import kernel
from weft.cycles.memories import ACCUMULATOR_READS, ACCUMULATOR_WRITES, accumulator_bank
from weft.cycles.moves import INTO, ready
from weft.cycles.state import DEPTH, MOVE_IN, MOVE_OUT, NONE, SIMD


@kernel
def ask(state, machine):
    """Let one unit ask to read the accumulators, round robin; let the first held write ask to be written."""
    gate, reads, writes = state.gate, state.ports[ACCUMULATOR_READS], state.ports[ACCUMULATOR_WRITES]
    if reads.bank[SIMD] != NONE and reads.bank[MOVE_OUT] != NONE:
        reads.bank[gate.reader] = NONE
    writes.bank[SIMD] = writes.bank[MOVE_IN] = NONE
    if not gate.held:
        return
    if gate.whose[0] == SIMD:
        pipeline = state.pipeline
        place = pipeline.retired % DEPTH
        writes.bank[SIMD] = accumulator_bank(machine, pipeline.write[place])
        writes.accumulates[SIMD] = pipeline.accumulates[place]
    else:
        stream = state.streams[INTO]
        writes.bank[MOVE_IN] = stream.bank[stream.given % DEPTH]
        writes.accumulates[MOVE_IN] = stream.accumulates[stream.given % DEPTH]


@kernel
def step_gate(state, machine, now):
    """Let a write leave the register in front of the accumulators, and the next one in.

    With register slices a FIFO of two takes the place of the register."""
    gate, pipeline, stream = state.gate, state.pipeline, state.streams[INTO]
    reads = state.ports[ACCUMULATOR_READS]
    for client in (SIMD, MOVE_OUT):
        if reads.bank[client] != NONE:  # who was let to ask and got nothing goes on asking
            gate.reader = client if reads.grant[client] else SIMD + MOVE_OUT - client
    room, passing = gate.held < 2, pipeline.queued - pipeline.retired
    passes = passing < 2
    if passing and retires(state, pipeline):
        passing -= 1
    if state.ports[ACCUMULATOR_WRITES].grant[MOVE_IN]:
        if stream.last[stream.given % DEPTH]:
            finish(state, MOVE_IN)
        stream.given += 1
    if state.ports[ACCUMULATOR_WRITES].grant[SIMD] or state.ports[ACCUMULATOR_WRITES].grant[MOVE_IN]:
        gate.whose[0] = gate.whose[1]
        gate.held -= 1
    result = pipeline.queued < pipeline.issued and pipeline.ready[pipeline.queued % DEPTH] <= now and (
        passes if machine.slices else passing == 0)
    if result and not pipeline.writes[pipeline.queued % DEPTH]:
        pipeline.queued += 1
        result = False
    row = ready(stream, now)
    if not (result or row) or not (room if machine.slices else gate.held == 0):
        return
    gate.writer = SIMD if result and not (row and gate.writer == SIMD) else MOVE_IN
    gate.whose[gate.held] = gate.writer
    gate.held += 1
    if gate.writer == SIMD:
        pipeline.queued += 1
    else:
        stream.popped += 1


@kernel
def retires(state, pipeline):
    """Tell whether SIMD's oldest passing result is over: it was written, or it writes nothing."""
    place = pipeline.retired % DEPTH
    if pipeline.writes[place] and not state.ports[ACCUMULATOR_WRITES].grant[SIMD]:
        return False
    if pipeline.done[place]:
        finish(state, SIMD)
    pipeline.retired_now += 1
    return True
