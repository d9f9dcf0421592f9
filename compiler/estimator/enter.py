"""The ways out of the accumulators and into them, which SIMD and DataMoves share."""

from __future__ import annotations

from weft.compiler.estimator.interlock import finish
from weft.compiler.estimator.jit import kernel
from weft.compiler.estimator.memories import ACCUMULATOR_READS, ACCUMULATOR_WRITES
from weft.compiler.estimator.moves import INTO, ready
from weft.compiler.estimator.state import DEPTH, MOVE_IN, MOVE_OUT, NONE, SIMD


@kernel
def ask(state, machine):
    """One unit asks to read, those that wait take turns; the first of the writes held asks to be written."""
    gate, reads, writes = state.gate, state.ports[ACCUMULATOR_READS], state.ports[ACCUMULATOR_WRITES]
    if reads.bank[SIMD] != NONE and reads.bank[MOVE_OUT] != NONE:
        reads.bank[gate.reader] = NONE
    writes.bank[SIMD] = writes.bank[MOVE_IN] = NONE
    if not gate.held:
        return
    if gate.whose[0] == SIMD:
        pipeline = state.pipeline
        place = pipeline.retired % DEPTH
        if pipeline.writes[place]:
            writes.bank[SIMD] = pipeline.write[place] & machine.accumulator_banks_mask
        writes.accumulates[SIMD] = pipeline.accumulates[place]
    else:
        stream = state.streams[INTO]
        writes.bank[MOVE_IN] = stream.bank[stream.given % DEPTH]
        writes.accumulates[MOVE_IN] = stream.accumulates[stream.given % DEPTH]


@kernel
def step_gate(state, machine, now):
    """A write leaves the register in front of the accumulators, with register slices a FIFO of two, and the next one
    comes in."""
    gate, pipeline, stream = state.gate, state.pipeline, state.streams[INTO]
    reads = state.ports[ACCUMULATOR_READS]
    for client in (SIMD, MOVE_OUT):
        if reads.bank[client] != NONE:  # who was let to ask and got nothing goes on asking
            gate.reader = client if reads.grant[client] else SIMD + MOVE_OUT - client
    room = gate.held < 2
    if gate.held and leaves(state, gate.whose[0]):
        gate.whose[0] = gate.whose[1]
        gate.held -= 1
    if not (room if machine.slices else gate.held == 0):
        return
    result = pipeline.queued < pipeline.issued and pipeline.ready[pipeline.queued % DEPTH] <= now
    row = ready(stream, now)
    if not result and not row:
        return
    gate.writer = SIMD if result and not (row and gate.writer == SIMD) else MOVE_IN
    gate.whose[gate.held] = gate.writer
    gate.held += 1
    if gate.writer == SIMD:
        pipeline.queued += 1
    else:
        stream.popped += 1


@kernel
def leaves(state, client):
    """Whether the first write held leaves: the accumulators took it, or it only passes."""
    granted = state.ports[ACCUMULATOR_WRITES].grant[client]
    pipeline, stream = state.pipeline, state.streams[INTO]
    if client == SIMD:
        place = pipeline.retired % DEPTH
        if not granted and pipeline.writes[place]:
            return False
        if pipeline.done[place]:
            finish(state, SIMD)
        pipeline.retired_now += 1
    else:
        if not granted:
            return False
        if stream.last[stream.given % DEPTH]:
            finish(state, MOVE_IN)
        stream.given += 1
    return True
