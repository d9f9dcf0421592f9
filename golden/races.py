# SPDX-License-Identifier: Apache-2.0
"""Check that programs of several cores on one memory mean the same in any order.

They do if no two cores touch a byte that one of them writes. Programs do not branch, so this is decided before they
run, and exactly: first by the ranges of whole DataMoves, then, if these overlap, by the vectors that they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.golden.legality import dram_walks
from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch
from weft.hw.contract.instructions import DataFlow
from weft.support.errors import WeftError, explain

MOST_RUNS = 1 << 24
"""The most runs of vectors that are compared one by one."""
_READS = (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM1_TO_LOCAL)
_RUN = np.dtype([("memory", "i1"), ("core", "i1"), ("writes", "?"), ("instruction", "i4"), ("start", "i8"),
                 ("end", "i8")])
"""The record of a run: bytes ``start``..``end`` - 1 of a DRAM that an instruction of a core reads or writes."""


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
                                 "no byte that one core writes and another reads or writes",
                                 "give each core a DRAM0 window of its own, or run them one after another"))
        self.race = race


def check_races(programs: Sequence[bytes], arch: Arch) -> None:
    """Raise RaceError if legal programs, one a core, would race; WeftError if they are too large to tell."""
    race = first_race(programs, arch)
    if race is not None:
        raise RaceError(race)


def first_race(programs: Sequence[bytes], arch: Arch) -> Race | None:
    """Return the race of legal programs at the lowest address, or None."""
    walks = [dram_walks(program, arch) for program in programs]
    spans = np.concatenate([_runs(walk, core, arch, whole=True) for core, walk in enumerate(walks)])
    if _meeting(spans) is None:
        return None
    count = sum(int((walk["rows"] * np.where(walk["stride"] == 1, 1, walk["size"])).sum()) for walk in walks)
    if count > MOST_RUNS:
        raise WeftError(explain("programs of several cores", f"{count} runs of vectors, in ranges that overlap",
                                f"at most {MOST_RUNS}", "give each core ranges of DRAM that lie apart"))
    runs = np.concatenate([_runs(walk, core, arch, whole=False) for core, walk in enumerate(walks)])
    found = _meeting(runs)
    return None if found is None else _race(*found)


def _runs(walk: np.ndarray, core: int, arch: Arch, *, whole: bool) -> np.ndarray:
    """Return _RUN of a core's DataMoves: the ``whole`` range of each, or each run of vectors without a gap."""
    apart = walk["stride"] != 1
    rows, pieces = (np.ones(len(walk), np.int64),) * 2 if whole else (walk["rows"], np.where(apart, walk["size"], 1))
    which = np.repeat(np.arange(len(walk)), rows * pieces)
    number = np.arange(len(which)) - np.repeat(np.cumsum(rows * pieces) - rows * pieces, rows * pieces)
    each, row, piece = walk[which], number // pieces[which], number % pieces[which]
    vectors = np.where(apart[which] & (not whole), 1, (each["size"] - 1) * each["stride"] + 1)
    if whole:
        vectors = vectors + (each["rows"] - 1) * each["pitch"]
    found = np.zeros(len(which), _RUN)
    found["memory"] = np.isin(each["flow"], (DataFlow.DRAM1_TO_LOCAL, DataFlow.LOCAL_TO_DRAM1))
    found["core"], found["instruction"] = core, each["instruction"]
    found["writes"] = ~np.isin(each["flow"], _READS)
    found["start"] = each["window"] * DRAM_OFFSET_BYTES + arch.vector_bytes * (
        each["base"] + row * each["pitch"] + piece * each["stride"])
    found["end"] = found["start"] + vectors * arch.vector_bytes
    return found


def _meeting(runs: np.ndarray) -> tuple[np.void, np.void] | None:
    """Return two runs of different cores with a byte in common that one writes, or None."""
    for memory in (0, 1):
        here = np.sort(runs[runs["memory"] == memory], order="start")
        for core in np.unique(here["core"]):
            others = here["core"] != core
            reach = [np.concatenate([[-1], np.maximum.accumulate(np.where(kind, here["end"], -1))])[:len(here)]
                     for kind in (others & here["writes"], others)]
            meets = ~others & ((here["start"] < reach[0]) | (here["writes"] & (here["start"] < reach[1])))
            if meets.any():
                second = int(np.flatnonzero(meets)[0])
                first = here[:second]
                partner = others[:second] & (first["end"] > here["start"][second]) & (
                    first["writes"] | here["writes"][second])
                return here[int(np.flatnonzero(partner)[0])], here[second]
    return None


def _race(*runs: np.void) -> Race:
    """Return the race of two runs, that of the lower core first."""
    first, second = sorted(runs, key=lambda run: int(run["core"]))
    accesses = [Access(int(run["core"]), int(run["instruction"]), bool(run["writes"]), int(run["start"]),
                       int(run["end"])) for run in (first, second)]
    return Race(("dram0", "dram1")[int(first["memory"])], (accesses[0], accesses[1]))
