# SPDX-License-Identifier: Apache-2.0
"""How far ahead of each other parts of the estimator go: each limit at its last number and the next, as plain Python.

No short program meets these limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cycles import ports, two_rows, writer
from weft.cycles.program import WORK
from weft.cycles.state import LOAD_WEIGHT, WRITER
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
