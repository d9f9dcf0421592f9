# SPDX-License-Identifier: Apache-2.0
"""How far ahead of each other parts of the estimator go: each limit at its last number and the next, as plain Python.

No short program meets these limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cycles import moves, ports, reader, tap_rows, two_rows, writer
from weft.cycles.memories import LOCAL_READS, LOCAL_WRITES
from weft.cycles.program import WORK
from weft.cycles.state import LOAD_WEIGHT, MAT_MUL, MOVE_OUT, NONE, READER, WRITER
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.timing import (
    BURSTS_BEFORE_DATA,
    OUTSTANDING_BURSTS,
    PORT_ADDRESSES_WAITING,
    PORT_BURSTS_AHEAD,
    ROWS_AHEAD,
)
from weft.tb.bench.plain_kernels import machine_at_rest, plain, records
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"]
CORES = ARCH.replace(dram_ports=SHARED, cores=2)
client_of = plain(tap_rows.client_of)


def test_limits_by_hand() -> None:
    assert (BURSTS_BEFORE_DATA, ROWS_AHEAD, OUTSTANDING_BURSTS, PORT_BURSTS_AHEAD, PORT_ADDRESSES_WAITING) == (
        16, 32, 32, 4, 2)


@pytest.mark.parametrize(("offered", "under_way", "ahead", "taken", "made"), [
    (1, 0, 5, 1, 1), (1, 2, 5, 1, 1), (1, 3, 5, 0, 0), (0, 3, 5, 0, 1), (0, 0, 15, 0, 1), (0, 0, 16, 0, 0),
    (1, 0, 15, 1, 1), (1, 0, 16, 1, 0)])
def test_an_address_is_made_while_few_bursts_wait_for_data(offered: int, under_way: int, ahead: int, taken: int,
                                                           made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And taken while the memory, of three bursts here, has room."""
    address = plain(writer.address)
    monkeypatch.setitem(address.__globals__, "next_burst", lambda *_: (4, 0, 0, 0, 1))
    record = records(WRITER, address_valid=offered, accepted=20 + under_way, answered=20, bursts=30 + ahead, sent=30)
    address(SimpleNamespace(paced=0), record, 0, SimpleNamespace(dram_bursts=3), 7)
    assert (int(record.accepted) - 20 - under_way, int(record.bursts) - 30 - ahead) == (taken, made)
    assert int(record.address_valid) == (made or offered - taken)
    if made:
        place = (30 + ahead) % len(record.beats)
        assert (int(record.beats[place]), int(record.ends[place])) == (4, 1)


@pytest.mark.parametrize(("left", "ahead", "walks"), [(3, 31, 1), (3, 32, 0), (0, 5, 0), (1, 0, 1)])
def test_rows_of_weights_are_walked_so_far_ahead_of_those_in_the_column(left: int, ahead: int, walks: int,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    state, step = machine_at_rest(ARCH), plain(two_rows.step_two_rows)
    monkeypatch.setitem(step.__globals__, "offered", lambda *_: False)
    state.queued[LOAD_WEIGHT, 0] = records(WORK, size=9, rows=1, turn=5)  # the column waits for a MatMul
    state["walked"], state.units[LOAD_WEIGHT].left = 40 + ahead, left
    for part in (two_rows.UPPER, two_rows.LOWER):
        state.asked[part].count = 40 + ahead
    state.shifted.count = 40
    step(state, SimpleNamespace(places=9, upper_places=5), 7)
    assert (int(state["walked"]) - 40 - ahead, left - int(state.units[LOAD_WEIGHT].left)) == (walks, walks)


def a_port() -> tuple[Any, list[Any]]:
    port = ports.new_ports(CORES, 2)
    return port.view(np.dtype((type(records(ports.SHARED)), port.dtype)))[0], [machine_at_rest(CORES) for _ in range(2)]


@pytest.mark.parametrize(("outstanding", "taken_back", "granted"), [
    (31, True, True), (32, True, False), (32, False, False), (31, False, True)])
def test_a_burst_counts_until_its_last_beat_is_taken(outstanding: int, taken_back: bool, granted: bool) -> None:
    """Also in the cycle in which that is."""
    port, states = a_port()
    own = states[1].dram.ports[ports.DATA]
    own.ar.valid, own.ar.beats = 1, 4
    port["asked"] = port["taken"] = 40
    port["answered"] = 40 - outstanding
    port["ended"] = port["answered"] + 1
    port["offered"] = port["offered_last"] = 1
    port["due"][:] = 1 << 40
    port.whose[int(port.answered) % ports.RING] = 1
    states[0].dram.ports[ports.DATA]["r_ready"] = taken_back
    machine = SimpleNamespace(bus_share=0, dram_bursts=16, dram_read_latency=9, join_cycles=0)
    plain(ports.step_reads)(port, states, machine, 5)
    assert (bool(own.ar.taken), int(port.asked) - 40) == (granted, granted)
    assert int(port.answered) == 40 - outstanding + taken_back


@pytest.mark.parametrize(("waiting", "granted"), [(1, True), (2, False)])
def test_so_many_addresses_wait_for_the_memory(waiting: int, granted: bool) -> None:
    port, states = a_port()
    own = states[0].dram.ports[ports.DATA]
    own.ar.valid, own.ar.beats = 1, 4
    port["asked"], port["taken"], port["ended"], port["answered"] = 20, 20 - waiting, 10, 10
    port["due"][:] = 1 << 40
    machine = SimpleNamespace(bus_share=0, dram_bursts=16, dram_read_latency=9, join_cycles=0)
    plain(ports.step_reads)(port, states, machine, 5)
    assert bool(own.ar.taken) == granted and int(port.taken) == 21 - waiting


@pytest.mark.parametrize(("ahead", "begins", "taken"), [(3, False, 1), (4, False, 0), (4, True, 0), (3, True, 1)])
def test_addresses_of_a_core_are_so_far_ahead_of_its_data(ahead: int, begins: bool, taken: int) -> None:
    """As it was when the cycle began: a burst that begins now makes room for the next cycle."""
    port, states = a_port()
    own, core = states[1].dram.ports[ports.DATA], port.core[1]
    core.ahead = core.ahead_before = ahead
    own.aw.valid, own.w_valid, own.w_last = 1, begins, 1
    plain(ports.step_writes)(port, states, SimpleNamespace(bus_share=0, dram_write_latency=9, dram_bursts=16), 5)
    assert int(own.aw.taken) == taken and int(core.ahead) == int(core.ahead_before) == ahead - begins + taken
    assert int(own.w_taken) == begins == int(port.begun) == int(port.write_beats)


@pytest.mark.parametrize(("offered", "began_with", "left", "taken"), [
    (1, 2, 1, 0), (1, 1, 1, 1), (1, 1, 0, 1), (1, 2, 2, 0), (0, 0, 0, 0)])
def test_a_beat_read_finds_room_as_it_was_when_the_cycle_began(offered: int, began_with: int, left: int,
                                                               taken: int) -> None:
    """Two beats wait at most. The next one is offered in the cycle in which one is taken, when it is due."""
    answer = plain(reader.answer)
    for due in (5, 6):
        record = records(READER, offered=offered, offered_bytes=7, waiting=left, accepted=3, answered=2)
        record.due[2], record.beats[2], record.end[2], record.skip[2] = due, 4, 8, 3
        answer(None, record, SimpleNamespace(bus_share=0, beat_bytes=8), began_with, 5)
        assert int(record.waiting) == left + taken
        assert not taken or int(record.waiting_bytes[left]) == 7
        next_one = (taken or not offered) and due <= 5
        assert bool(record.offered) == bool(next_one or offered and not taken)
        assert int(record.offered_bytes) == (5 if next_one else 7) and int(record.beat_out) == bool(next_one)


@pytest.mark.parametrize(("slices", "out", "granted", "room", "left"), [
    (0, 0, 0, True, 0), (0, 1, 0, False, 1), (0, 1, 1, True, 0), (1, 0, 0, True, 0), (1, 1, 0, True, 1),
    (1, 1, 1, True, 0), (1, 2, 0, False, 2), (1, 2, 1, False, 1)])
def test_rows_on_their_way_to_local_memory_wait_in_a_register_or_in_two(slices: int, out: int, granted: int,
                                                                        room: bool, left: int) -> None:
    """The register is free in the cycle in which it is emptied; the FIFO of two had room when the cycle began."""
    state = machine_at_rest(ARCH)
    stream = state.streams[moves.OUT_OF]
    stream.out, stream.given, stream.pushed = out, 3, 9
    state.ports[LOCAL_WRITES].grant[MOVE_OUT] = granted
    assert bool(plain(moves.give)(state, SimpleNamespace(slices=slices), stream)) == room
    assert (int(stream.out), int(stream.given)) == (left, 3 + (granted and out > 0))


@pytest.mark.parametrize("taps", [0b111, 0b101, 0b100, 0b011])
def test_a_vector_has_all_of_its_rows_when_each_was_served_once(taps: int) -> None:
    """Rows are served in any order, over several cycles; which were there is forgotten with the vector."""
    state, served = machine_at_rest(ARCH), plain(tap_rows.rows_served)
    unit = state.units[MAT_MUL]
    state.queued[MAT_MUL, 0] = records(WORK, size=4, rows=2, tap_rows=taps)
    unit.work, unit.row, unit.vector = 0, 1, 1  # far enough from both ends that each row has a vector
    counting = [row for row in range(3) if taps >> row & 1]
    for order in (counting, counting[::-1]):
        for number, row in enumerate(order):
            for client in range(3):
                state.ports[LOCAL_READS].grant[client_of(client)] = client == row
            last = number == len(order) - 1
            assert bool(served(state, True)) == last
            assert int(unit.before) == (0 if last else sum(1 << each for each in order[:number + 1]))
    for client in range(3):
        state.ports[LOCAL_READS].grant[client_of(client)] = 1
    assert not served(state, False) and int(unit.before) == taps
    assert served(state, True)


@pytest.mark.parametrize(("taps", "beyond"), [
    (0b111, {0: 0, 1: 9, 2: 18}), (0b101, {0: 0, 2: 18}), (0b110, {1: 0, 2: 9}), (0b100, {2: 0}), (0b001, {0: 0})])
def test_rows_of_taps_lie_a_pitch_apart_from_the_first_that_counts(taps: int, beyond: dict[int, int]) -> None:
    """Row k meets the vector k steps before, on the line where that lies; a row left out between others counts too."""
    state, banks = machine_at_rest(ARCH), 128
    unit, found = state.units[MAT_MUL], state.ports[LOCAL_READS].bank
    state.queued[MAT_MUL, 0] = records(WORK, size=4, rows=3, tap_rows=taps, tap_pitch=9, base0=5, pitch0=40, stride0=2)
    unit.work = 0
    for line, vector in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 3)):
        unit.row, unit.vector = line, vector
        wanted = {}
        for row, pitch in beyond.items():
            step = 4 * line + vector - row
            if step >= 0:
                wanted[row] = 5 + step // 4 * 40 + step % 4 * 2 + pitch
        plain(tap_rows.ask_for_rows)(state, SimpleNamespace(local_banks=banks), True)
        asked = {row: int(found[client_of(row)]) for row in range(3)}
        assert {row: bank for row, bank in asked.items() if bank != NONE} == wanted
        plain(tap_rows.ask_for_rows)(state, SimpleNamespace(local_banks=banks), False)
        assert all(found[client_of(row)] == NONE for row in range(3))
    unit.row, unit.vector = 1, 1
    plain(tap_rows.ask_for_rows)(state, SimpleNamespace(local_banks=1), True)  # all meet: the first of them asks
    assert [row for row in range(3) if found[client_of(row)] == 0] == [min(beyond)]
