# SPDX-License-Identifier: Apache-2.0
"""Synchronisation of cores: posts and waits for moves of one core that depend on another's through DRAM0.

A program of one core means its operations in order. Split over cores it means the same if every two moves of different
cores that touch a vector, one of them a save, keep the order of their layers. So cores post behind moves that others
depend on, and wait before their own. Moves with no computation between them are one chunk, with one post."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import DRAM0, Address
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.walk import Walk

NONE = -1


class Dependency(NamedTuple):
    """Operation ``consumer`` of a core comes after operation ``producer`` of another ``core``."""

    core: int
    producer: int
    consumer: int


@dataclass
class Range:
    """A range has the vectors ``first`` to ``last`` of DRAM0, both included; a new one is empty."""

    first: int = 1 << 62
    last: int = NONE

    def add(self, walk: Walk) -> None:
        """Extend the range until it contains all vectors of ``walk``."""
        self.first, self.last = min(self.first, walk.base), max(self.last, walk.last)


@dataclass
class Post:
    """A post is a Signal of one core to others; the list that holds it says which core posts.

    It stands behind operation ``after`` of that core, and goes to the cores whose bits are set in ``cores``. ``range``
    covers the vectors of the moves that it reports."""

    after: int
    cores: int = 0
    range: Range = field(default_factory=Range)


@dataclass
class Wait:
    """A wait is a Signal by which one core waits for another; the list that holds it says which core waits.

    It stands before operation ``before`` of that core, and waits for the post behind chunk number ``chunk`` of core
    ``core``. ``range`` covers the vectors of the waiting core's moves that depend on this post."""

    core: int
    chunk: int
    before: int
    range: Range = field(default_factory=Range)


def synchronised(plain: Sequence[Schedule]) -> list[Schedule]:
    """Return the schedules of all cores with the posts and waits that they need.

    Core k posts to counter k of the others, so a counter has one poster, whose posts and waits come in one order."""
    needed = dependencies(plain)
    posts, waits = _signals(plain, needed)
    return [_with_signals(schedule, core, posts[core], waits[core]) for core, schedule in enumerate(plain)]


# -- what depends on what ----------------------------------------------------------------------------------------------
def dependencies(plain: Sequence[Schedule]) -> list[list[Dependency]]:
    """Return [cores]: what each core's moves of DRAM0 depend on in others, in the order of its operations."""
    last = _Touched(len(plain), 1 + max((operation.far_walk.last for schedule in plain
                                         for _, operation in _moves(schedule)), default=0))
    found: list[list[Dependency]] = [[] for _ in plain]
    waiting = [_by_layer(schedule) for schedule in plain]
    for layer in range(max((int(schedule.layers.max(initial=NONE)) for schedule in plain), default=NONE) + 1):
        for core, layers in enumerate(waiting):
            for number, operation in layers.get(layer, ()):
                found[core] += last.note(core, number, operation)
    return found


def _moves(schedule: Schedule) -> Iterator[tuple[int, lir.DataMove]]:
    """Yield the number of every move of DRAM0, and the move."""
    return ((number, operation) for number, operation in enumerate(schedule.operations)
            if isinstance(operation, lir.DataMove) and operation.far.memory == DRAM0)


def _by_layer(schedule: Schedule) -> dict[int, list[tuple[int, lir.DataMove]]]:
    """Return a schedule's moves of DRAM0 by layer."""
    found: dict[int, list[tuple[int, lir.DataMove]]] = {}
    for number, operation in _moves(schedule):
        found.setdefault(int(schedule.layers[number]), []).append((number, operation))
    return found


class _Touched:
    """For every vector of DRAM0, the core and operation that wrote it, and each core's last read since then."""

    def __init__(self, cores: int, vectors: int) -> None:
        self.writer, self.wrote = np.full((2, vectors), NONE, np.int64)
        self.read = np.full((cores, vectors), NONE, np.int64)

    def note(self, core: int, number: int, operation: lir.DataMove) -> list[Dependency]:
        """Record a move, and return the moves of other cores that it depends on.

        Dependencies are in descending order of core, then of operation."""
        walk = operation.far_walk
        places = (walk.base + np.arange(walk.rows)[:, None] * walk.pitch + np.arange(walk.size) * walk.stride).ravel()
        before = {(int(other), int(producer)) for other, producer in
                  np.unique(np.stack([self.writer[places], self.wrote[places]]), axis=1).T}
        if operation.to_local:
            self.read[core, places] = number
        else:
            before |= {(other, int(producer)) for other, reads in enumerate(self.read[:, places])
                       for producer in np.unique(reads)}
            self.writer[places], self.wrote[places], self.read[:, places] = core, number, NONE
        return [Dependency(other, producer, number) for other, producer in sorted(before, reverse=True)
                if other not in (NONE, core) and producer != NONE]


# -- posts and waits ---------------------------------------------------------------------------------------------------
def _signals(plain: Sequence[Schedule],
             needed: Sequence[Sequence[Dependency]]) -> tuple[list[list[Post]], list[list[Wait]]]:
    """Return [cores] of the posts and of the waits of each core.

    A wait for a later post of the same core serves too. Then its range reaches over both moves."""
    chunks = [_chunks(schedule) for schedule in plain]
    posts: list[dict[int, Post]] = [{} for _ in plain]
    for one in (entry for core in needed for entry in core):
        post = posts[one.core].setdefault(int(chunks[one.core][one.producer]), Post(one.producer))
        post.after = max(post.after, one.producer)
    waits: list[list[Wait]] = [[] for _ in plain]
    for core, own in enumerate(needed):
        for one in own:
            chunk = int(chunks[one.core][one.producer])
            wait = next((wait for wait in waits[core] if wait.core == one.core and wait.chunk >= chunk), None)
            if wait is None:
                wait = Wait(one.core, chunk, one.consumer)
                waits[core].append(wait)
                posts[one.core][chunk].cores |= 1 << core
            wait.range.add(_walk(plain[core], one.consumer))
            posts[one.core][wait.chunk].range.add(_walk(plain[one.core], one.producer))
    return [[post for _, post in sorted(own.items()) if post.cores] for own in posts], waits


def _chunks(schedule: Schedule) -> np.ndarray:
    """Return [operations]: the number of each one's chunk, which ends at its layer's end and where saves end."""
    saves = np.array([isinstance(operation, lir.DataMove) and operation.far.memory == DRAM0 and not operation.to_local
                      for operation in schedule.operations], bool)
    begins = np.diff(schedule.layers, prepend=NONE) != 0
    begins[1:] |= saves[:-1] & ~saves[1:]
    return np.cumsum(begins)


def _walk(schedule: Schedule, number: int) -> Walk:
    """Return the walk over DRAM0 of a schedule's DataMove ``number``."""
    operation = schedule.operations[number]
    assert isinstance(operation, lir.DataMove)
    return operation.far_walk


def _with_signals(plain: Schedule, core: int, posts: Sequence[Post], waits: Sequence[Wait]) -> Schedule:
    """Return a core's schedule with its posts and waits."""
    placed = [(wait.before, int(plain.layers[wait.before]), _signal(True, wait.core, 1, wait.range)) for wait in waits]
    placed += [(post.after + 1, int(plain.layers[post.after]), _signal(False, core, post.cores, post.range))
               for post in posts]
    placed.sort(key=lambda entry: entry[:2])
    operations: list[lir.Operation] = []
    layers, begin = [], 0
    for place, layer, signal in placed:
        operations += [*plain.operations[begin:place], signal]
        layers += [*plain.layers[begin:place].tolist(), layer]
        begin = place
    return Schedule.of((*operations, *plain.operations[begin:]), np.array([*layers, *plain.layers[begin:]], np.int64))


def _signal(wait: bool, counter: int, above: int, covered: Range) -> lir.Signal:
    """Return a Signal over a range of DRAM0."""
    return lir.Signal(wait, counter, above, Address(DRAM0, covered.first), covered.last + 1 - covered.first)
