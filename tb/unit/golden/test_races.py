# SPDX-License-Identifier: Apache-2.0
"""Programs of several cores that touch a byte which one of them writes are refused, and no others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from weft.golden import races
from weft.golden.dram import Dram
from weft.golden.races import RaceError, check_races, first_race
from weft.golden.system import GoldenSystem
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import Register
from weft.support.errors import WeftError
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"].replace(dram_ports=SHARED, cores=2)
ISA = Isa(ARCH)
LOAD, SAVE = DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0
CONST, SAVE_CONST = DataFlow.DRAM1_TO_LOCAL, DataFlow.LOCAL_TO_DRAM1
Move = tuple[DataFlow, int, int, int]
"""Flow, first vector in DRAM, vectors, stride."""


def program(*moves: Move, before: tuple[Instruction, ...] = ()) -> bytes:
    return ISA.assemble([*before, *(ISA.data_move(flow, 0, base, size, far_stride=stride)
                                    for flow, base, size, stride in moves)])


@pytest.mark.parametrize(("first", "second"), [
    ((LOAD, 8, 4, 1), (LOAD, 8, 4, 1)), ((SAVE, 8, 4, 1), (LOAD, 12, 4, 1)), ((LOAD, 8, 4, 1), (SAVE, 4, 4, 1)),
    ((SAVE, 8, 4, 2), (SAVE, 9, 4, 2)), ((SAVE, 8, 4, 1), (CONST, 8, 4, 1)), ((SAVE, 0, 4, 4), (LOAD, 1, 3, 1))],
    ids=["two reads", "behind", "before", "between", "another DRAM", "in a gap"])
def test_what_does_not_meet_is_no_race(first: Move, second: Move) -> None:
    check_races([program(first), program(second)], ARCH)
    check_races([program(second), program(first)], ARCH)


@pytest.mark.parametrize(("first", "second", "memory", "start"), [
    ((SAVE, 8, 4, 1), (LOAD, 11, 4, 1), "dram0", 11), ((LOAD, 8, 4, 1), (SAVE, 5, 4, 1), "dram0", 8),
    ((SAVE, 8, 4, 2), (SAVE, 10, 1, 1), "dram0", 10), ((SAVE, 0, 4, 4), (LOAD, 1, 4, 1), "dram0", 4),
    ((CONST, 2, 1, 1), (SAVE_CONST, 0, 8, 1), "dram1", 2)],
    ids=["one vector", "a write in front", "two writes", "a stride", "constants"])
def test_a_race_names_both_accesses(first: Move, second: Move, memory: str, start: int) -> None:
    programs = [program((LOAD, 100, 1, 1), first), program(second)]
    wanted = f"a race in {memory}: core 0, instruction 1, .* and core 1, instruction 0"
    with pytest.raises(RaceError, match=wanted) as error:
        check_races(programs, ARCH)
    both = error.value.race.accesses
    assert max(each.start for each in both) <= start * ARCH.vector_bytes < min(each.end for each in both)
    assert [each.writes for each in both] == [move[0] in (SAVE, SAVE_CONST) for move in (first, second)]


@pytest.mark.parametrize("seed", range(20))
def test_shared_pieces_are_those_that_two_cores_touch_and_one_writes(seed: int) -> None:
    """Held against sets of bytes: what is taken for shared besides costs time and room, up to a refusal."""
    rng = np.random.default_rng(seed)
    runs = np.zeros(12, races._RUN)
    runs["core"], runs["writes"] = rng.integers(0, 3, 12), rng.integers(0, 2, 12)
    runs["start"] = rng.integers(0, 40, 12)
    runs["end"] = runs["start"] + rng.integers(1, 8, 12)
    _, edges, shared = races._meet(runs, 0)
    for begin, end, found in zip(edges, edges[1:], shared, strict=False):
        there = runs[(runs["start"] <= begin) & (end <= runs["end"])]
        assert found == (len(set(there["core"])) > 1 and there["writes"].any()), (begin, end)


def test_windows_keep_cores_apart() -> None:
    """The same addresses, in blocks of their own."""
    apart = ISA.configure(Register.DRAM0_OFFSET, 1)
    save = (SAVE, 0, 8, 1)
    check_races([program(save), program(save, before=(apart,))], ARCH)
    with pytest.raises(RaceError):
        check_races([program(save, before=(apart,)), program(save, before=(apart,))], ARCH)


def test_random_moves_race_where_their_vectors_meet() -> None:
    """Held against sets of vectors. The two accesses that are named meet, and one of them writes."""
    rng, races = random.Random(0), 0
    for _ in range(300):
        moves = [[(rng.choice([LOAD, SAVE, CONST]), rng.randrange(60), rng.randint(1, 6), rng.choice([1, 2, 4]))
                  for _ in range(3)] for _ in range(2)]
        touched = [{(flow is CONST, base + k * stride, flow is SAVE) for flow, base, size, stride in each
                    for k in range(size)} for each in moves]
        meets = any(a[:2] == b[:2] and (a[2] or b[2]) for a in touched[0] for b in touched[1])
        race = first_race([program(*each) for each in moves], ARCH)
        assert (race is not None) == meets, moves
        if race is not None:
            one, other = race.accesses
            assert one.writes or other.writes, race
            assert one.start < other.end and other.start < one.end and one.core != other.core, race
        races += meets
    assert 50 < races < 250


def test_nothing_runs_of_programs_that_race() -> None:
    dram = Dram(ARCH)
    system = GoldenSystem(ARCH, dram)
    with pytest.raises(RaceError):
        system.run([program((SAVE, 0, 4, 1)), program((LOAD, 3, 1, 1))])
    assert all(core.instruction_count == 0 for core in system.cores)


def test_a_single_arch_has_no_races() -> None:
    alone: Arch = ARCH.replace(cores=1, sync_counters=0)
    check_races([program((SAVE, 0, 4, 1), (LOAD, 0, 4, 1))], alone)


@pytest.mark.parametrize("most", [1, 5, 40, 1000])
def test_no_block_has_more_meetings_than_there_is_memory_for(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks follow each other, and only one piece alone may have more than the most."""
    monkeypatch.setattr(races, "BLOCK_MEETINGS", most)
    draw = np.random.default_rng(most)
    first = draw.integers(0, 60, 50)
    last = np.minimum(first + draw.integers(1, 9, 50), 60)
    blocks = list(races._blocks(first, last, 60))
    assert [begin for begin, _ in blocks] == [0, *(end for _, end in blocks[:-1])] and blocks[-1][1] == 60
    for begin, end in blocks:
        met = np.clip(np.minimum(last, end) - np.maximum(first, begin), 0, None).sum()
        assert met <= most or end == begin + 1


@pytest.mark.parametrize(("limit", "told"), [
    ("MOST_RUNS", "4 runs of vectors, in ranges that overlap"),
    ("MOST_MEETINGS", "places where accesses of cores meet")])
def test_more_work_than_a_check_may_take_is_refused(limit: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two strided moves, each two vectors, whose ranges overlap though no vector does."""
    programs = [program((SAVE, 8, 2, 2)), program((SAVE, 9, 2, 2))]
    check_races(programs, ARCH)
    monkeypatch.setattr(races, limit, 0)
    if limit == "MOST_MEETINGS":
        programs[1] = program((SAVE, 8, 2, 2))
    with pytest.raises(WeftError, match=f"found .*{told}; allowed: at most 0"):
        check_races(programs, ARCH)
