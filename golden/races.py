# SPDX-License-Identifier: Apache-2.0
"""Check that programs of several cores on one memory mean the same in any order.

They do if of two accesses of different cores to a byte, one of them a write, one surely comes first. Within a core a
Signal comes after each earlier access that its range meets, and before each later one; Signals of a core come in order;
a wait comes after the posts that fill it (``order.py``). A range is all from its lowest to its highest byte, as in the
interlock. Programs do not branch, so this is decided before they run, and exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.golden.legality import dram_walks, signals
from weft.golden.order import SignalOrder
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.support.errors import WeftError, explain

MOST_RUNS = 1 << 24
"""The most runs of vectors that are compared one by one."""
MOST_MEETINGS = 1 << 26
"""The most pieces into which runs are cut where those of several cores meet: some ten seconds."""
MOST_PAIRS = 1 << 31
"""The most pairs of a Signal and an access of its core."""
BLOCK_MEETINGS = 1 << 20
"""The pieces that are looked at at once."""
_READS = (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM1_TO_LOCAL)
_RUN = np.dtype([("memory", "i1"), ("core", "i1"), ("writes", "?"), ("instruction", "i4"), ("start", "i8"),
                 ("end", "i8"), ("before", "i4"), ("after", "i4")])
"""The record of a run: bytes ``start``..``end`` - 1 of a DRAM that an instruction of a core reads or writes.

``before``: how many Signals of its core come before it, up to the last one that is ordered with it; ``after``: the
same, up to the first one that comes after it, NEVER if none does."""
NEVER = (1 << 31) - 1


@dataclass(frozen=True)
class Access:
    """An access to bytes ``start``..``end`` - 1 of a DRAM, by an instruction of a core's program."""

    core: int
    program_counter: int
    writes: bool
    start: int
    end: int

    def __str__(self) -> str:
        """Return core, instruction and bytes as text."""
        return (f"core {self.core}, instruction {self.program_counter}, which {'writes' if self.writes else 'reads'} "
                f"bytes {self.start}..{self.end - 1}")


@dataclass(frozen=True)
class Race:
    """Two accesses of ``memory`` ("dram0", "dram1") in no defined order, at least one of them a write."""

    memory: str
    accesses: tuple[Access, Access]

    def __str__(self) -> str:
        """Return both accesses as text."""
        first, second = self.accesses
        return f"{self.memory}: {first}, and {second}"


class RaceError(WeftError):
    """The error for programs that may not run side by side."""

    def __init__(self, race: Race) -> None:
        super().__init__(explain("programs of several cores", f"a race in {race}",
                                 "no byte that one core writes and another reads or writes, unless a post behind the "
                                 "one and a wait before the other put them in order",
                                 "give each core a DRAM0 window of its own, add the post and the wait, or run them one "
                                 "after another"))
        self.race = race


def check_races(programs: Sequence[bytes], arch: Arch) -> None:
    """Raise RaceError if legal programs, one a core, would race, SignalError if a core would wait for ever.

    Raise WeftError if they are too large to tell."""
    race = first_race(programs, arch)
    if race is not None:
        raise RaceError(race)


def first_race(programs: Sequence[bytes], arch: Arch) -> Race | None:
    """Return the race of legal programs at the lowest address, or None. Raise SignalError as ``SignalOrder``."""
    sent = [signals(program, arch) for program in programs]
    order = SignalOrder(sent, arch)
    walks = [dram_walks(program, arch) for program in programs]
    whole = [_runs(walk, core, arch) for core, walk in enumerate(walks)]
    if not any(_meet(np.concatenate(whole), memory)[2].any() for memory in (0, 1)):
        return None
    count = sum(int((walk["rows"] * np.where(walk["stride"] == 1, 1, walk["size"])).sum()) for walk in walks)
    if count > MOST_RUNS:
        raise WeftError(explain("programs of several cores", f"{count} runs of vectors, in ranges that overlap",
                                f"at most {MOST_RUNS}", "give each core ranges of DRAM that lie apart"))
    for spans, own in zip(whole, sent, strict=True):
        _set_order(spans, own, arch)
    runs = np.concatenate([_pieces(walk, spans, arch) for walk, spans in zip(walks, whole, strict=True)])
    clocks = _Clocks(order)
    for memory in (0, 1):
        found = _unordered(runs, memory, clocks)
        if found is not None:
            return _race(*found)
    return None


# -- runs --------------------------------------------------------------------------------------------------------------
def _runs(walk: np.ndarray, core: int, arch: Arch) -> np.ndarray:
    """Return _RUN of the whole range of each of a core's DataMoves, as if no Signal were ordered with it."""
    found = np.zeros(len(walk), _RUN)
    found["memory"] = np.isin(walk["flow"], (DataFlow.DRAM1_TO_LOCAL, DataFlow.LOCAL_TO_DRAM1))
    found["core"], found["instruction"], found["after"] = core, walk["instruction"], NEVER
    found["writes"] = ~np.isin(walk["flow"], _READS)
    found["start"] = walk["window"] * DRAM_OFFSET_BYTES + arch.vector_bytes * walk["base"]
    last = (walk["size"] - 1) * walk["stride"] + (walk["rows"] - 1) * walk["pitch"]
    found["end"] = found["start"] + arch.vector_bytes * (last + 1)
    return found


def _pieces(walk: np.ndarray, spans: np.ndarray, arch: Arch) -> np.ndarray:
    """Return _RUN of each run of vectors without a gap in a core's DataMoves, whose whole ranges are ``spans``."""
    pieces = np.where(walk["stride"] != 1, walk["size"], 1)
    counts = walk["rows"] * pieces
    which = np.repeat(np.arange(len(walk)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    each, row, piece = walk[which], number // pieces[which], number % pieces[which]
    found = spans[which]
    found["start"] += arch.vector_bytes * (row * each["pitch"] + piece * each["stride"])
    found["end"] = found["start"] + arch.vector_bytes * np.where(each["stride"] != 1, 1, each["size"])
    return found


def _set_order(spans: np.ndarray, sent: np.ndarray, arch: Arch) -> None:
    """Fill ``before`` and ``after`` of a core's accesses, whose Signals are ``sent``; both are in program order."""
    if len(spans) * len(sent) > MOST_PAIRS:
        raise WeftError(explain("programs of several cores", f"{len(sent)} Signals and {len(spans)} accesses of a core",
                                f"at most {MOST_PAIRS} pairs", "post and wait less often, for larger pieces of work"))
    start = sent["window"] * DRAM_OFFSET_BYTES + arch.vector_bytes * sent["first"]
    end = start + arch.vector_bytes * (sent["last"] - sent["first"] + 1)
    places = np.searchsorted(spans["instruction"], sent["instruction"])

    def ordered(part: np.ndarray, number: int) -> np.ndarray:
        return (part["memory"] == sent["dram1"][number]) & (part["start"] < end[number]) & (part["end"] > start[number])

    for number, place in enumerate(places.tolist()):
        part = spans[place:]
        part["before"][ordered(part, number)] = number + 1
    for number, place in reversed(list(enumerate(places.tolist()))):
        part = spans[:place]
        part["after"][ordered(part, number)] = number + 1


class _Clocks:
    """The clocks of all Signals in one table, with a row of zeros first: ``table`` [1 + Signals, cores]."""

    def __init__(self, order: SignalOrder) -> None:
        counts = [len(each) for each in order.clocks]
        self.firsts = np.concatenate([[0], np.cumsum(counts)])
        self.table = np.concatenate([np.zeros_like(order.clocks[0][:1], shape=(1, order.clocks[0].shape[1])),
                                     *order.clocks])
        self.places = np.concatenate([[-1], *order.places])

    def rows(self, runs: np.ndarray) -> np.ndarray:
        """Return the row of the last Signal before each run, 0 if there is none."""
        return np.where(runs["before"] > 0, self.firsts[runs["core"]] + runs["before"], 0)


# -- where cores meet --------------------------------------------------------------------------------------------------
def _meet(runs: np.ndarray, memory: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the runs of a memory, the edges of all of them, ascending, and which pieces between edges are shared.

    A piece is shared if two cores touch it, one of them to write."""
    here = runs[runs["memory"] == memory]
    edges = np.unique(np.concatenate([here["start"], here["end"]]))

    def covered(part: np.ndarray) -> np.ndarray:
        steps = np.zeros(len(edges) + 1, np.int64)
        np.add.at(steps, np.searchsorted(edges, part["start"]), 1)
        np.add.at(steps, np.searchsorted(edges, part["end"]), -1)
        return np.cumsum(steps)[:len(edges)] > 0

    cores = sum((covered(here[here["core"] == core]).astype(np.int64) for core in np.unique(here["core"])),
                np.zeros(len(edges), np.int64))
    return here, edges, (cores > 1) & covered(here[here["writes"]])


def _unordered(runs: np.ndarray, memory: int, clocks: _Clocks) -> tuple[np.void, np.void] | None:
    """Return two runs of a memory in no order, of different cores, of which one writes: those at the lowest byte."""
    here, edges, shared = _meet(runs, memory)
    numbers = np.concatenate([[0], np.cumsum(shared)])  # of the pieces that count
    first, last = (numbers[np.searchsorted(edges, here[name])] for name in ("start", "end"))
    there = last > first
    here, first, last = here[there], first[there], last[there]
    total = int((last - first).sum())
    if total > MOST_MEETINGS:
        raise WeftError(explain("programs of several cores", f"{total} places where accesses of cores meet",
                                f"at most {MOST_MEETINGS}", "move more vectors at once, or in ranges that lie apart"))
    for begin, end in _blocks(first, last, int(numbers[-1])):
        inside = (first < end) & (last > begin)
        found = _unordered_within(here[inside], np.maximum(first[inside], begin) - begin,
                                  np.minimum(last[inside], end) - begin, clocks)
        if found is not None:
            return found
    return None


def _blocks(first: np.ndarray, last: np.ndarray, count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of pieces, of ``count``, each with some BLOCK_MEETINGS; runs cover ``first``..``last`` - 1."""
    steps = np.bincount(first, minlength=count + 1) - np.bincount(last, minlength=count + 1)
    done = np.cumsum(np.cumsum(steps))
    begin = 0
    while begin < count:
        before = int(done[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(done[:count], before + BLOCK_MEETINGS, "right")), begin + 1)
        yield begin, end
        begin = end


def _unordered_within(runs: np.ndarray, first: np.ndarray, last: np.ndarray,
                      clocks: _Clocks) -> tuple[np.void, np.void] | None:
    """Return the first two runs in no order in one block, in which they cover pieces ``first``..``last`` - 1.

    At each piece, accesses are visited in an order in which none comes before one that it must follow. Each must
    follow all those of other cores that were visited before it, so only the latest of these counts."""
    which = np.repeat(np.arange(len(runs)), last - first)
    piece = np.arange(len(which)) - np.repeat(np.cumsum(last - first) - last, last - first)
    row = clocks.rows(runs)[which]
    visit = np.lexsort((clocks.places[row], piece))
    which, piece, row = which[visit], piece[visit], row[visit]
    core, writes, known = runs["core"][which], runs["writes"][which], clocks.table[row]
    after = runs["after"][which].astype(np.int64)
    base = piece * (NEVER + 1)
    bad = np.zeros(len(which), bool)
    for other in np.unique(runs["core"]):
        for kind, asked in ((writes, np.True_), (np.ones_like(writes), writes)):
            latest = np.maximum.accumulate(np.where((core == other) & kind, base + after, 0))
            latest = np.concatenate([[0], latest[:-1]]) - base
            bad |= (core != other) & asked & (latest > known[:, other])
    if not bad.any():
        return None
    second = int(np.flatnonzero(bad)[0])
    begin = int(np.searchsorted(piece, piece[second]))
    part = slice(begin, second)
    partner = ((core[part] != core[second]) & (writes[part] | writes[second])
               & (after[part] > known[second, core[part]]))
    return runs[which[begin + int(np.flatnonzero(partner)[0])]], runs[which[second]]


def _race(*runs: np.void) -> Race:
    """Return the race of two runs, that of the lower core first."""
    first, second = sorted(runs, key=lambda run: int(run["core"]))
    accesses = [Access(int(run["core"]), int(run["instruction"]), bool(run["writes"]), int(run["start"]),
                       int(run["end"])) for run in (first, second)]
    return Race(("dram0", "dram1")[int(first["memory"])], (accesses[0], accesses[1]))
