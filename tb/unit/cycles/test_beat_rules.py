# SPDX-License-Identifier: Apache-2.0
"""Kernels of the estimator, as plain Python: turns of cores and writers, captured loops, and the end of a program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.cycles import moves, origin, ports, rescale, simd, sync, two_rows, writer
from weft.cycles.memories import ACCUMULATOR_WRITES, LOCAL_READS
from weft.cycles.program import MEMORIES, NO_MEMORY, WORK
from weft.cycles.replay import _end
from weft.cycles.state import LOAD_WEIGHT, MAT_MUL, MOVE_IN, MOVE_OUT, NONE, ROWS, SIMD, SYNC, WRITER
from weft.cycles.waits import _moves
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import LiteDram
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.timing import LOCAL_READ_LATENCY, PORT_BEATS_WAITING, weight_latency
from weft.hw.contract.units import OPERATION, Memory
from weft.tb.bench.plain_kernels import machine_at_rest, plain, records
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"]
CORES = ARCH.replace(dram_ports=SHARED, cores=3)


def cores_at_rest(arch: Arch) -> tuple[Any, list[Any]]:
    """Return a memory port of all cores, and their states."""
    port = ports.new_ports(arch, arch.cores)
    return port.view(np.dtype((type(records(ports.SHARED)), port.dtype)))[0], [
        machine_at_rest(arch) for _ in range(arch.cores)]


def test_a_port_begins_bursts_of_its_cores_in_turn() -> None:
    """Each burst is taken to its last beat; who has no beat is passed over."""
    port, states = cores_at_rest(CORES)
    offers = [[True, True, True]] * 4 + [[True, False, True]] * 2 + [[False, True, False]]
    for core in range(3):
        port.core[core].ahead = 9
    begun = []
    for offered in offers:
        for last in (0, 1):
            for state, there in zip(states, offered, strict=True):
                state.dram.ports[ports.DATA].w_valid, state.dram.ports[ports.DATA].w_last = there, last
            port.waiting = 0
            plain(ports.take_beat)(port, states, True)
            begun += [] if last else [int(port.owner)]
        assert port.owner == NONE
    assert begun == [0, 1, 2, 0, 2, 0, 1]
    assert int(port.write_beats) == 2 * len(offers) and port.waiting <= PORT_BEATS_WAITING


@pytest.mark.parametrize(("free", "served"), [(3, False), (4, True), (5, True)])
def test_a_programs_burst_is_asked_for_when_its_last_beat_has_a_place(free: int, served: bool) -> None:
    port, states = cores_at_rest(CORES)
    own = states[1].dram.ports[ports.PROGRAM]
    own.ar.valid, own.ar.beats, port.core[1].free = 1, 4, free
    plain(ports.grant_read)(port, states, SimpleNamespace(join_cycles=0))
    assert bool(own.ar.taken) == served == bool(port.asked)


def test_writes_into_the_accumulators_take_turns_where_both_units_have_one() -> None:
    state, step = machine_at_rest(ARCH), plain(rescale.step_gate)
    machine, found = SimpleNamespace(slices=0, accumulator_banks=4), []
    state.pipeline["issued"], state.streams[moves.INTO].pushed = 9, 9
    state.pipeline["writes"] = 1
    for _ in range(6):
        step(state, machine, 1)
        state.pipeline["retired"] = state.pipeline["retired_now"]
        found.append(int(state.gate["whose"][0]))
        plain(rescale.ask)(state, machine)
        state.ports[ACCUMULATOR_WRITES].grant[[SIMD, MOVE_IN]] = [found[-1] == SIMD, found[-1] == MOVE_IN]
    assert found == [SIMD, MOVE_IN] * 3


@pytest.mark.parametrize(("slices", "drained", "given", "asks"), [
    (0, 0, 5, True), (1, 0, 5, False), (1, 1, 5, True), (0, 1, 4, False)])
def test_scales_are_loaded_when_all_rows_before_can_be_read(slices: int, drained: int, given: int, asks: bool) -> None:
    """With register slices a written row can be read a cycle later."""
    state = machine_at_rest(ARCH)
    stream = state.streams[moves.OUT_OF]
    stream.pushed, stream.popped, stream.given, stream.drained = 5, 5, given, drained
    state.units[MOVE_OUT].work = 0
    state.queued[MOVE_OUT, 0] = records(WORK, memory1=NO_MEMORY, size=8, rows=1)
    plain(moves.ask)(state, SimpleNamespace(slices=slices, local_banks=4, accumulator_banks=4, move_out_latency=9))
    assert (state.ports[LOCAL_READS].bank[MOVE_OUT] != NONE) == asks


def test_an_access_of_a_loop_takes_a_cycle_for_each_before_it() -> None:
    state, capture = machine_at_rest(ARCH), plain(simd.capture)
    sequencer = state.sequencer
    sequencer.body, times = 4, []
    for memory in (NO_MEMORY, 1, 1, 1):
        capture(state, SimpleNamespace(lut_count=0), records(WORK, memory0=memory, memory1=NO_MEMORY), 100)
        times.append(int(sequencer.ready_from) - 100)
    assert times == [-100, 1, 1, 2]
    assert sequencer.state == simd.CHECK


@pytest.mark.parametrize("left", ["door", "between", "pipeline", "nothing"])
def test_a_table_is_loaded_when_nothing_is_under_way(left: str) -> None:
    state = machine_at_rest(ARCH)
    state.micro[simd.DOOR].valid, state.between = left == "door", left == "between"
    state.pipeline["issued"] = left == "pipeline"
    state.queued[SIMD, 0] = records(WORK, table=1)
    unit = state.units[SIMD]
    unit.there_from, unit.issued, unit.head = 0, 1, 0
    plain(simd.sequence)(state, SimpleNamespace(slices=1, lut_count=1, simd_block=1), 5)
    assert (state.sequencer.state == simd.LOAD) == (left == "nothing")


def test_a_core_posts_in_one_cycle_alone() -> None:
    state, step = machine_at_rest(ARCH), plain(sync.step_sync)
    state.units[SYNC].work = 0
    state.queued[SYNC, 0] = records(WORK, above=0b101, counter=3)
    found = []
    for now in range(3):
        step(state, SimpleNamespace(slices=0), now)
        found.append((int(state.sync["posts"]), int(state.units[SYNC].work)))
    assert found == [(0b101, NONE), (0, NONE), (0, NONE)]


def test_the_shorter_part_of_the_column_skips_its_first_row_alone() -> None:
    """Of 7 places the upper part has 4, so that the lower part's first row is a filler; of 8 both have 4."""
    for places, skipped in ((7, [True, False, False, False]), (8, [False] * 4)):
        state = machine_at_rest(ARCH)
        state.queued[LOAD_WEIGHT, 0] = records(WORK, size=places, rows=1)
        found = []
        for row in range(4):
            state.asked[two_rows.LOWER] = records(ROWS, row=row)
            found.append(bool(plain(two_rows.is_zero)(state, SimpleNamespace(places=places, upper_places=4),
                                                      two_rows.LOWER)))
        assert found == skipped


@pytest.mark.parametrize(("words", "filled", "accepted", "taken"), [(0, 0, 1, 0), (1, 0, 0, 0), (1, 0, 1, 1),
                                                                    (2, 3, 3, 0)])
def test_a_beat_to_be_written_follows_its_bursts_address(words: int, filled: int, accepted: int, taken: int) -> None:
    record = records(WRITER, words=words, filled=filled, accepted=accepted, answered=filled)
    record.word_last[0] = 1
    plain(writer.send)(None, record, SimpleNamespace(bus_share=0, dram_write_latency=20), 7)
    assert (words - int(record.words), int(record.filled) - filled) == (taken, taken)


def test_a_signal_moves_nothing() -> None:
    work = records(WORK, 3, memory1=list(Memory).index(Memory.DRAM0))
    work["unit"] = [SYNC, MOVE_OUT, MAT_MUL]
    assert _moves(work, Memory.DRAM0).tolist() == [False, True, True]


def test_a_machine_rests_when_its_last_operation_is_known_to_be_done_and_nothing_is_on_its_way() -> None:
    """Weights go on to the last column, scales come from local memory, and slices tell of each end a cycle later."""
    for name in ("lanes2", "lanes4_int8"):
        arch = lockstep_archs()[name]
        late = arch.register_slices
        for unit, memory1, decoded, end in (
                (MAT_MUL, 1, 0, 101 + late), (MAT_MUL, 1, 300, 300), (LOAD_WEIGHT, 1, 0, 101 + weight_latency(arch)),
                (MOVE_OUT, NO_MEMORY, 0, 101 + LOCAL_READ_LATENCY), (MOVE_OUT, 1, 0, 101 + late)):
            operations = np.zeros(2, OPERATION)
            operations["unit"], operations["finish_cycle"] = (MAT_MUL, unit), (20, 100)
            work = records(WORK, 2, memory1=[1, memory1])
            assert _end(arch, work, operations, decoded) == end, (name, unit)


@pytest.mark.parametrize(("address", "length", "beats"), [(0, 8, (0, 0)), (0, 9, (0, 1)), (64, 16, (8, 9)),
                                                          (64, 15, (8, 9)), (72, 1, (9, 9))])
def test_a_program_lies_where_it_begins_and_ends_with_its_last_byte(
        monkeypatch: pytest.MonkeyPatch, address: int, length: int, beats: tuple[int, int]) -> None:
    """On a board's memory; the windows move what operations name, each by its own."""
    monkeypatch.setattr(origin, "rest", lambda *_: None)
    monkeypatch.setattr(origin, "begin", lambda *_: None)
    arch, state, work = ARCH.replace(stream_width=64), machine_at_rest(ARCH), records(WORK, 3, window=7)
    work["memory1"] = [MEMORIES.index(memory) for memory in (Memory.DRAM1, Memory.LOCAL, Memory.DRAM0)]
    dram = BOARDS["ulx3s"].dram
    assert isinstance(dram, LiteDram)
    origin.join_board(state, arch, dram, origin.Origin(address, (100, 200)), work, length)
    assert (int(state.program["beat"]), int(state.program["last_beat"])) == beats
    assert work["window"].tolist() == [207, 7, 107]
    assert (int(state.paced), int(state.control.beats)) == (1, 0)
