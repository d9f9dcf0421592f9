# SPDX-License-Identifier: Apache-2.0
"""Kernels of the estimator, as plain Python: what waits for what, loops of the SIMD unit, moves, posts and taps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cycles import interlock, moves, rescale, simd, sync, tap_rows, waits
from weft.cycles.memories import ACCUMULATOR_READS, ACCUMULATOR_WRITES, LOCAL_WRITES
from weft.cycles.program import NO_MEMORY, WORK
from weft.cycles.state import (
    LATER,
    LOAD_WEIGHT,
    MICRO,
    MOVE_IN,
    MOVE_OUT,
    NONE,
    SEQUENCER,
    SIMD,
    STATE,
    TRACKED,
    UNIT,
)
from weft.tb.bench.plain_kernels import machine_at_rest, plain, records
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"]


def machine(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"slices": 0, "local_banks": 4, "accumulator_banks": 4, "kernel_rows": 1,
                              "weight_load_rows": 1, "product_latency": 5, "bias_interval": 3, **values})


# -- ranges and queues -------------------------------------------------------------------------------------------------
def access(rng: np.random.Generator, operand: int) -> dict[str, int]:
    first = int(rng.integers(12))
    return {f"memory{operand}": int(rng.choice([NO_MEMORY, 0, 1])), f"writes{operand}": int(rng.integers(2)),
            f"first{operand}": first, f"last{operand}": first + int(rng.integers(4))}


def test_operations_conflict_where_a_written_vector_is_common() -> None:
    rng, found = np.random.default_rng(seed=3), set()
    for _ in range(600):
        one, other = ({**access(rng, 0), **access(rng, 1)} for _ in range(2))
        tracked, operation = records(TRACKED, **one), records(WORK, **other)
        touched = [{(entry[f"memory{k}"], vector): entry[f"writes{k}"] for k in (0, 1)
                    if entry[f"memory{k}"] != NO_MEMORY
                    for vector in range(entry[f"first{k}"], entry[f"last{k}"] + 1)} for entry in (one, other)]
        for entry, places in zip((one, other), touched, strict=True):
            for k in (0, 1):
                if entry[f"memory{k}"] != NO_MEMORY and entry[f"writes{k}"]:
                    places.update({(entry[f"memory{k}"], vector): 1
                                   for vector in range(entry[f"first{k}"], entry[f"last{k}"] + 1)})
        expected = any(place in touched[1] and (writes or touched[1][place]) for place, writes in touched[0].items())
        assert bool(plain(interlock.conflicts)(tracked, operation)) == expected
        found.add(expected)
    assert found == {True, False}


def test_the_last_instruction_of_a_loop_has_the_ranges_of_its_body() -> None:
    """Both operands count, whichever instructions have them; the next loop begins anew."""
    loop, tracked = records(TRACKED, memory0=NO_MEMORY, memory1=NO_MEMORY), records(TRACKED)
    track = plain(interlock.track)
    for spans in ([(2, 3), None, (9, 9)], [None, (5, 6), None], [(1, 8), (0, 2), None]):
        for left, span in zip((2, 1, 0), spans, strict=True):
            both = {f"{name}{k}": value for k in (0, 1) for name, value in zip(
                ("memory", "writes", "first", "last"), (NO_MEMORY, 0, 0, 0) if span is None else (1, 1 - k, *span),
                strict=True)}
            track(tracked, loop, records(WORK, in_loop=1, body_left=left, **both))
            if left:
                assert tracked.memory0 == tracked.memory1 == NO_MEMORY
        known = [span for span in spans if span]
        for k in (0, 1):
            assert (tracked[f"memory{k}"], tracked[f"writes{k}"]) == (1, 1 - k)
            assert (tracked[f"first{k}"], tracked[f"last{k}"]) == (min(a for a, _ in known), max(b for _, b in known))
        assert loop.memory0 == loop.memory1 == NO_MEMORY


def test_queues_fetch_in_turn_and_simd_from_its_own_memory() -> None:
    state, fetch = machine_at_rest(ARCH), plain(interlock.fetch_heads)
    asking = (LOAD_WEIGHT, SIMD, MOVE_OUT, MOVE_IN)
    for unit in asking:
        state.units[unit]["issued"] = 1
    state.control.turn = MOVE_OUT
    found = []
    for now in range(6):
        fetch(state, None, now)
        assert state.units[SIMD].there_from == now
        taken = [unit for unit in range(len(state.units)) if unit != SIMD and state.units[unit].there_from != LATER]
        assert all(state.units[unit].there_from == now + interlock.FETCH_LATENCY for unit in taken)
        found.append(taken)
        state.units["there_from"] = LATER
    assert found == [[MOVE_IN], [LOAD_WEIGHT], [MOVE_OUT]] * 2


@pytest.mark.parametrize("asks", [[1] * 12, [0, 1] * 6, [0, 0, 0, 1, 1, 1] * 3])
def test_a_walk_is_at_most_two_addresses_ahead_and_loses_none(asks: list[int]) -> None:
    unit, ahead, walk = records(UNIT, work=NONE, head=NONE), plain(interlock.walk_ahead), plain(interlock.step)
    unit.left, taken, done = 5, [], False
    for asked in asks:
        ahead(unit)
        assert 0 <= unit.ahead <= 2
        if asked and unit.work != NONE:
            taken.append((int(unit.row), int(unit.vector)))
            walk(unit, SimpleNamespace(size=5, rows=1))
        done = done or len(taken) == 5
    assert taken == [(0, vector) for vector in range(5)][:len(taken)] and (done or sum(asks) < 8)


# -- SIMD loops --------------------------------------------------------------------------------------------------------
def test_a_loop_is_in_order_where_iterations_touch_what_another_instruction_writes() -> None:
    """By addresses of 12 iterations: a write of one instruction within the range of another's other walk."""
    rng, found = np.random.default_rng(seed=7), set()
    for _ in range(400):
        body = [[(int(rng.integers(60)), int(rng.choice([0, 1, 2]))) if rng.random() < 0.6 else None
                 for _ in range(2)] for _ in range(int(rng.integers(1, 4)))]  # what each writes, and what it reads
        sequencer = records(SEQUENCER, body=len(body))
        for work, walks in zip(sequencer["works"], body, strict=False):
            for k, walk in enumerate(walks):
                base, stride = walk or (0, 0)
                work[f"memory{k}"] = NO_MEMORY if walk is None else 1
                work[f"base{k}"], work[f"stride{k}"], work[f"last{k}"] = base, stride, base + 11 * stride
        expected = any(
            one != other and writes[0] and walk and (walk != writes[0] or walk[1] == 0)
            and writes[0][0] <= walk[0] + 11 * walk[1] and walk[0] <= writes[0][0] + 11 * writes[0][1]
            for one, writes in enumerate(body) for other, walks in enumerate(body) for walk in walks)
        assert plain(simd.order_matters)(sequencer) == bool(expected)
        found.add(bool(expected))
    assert found == {True, False}


@pytest.mark.parametrize(("left", "in_order", "body", "blocks"), [
    (3, 0, 2, [3]), (7, 0, 2, [7]), (8, 0, 2, [4, 4]), (13, 0, 2, [7, 6]), (14, 0, 2, [7, 7]),
    (15, 0, 2, [7, 4, 4]), (4, 1, 2, [1, 1, 1, 1]), (4, 1, 1, [4])])
def test_iterations_run_in_blocks_whose_last_two_are_alike(left: int, in_order: int, body: int,
                                                           blocks: list[int]) -> None:
    sequencer, found = records(SEQUENCER, left=left, in_order=in_order, body=body), []
    while sequencer.left:
        plain(simd.next_block)(sequencer, machine(simd_block=7))
        found.append(int(sequencer.block))
        sequencer.left -= sequencer.block
    assert found == blocks


def test_a_micro_operation_waits_for_the_newest_write_and_for_both_registers() -> None:
    state = machine_at_rest(ARCH)
    pipeline, arrive = state.pipeline, plain(simd.arrive)
    pipeline["issued"], pipeline["retired_now"] = 5, 2
    for number, (writes, address) in enumerate([(1, 9), (1, 9), (1, 9), (1, 9), (0, 9)]):
        pipeline["writes"][number], pipeline["write"][number] = writes, address
    pipeline["written_at"][2, 0], pipeline["written_at"][3, 1] = 20, 23
    for given, blocker, clear_from in [
            ({"reads": 1, "read": 9}, 3, 26), ({"reads": 1, "read": 8}, NONE, 26), ({"reads": 0, "read": 9}, NONE, 26),
            ({"left": 2}, NONE, 30), ({"left": 2, "right": 3, "right_slot": 1}, NONE, 33),
            ({"right": 3, "right_slot": 0}, NONE, 26), ({"left": 3, "left_slot": 1, "right": 2}, NONE, 33)]:
        state.micro[simd.GIVEN] = records(MICRO, valid=1, **given)
        arrive(state, machine(register_latency=10), 25)
        assert (pipeline.blocker, pipeline.clear_from) == (blocker, clear_from), given
        assert not state.micro[simd.GIVEN].valid
    pipeline["retired_now"] = 4
    state.micro[simd.GIVEN] = records(MICRO, valid=1, reads=1, read=9)
    arrive(state, machine(register_latency=10), 25)
    assert pipeline.blocker == NONE


# -- moves, posts and taps ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("reader_turn", "asking", "granted", "turn"), [
    (SIMD, (SIMD, MOVE_OUT), MOVE_OUT, MOVE_OUT), (MOVE_OUT, (SIMD, MOVE_OUT), SIMD, SIMD),
    (MOVE_OUT, (SIMD, MOVE_OUT), NONE, MOVE_OUT), (MOVE_OUT, (MOVE_OUT,), MOVE_OUT, MOVE_OUT)])
def test_readers_of_the_accumulators_take_turns(reader_turn: int, asking: tuple[int, ...], granted: int,
                                                turn: int) -> None:
    """A reader that was served lets the other one go first; one that was refused goes on asking."""
    state = machine_at_rest(ARCH)
    reads = state.ports[ACCUMULATOR_READS]
    for client in asking:
        reads.bank[client] = 1
    state.gate["reader"] = reader_turn
    plain(rescale.ask)(state, machine())
    asks = [client for client in (SIMD, MOVE_OUT) if reads.bank[client] != NONE]
    assert asks == [client for client in asking if len(asking) == 1 or client != reader_turn]
    if granted != NONE:
        reads.grant[granted] = 1
    plain(rescale.step_gate)(state, machine(), 0)
    assert state.gate["reader"] == turn


def test_posts_reach_the_cores_of_their_mask() -> None:
    states = records(STATE, 3)
    for core, (counter, mask) in enumerate([(2, 0b110), (2, 0b101), (5, 0b001)]):
        states[core].sync["counter"], states[core].sync["posts"] = counter, mask
    plain(sync.deliver_posts)(states, 3)
    assert [[int(state.sync["holds"][counter]) for counter in (2, 5)] for state in states] == [[1, 1], [1, 0], [2, 0]]


def test_rows_of_taps_read_a_vector_later_each_and_not_twice() -> None:
    operation = SimpleNamespace(size=3, rows=2, tap_rows=0b101)
    for row, vector, extra, before, expected in [
            (0, 0, 0, 0, [0, NONE, NONE]), (0, 2, 0, 0, [2, NONE, 0]), (1, 2, 0, 1, [NONE, NONE, 3]),
            (1, 2, 1, 0, [NONE, NONE, 4]), (1, 2, 2, 0, [NONE, NONE, 5]), (1, 2, 3, 0, [NONE] * 3),
            (1, 0, 0, 0b100, [3, NONE, NONE])]:
        unit = SimpleNamespace(row=row, vector=vector, extra=extra, before=before)
        assert [plain(tap_rows.vector_of)(unit, operation, tap) for tap in range(3)] == expected


@pytest.mark.parametrize(("slices", "waiting", "granted", "room", "left"), [
    (0, 0, 0, True, 0), (0, 1, 0, False, 1), (0, 1, 1, True, 0), (1, 1, 0, True, 1), (1, 2, 0, False, 2),
    (1, 2, 1, False, 1)])
def test_a_row_waits_in_one_register_or_in_a_fifo_of_two(slices: int, waiting: int, granted: int, room: bool,
                                                         left: int) -> None:
    state = machine_at_rest(ARCH)
    stream = state.streams[moves.OUT_OF]
    stream.out = waiting
    stream.last[0] = 1
    state.ports[LOCAL_WRITES].grant[MOVE_OUT] = granted
    assert bool(plain(moves.give)(state, machine(slices=slices), stream)) == room
    assert stream.out == left
    assert state.units[MOVE_OUT].done_now == granted == stream.given


def test_what_made_room_is_what_ended_or_left_the_queue_last() -> None:
    """A queue of two, four outstanding: operations 0 to 5 of one unit, and the sixth was held up."""
    previous, limits = np.array([-1, 0, 1, 2, 3, 4]), np.array([(2, 4)])
    work = records(WORK, 6)
    times = np.array([[0, 10 * k, 10 * k + 5] for k in range(6)])
    room = plain(waits.room_maker)
    assert room(times, previous, limits, work, 5) == (NONE, 3)
    times[1, waits.FINISHED] = 30
    assert room(times, previous, limits, work, 5) == (1, NONE)
    times[1, waits.FINISHED] = 29
    assert room(times, previous, limits, work, 5) == (NONE, 3)


def test_writes_wait_for_the_one_that_is_held_by_its_own_bank() -> None:
    state = machine_at_rest(ARCH)
    state.pipeline["write"][0], state.pipeline["accumulates"][0] = 6, 1
    state.streams[moves.INTO].bank[0] = 3
    state.streams[moves.INTO].popped, state.streams[moves.INTO].accumulates[1] = 1, 1
    writes = state.ports[ACCUMULATOR_WRITES]
    for whose, held, banks in ((SIMD, 1, [2, NONE]), (MOVE_IN, 2, [NONE, 3]), (SIMD, 0, [NONE, NONE])):
        state.gate["held"], state.gate["whose"][0] = held, whose
        plain(rescale.ask)(state, machine())
        assert [writes.bank[SIMD], writes.bank[MOVE_IN]] == banks
    assert (writes.accumulates[SIMD], writes.accumulates[MOVE_IN]) == (1, 0)
