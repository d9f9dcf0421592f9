# SPDX-License-Identifier: Apache-2.0
"""Kernels of the estimator, as plain Python, against what their parts are: banks, bursts, bytes, ranges and turns."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cycles import array, dram, memories, reader
from weft.cycles.array import ACCUMULATES, BANK_SHIFT, NO_BANK
from weft.cycles.memories import ACCUMULATOR_READS, LOCAL_READS
from weft.cycles.state import (
    CLIENT_COUNT,
    FURTHER_ROWS,
    MAT_MUL,
    MOVE_IN,
    NONE,
    PORTS,
    READER,
    SIMD,
)
from weft.hw.contract.timing import READER_BEATS_WAITING, STARVATION_LIMIT
from weft.tb.bench.plain_kernels import machine_at_rest, plain, records
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"]


def machine(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"slices": 0, "local_banks": 4, "accumulator_banks": 4, "kernel_rows": 1,
                              "weight_load_rows": 1, "product_latency": 5, "bias_interval": 3, **values})


def ports(seed: int) -> Any:
    """Return ports at which clients ask at random, each of them for one of four banks or for none."""
    rng, found = np.random.default_rng(seed=seed), records(PORTS)
    found["bank"] = rng.integers(-1, 4, CLIENT_COUNT)
    found["bank"][FURTHER_ROWS:] = NONE
    found["accumulates"] = rng.integers(0, 2, CLIENT_COUNT)
    found["last"] = rng.integers(0, CLIENT_COUNT, found["last"].shape)
    found["held"] = rng.integers(0, 2, found["held"].shape)
    return found


def next_in_turn(clients: list[int], last: int) -> int:
    """Return who follows ``last`` round robin, NONE for nobody."""
    return min(clients, key=lambda client: (client <= last, client), default=NONE)


# -- banks -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("favourite", [NONE, MAT_MUL])
def test_a_bank_of_local_memory_serves_its_clients_in_turn(seed: int, favourite: int) -> None:
    found = ports(seed)
    before, asked = found["last"].copy(), found["bank"].copy()
    plain(memories.grant_local)(found, 4, favourite)
    for bank in range(4):
        clients = np.flatnonzero(asked == bank).tolist()
        winner = favourite if favourite in clients else next_in_turn(clients, before[bank])
        assert np.flatnonzero(found["grant"] * (asked == bank)).tolist() == [winner] * (winner != NONE)
        assert found["last"][bank] == (before[bank] if winner == NONE else winner)


@pytest.mark.parametrize("seed", range(60))
def test_sums_come_first_and_writers_that_add_alternate_with_readers(seed: int) -> None:
    """Whoever adds to a bank takes its read port too."""
    reads, writes = ports(seed), ports(seed + 1000)
    old = {name: {kind: side[kind].copy() for kind in ("last", "held")}
           for name, side in (("reads", reads), ("writes", writes))}
    sum_bank, sum_adds = seed % 5 if seed % 5 < 4 else NO_BANK, bool(seed % 2)
    plain(memories.grant_accumulators)(reads, writes, 4, sum_bank, sum_adds)
    for bank in range(4):
        readers, writers = ([client for client in range(SIMD, MOVE_IN + 1) if side["bank"][client] == bank]
                            for side in (reads, writes))
        if readers and old["reads"]["held"][bank]:
            writers = [client for client in writers if not writes["accumulates"][client]]
        writer = NONE if bank == sum_bank else next_in_turn(writers, old["writes"]["last"][bank])
        adds = sum_adds if bank == sum_bank else writer != NONE and bool(writes["accumulates"][writer])
        served = next_in_turn([] if adds else readers, old["reads"]["last"][bank])
        for side, name, winner in ((reads, "reads", served), (writes, "writes", writer)):
            there = [client for client in range(SIMD, MOVE_IN + 1) if side["bank"][client] == bank]
            assert [client for client in there if side["grant"][client]] == [winner] * (winner != NONE)
            assert side["last"][bank] == (old[name]["last"][bank] if winner == NONE else winner)
        assert reads["held"][bank] == (adds and bool(readers))


@pytest.mark.parametrize(("mat_mul", "other", "leaving", "adder", "contended"), [
    (0, 0, NONE, NONE, True), (0, 1, NONE, NONE, False), (NONE, 0, NONE, NONE, False),
    (NONE, NONE, 2 << BANK_SHIFT, 2, False), (NONE, NONE, 2 << BANK_SHIFT | ACCUMULATES, 2, True),
    (NONE, NONE, 2 << BANK_SHIFT | ACCUMULATES, 1, False)])
def test_patience_counts_the_cycles_in_which_others_waited(mat_mul: int, other: int, leaving: int, adder: int,
                                                           contended: bool) -> None:
    """``adder``: the bank that SIMD reads, which a sum only disturbs if it adds."""
    state = machine_at_rest(ARCH)
    state.ports[LOCAL_READS].bank[MAT_MUL], state.ports[LOCAL_READS].bank[MOVE_IN] = mat_mul, other
    state.ports[ACCUMULATOR_READS].bank[SIMD] = adder
    count = plain(array.count_patience)
    starved = []
    for _ in range(STARVATION_LIMIT + 3):
        count(state, leaving)
        starved.append(int(state.control.starved))
    assert bool(state.control.contended) == contended
    assert starved == ([*range(STARVATION_LIMIT + 1), 0, 1] if contended else [0] * (STARVATION_LIMIT + 3))


@pytest.mark.parametrize(("dropped", "row", "vector", "extra", "bank"), [
    (3, 0, 1, 0, NO_BANK), (3, 0, 2, 0, 1), (3, 0, 3, 0, 0), (3, 0, 4, 0, NO_BANK), (3, 1, 0, 0, NO_BANK),
    (3, 1, 1, 0, NO_BANK), (3, 1, 2, 0, 0), (3, 2, 4, 2, NO_BANK), (1, 1, 0, 0, 2), (0, 1, 1, 0, 1)])
def test_a_result_lies_in_the_bank_of_the_vector_that_lags(dropped: int, row: int, vector: int, extra: int,
                                                           bank: int) -> None:
    """Two behind, in rows of five, at 1 + 3 row + 3 vector in four banks."""
    unit = SimpleNamespace(row=row, vector=vector, extra=extra)
    operation = SimpleNamespace(size=5, lag=2, dropped=dropped, base1=1, pitch1=3, stride1=3)
    assert plain(array.result_bank)(machine(), unit, operation) == bank


# -- bursts and bytes --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "stride", "rows", "pitch", "base"), [
    (10, 1, 1, 0, 3), (7, 1, 3, 20, 1), (4, 3, 2, 50, 5), (1, 1, 1, 0, 0), (40, 1, 1, 0, 6)])
@pytest.mark.parametrize(("vector_bytes", "beat_bytes"), [(4, 8), (8, 8), (24, 8), (6, 16)])
def test_bursts_read_the_bytes_of_each_run_and_end_at_multiples_of_the_longest(
        size: int, stride: int, rows: int, pitch: int, base: int, vector_bytes: int, beat_bytes: int) -> None:
    state, port = machine_at_rest(ARCH), records(READER, starts=1)
    state.queued[0, 0]["size"], state.queued[0, 0]["rows"], state.queued[0, 0]["base1"] = size, rows, base
    state.queued[0, 0]["stride1"], state.queued[0, 0]["pitch1"], state.queued[0, 0]["window"] = stride, pitch, 4096
    about = machine(vector_bytes=vector_bytes, beat_bytes=beat_bytes, max_burst=4)
    vectors = [[base + row * pitch + vector * stride for vector in range(size)] for row in range(rows)]
    runs = vectors if stride == 1 else [[vector] for row in vectors for vector in row]
    for number, run in enumerate(runs):
        first, last = run[0] * vector_bytes, (run[-1] + 1) * vector_bytes - 1
        begins = [beat for beat in range(first // beat_bytes, last // beat_bytes + 1)
                  if beat == first // beat_bytes or beat % 4 == 0]
        port.splitter = 1
        for begin, after in itertools.pairwise([*begins, last // beat_bytes + 1]):
            beats, skip, end, ends_run, ends = plain(dram.next_burst)(state, port, 0, about)
            whole = after == last // beat_bytes + 1
            assert (beats, port.address) == (after - begin, 4096 + begin * beat_bytes)
            assert skip == (first % beat_bytes if begin == begins[0] else 0)
            assert end == (last % beat_bytes + 1 if whole else beat_bytes)
            assert (bool(ends_run), bool(ends)) == (whole, whole and number == len(runs) - 1)
        assert plain(dram.next_burst)(state, port, 0, about)[0] == 0
    assert (port.addressed, port.row, port.vector) == (1, 0, 0)


@pytest.mark.parametrize(("beats", "skip", "end", "counted"), [
    (1, 0, 8, [8]), (1, 3, 7, [4]), (3, 2, 5, [6, 8, 5]), (2, 0, 1, [8, 1])])
def test_the_first_and_the_last_beat_of_a_burst_count_in_part(beats: int, skip: int, end: int,
                                                              counted: list[int]) -> None:
    port = records(READER)
    port["beats"][0], port["skip"][0], port["end"][0] = beats, skip, end
    assert [plain(reader.next_bytes)(port, machine(beat_bytes=8)) for _ in counted] == counted
    assert (port.answered, port.beat_out) == (1, 0)


@pytest.mark.parametrize(("vector_bytes", "beat_bytes"), [(8, 8), (16, 8), (4, 8), (12, 8)])
def test_a_gearbox_gives_as_many_vectors_as_its_beats_fill(vector_bytes: int, beat_bytes: int) -> None:
    port, given, total = records(READER), 0, 0
    for cycle in range(60):
        while port.waiting < READER_BEATS_WAITING:
            port.waiting_bytes[port.waiting] = beat_bytes
            port.waiting, total = port.waiting + 1, total + beat_bytes
        plain(reader.fill)(port, machine(vector_bytes=vector_bytes, beat_bytes=beat_bytes), cycle % 7 != 3)
        assert 0 <= port.level < vector_bytes + beat_bytes
        assert port.vectors - given in ((0,) if cycle % 7 == 3 else (0, 1))
        given = int(port.vectors)
        assert total == given * vector_bytes + port.level + port.waiting * beat_bytes
    assert given >= 60 * 6 // 7 * min(1, beat_bytes / vector_bytes) - 8


def test_a_shared_bus_keeps_what_nobody_uses_for_a_beat_of_each() -> None:
    about = machine(bus_share=512, beat_bytes=8, stream_bytes=4)
    control = SimpleNamespace(credit=0)
    earn, pays = plain(dram.earn), plain(dram.pays)
    for cycle in range(1, 1 + 100 * 16):
        earn(control, about)
        assert control.credit == min(512 * cycle, dram.MOST_BEATS * 8 * 1024)
    assert [pays(control, about) for _ in range(dram.MOST_BEATS + 1)] == [True] * dram.MOST_BEATS + [False]
    plain(dram.charge)(control, about, 2)
    assert control.credit == -2 * 4 * 1024
