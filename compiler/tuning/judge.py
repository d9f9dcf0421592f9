# SPDX-License-Identifier: Apache-2.0
"""The judge: what choices cost, to the cycle, of a whole part of a network or of the few layers that they change.

A candidate that changes some layers is compared with what it changes in a window, which is these layers, one behind
them and one or more before them. The window is scheduled, put in order, encoded and estimated as if the machine began
there. What a window promises is only kept when the whole program keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.compiler.backend.encode import MachineCode, machine_code
from weft.compiler.choices import FORMULA, Choices, for_memory
from weft.compiler.errors import CompileError
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.sequence import first_broken, places, predecessors
from weft.compiler.memory.plan import MemoryPlan, plan_memory, with_tilings
from weft.compiler.memory.variables import LiveRange, live_again
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.scheduler.mat_muls import Drafts
from weft.compiler.scheduler.schedule import Schedule, interleaved, schedule_layers
from weft.compiler.tiling.search import Search
from weft.cycles.origin import apart
from weft.cycles.replay import Estimate, estimate_within
from weft.cycles.waits import analyse
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import DramModel

KEPT_PLACES = 64
"""Memory maps that a judge remembers: those of the newest residents and spread tensors."""


KEPT_ORDERS = 32
"""The newest orders of layers whose problem a judge keeps."""

KEPT_SCHEDULES = 2
"""The newest schedules of windows that a judge keeps, for moves that only change paces."""


@dataclass(frozen=True)
class Problem:
    """A part of a network for a machine, all of it but what can be chosen, and the memory that it is judged by."""

    lives: tuple[LiveRange, ...]
    layers: Layers
    consts: Consts
    numbers: Numbers
    arch: Arch
    dram: DramModel

    @property
    def formula(self) -> Choices:
        """The choices that formulas make for the network's DRAM, without any search."""
        return for_memory(self.dram, self.arch)

    @cached_property
    def predecessors(self) -> tuple[frozenset[int], ...]:
        """The numbers of the layers that each layer has to stay behind."""
        return predecessors(self.layers, self.arch.array_size)

    def reordered(self, order: Sequence[int]) -> Problem:
        """Return the problem with layers in another order. Raise CompileError where one would miss what it reads."""
        if first_broken(order, self.predecessors):
            raise CompileError("a layer comes before what it needs")
        layers = Layers(self.layers[number] for number in order)
        return Problem(live_again(self.lives, layers, self.arch), layers,
                       self.consts.reordered(order, layers, self.arch),
                       self.numbers.reordered(order, layers, self.arch), self.arch, self.dram)


class Arranged(NamedTuple):
    """A problem with its layers in the order of some choices.

    ``order``: their numbers. ``problem``, ``choices`` and ``drafts`` count places."""

    order: tuple[int, ...]
    problem: Problem
    choices: Choices
    drafts: Mapping[int, Drafts]


class Local(NamedTuple):
    """The cycles that a candidate saves in the layers at the places ``first`` to before ``end``."""

    saved: int
    first: int
    end: int


class Whole(NamedTuple):
    """The cycles of all layers.

    By a layer's number, ``waits``: the cycles of it in which the array waited; ``spent``: all of its cycles."""

    cycles: int
    waits: tuple[int, ...]
    spent: tuple[int, ...]


class Judge:
    """It finds the memory plan and the cycles of choices, and remembers both, so that equal choices cost once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.search = Search()
        self._problems: dict[tuple[int, ...], Problem] = {}
        self._places: dict[str, MemoryPlan | None] = {}
        self._cycles: dict[Hashable, int] = {}
        self._more: dict[Hashable, int] = {}  # windows that take more than so many cycles
        self._plain: dict[Hashable, Schedule] = {}
        self._drafts: dict[int, Drafts] = defaultdict(Drafts)

    def layout(self, choices: Choices) -> MemoryPlan | None:
        """Return the memory map of choices, by place; None if they do not fit."""
        arranged = self._arranged(choices)
        return arranged and self._layout(arranged)

    def _arranged(self, choices: Choices) -> Arranged | None:
        """Return the problem in the order of choices; None for an order that cannot be."""
        count = len(self.problem.layers)
        order = choices.sequence(count)
        drafts: Mapping[int, Drafts] = self._drafts
        if not choices.order:
            return Arranged(order, self.problem, choices, drafts)
        if order not in self._problems:
            if len(self._problems) >= KEPT_ORDERS:
                self._problems.pop(next(iter(self._problems)))
            try:
                self._problems[order] = self.problem.reordered(order)
            except CompileError:
                return None
        drafts = {place: self._drafts[number] for place, number in enumerate(order)}
        return Arranged(order, self._problems[order], choices.by_place(count), drafts)

    def _layout(self, arranged: Arranged) -> MemoryPlan | None:
        placed = self._placed(arranged)
        if placed is None:
            return None
        try:
            return with_tilings(placed, arranged.choices, self.search)
        except CompileError:
            return None

    def local(self, base: Choices, candidate: Choices, reach: int = 1) -> Local | None:
        """Return the cycles that ``candidate`` saves against ``base``; None if it does not fit, or changes nothing.

        The window begins ``reach`` layers before the first that differs. What costs cycles saves some number below 0:
        how many they are is not worth an estimate to the end."""
        old, new = self._arranged(base), self._arranged(candidate)
        before, after = old and self._layout(old), new and self._layout(new)
        if old is None or new is None or before is None or after is None:
            return None
        differs = [place for place in range(len(self.problem.layers)) if old.order[place] != new.order[place]
                   or _of_layer(before, old.choices, place) != _of_layer(after, new.choices, place)]
        if (before.copy is None) != (after.copy is None):
            differs = [*range(len(self.problem.layers))]
        if not differs:
            return None
        first, end = max(differs[0] - reach, 0), min(differs[-1] + 2, len(self.problem.layers))
        cycles = self._window(old, before, first, end)
        assert cycles is not None
        needed = self._window(new, after, first, end, cycles)
        return Local(-1 if needed is None else cycles - needed, first, end)

    def whole(self, choices: Choices, most: int | None = None) -> Whole | None:
        """Return the cycles of all layers; None if they do not fit, or certainly take more than ``most``."""
        arranged, problem = self._arranged(choices), self.problem
        layout = arranged and self._layout(arranged)
        if arranged is None or layout is None:
            return None
        code, found = self._estimated(arranged, layout, 0, len(problem.layers), most)
        if found is None:
            return None
        layers = code.layers[found.program.work["instruction"]]
        where = analyse(found.program, found.operations, found.cycles, layers, problem.arch)
        lost = np.zeros(len(problem.layers), np.int64)
        lost[:len(where.waits)] = where.waits.sum(1)
        spent = lost.copy()
        spent[:len(where.vectors)] += where.vectors
        at = list(places(arranged.order))
        return Whole(found.cycles, tuple(lost[at].tolist()), tuple(spent[at].tolist()))

    def _placed(self, arranged: Arranged) -> MemoryPlan | None:
        """Return the memory map of choices but for their tilings."""
        problem = arranged.problem
        choices = replace(arranged.choices, tilings={}, paces={}, fetch_paces={}, fetch_pace=None)
        key = choices.key
        if key not in self._places:
            if len(self._places) >= KEPT_PLACES:
                self._places.pop(next(iter(self._places)))
            try:
                self._places[key] = plan_memory(problem.lives, problem.layers, problem.consts, problem.arch, choices,
                                                self.search)
            except CompileError:
                self._places[key] = None
        return self._places[key]

    def _window(self, arranged: Arranged, layout: MemoryPlan, first: int, end: int,
                most: int | None = None) -> int | None:
        """Return the cycles of the layers at some places alone; None if they surely take more than ``most``."""
        key = first, end, arranged.order, *_of_window(layout, arranged.choices, first, end)
        if key not in self._cycles:
            if most is not None and self._more.get(key, -1) >= most:
                return None
            _, found = self._estimated(arranged, layout, first, end, most)
            if found is None:
                assert most is not None
                self._more[key] = most
                return None
            self._cycles[key] = found.cycles
        return self._cycles[key]

    def _scheduled(self, arranged: Arranged, layout: MemoryPlan, first: int, end: int) -> Schedule:
        """Return the operations of some layers alone before they are put in order, which does not depend on paces."""
        key = first, end, arranged.order, *_of_window(layout, FORMULA, first, end)
        found = self._plain.pop(key, None)
        if found is None:
            problem = arranged.problem
            found = schedule_layers(problem.numbers, layout, problem.arch, first, end, drafts=arranged.drafts)
        self._plain[key] = found  # the newest is the last
        if len(self._plain) > KEPT_SCHEDULES:
            del self._plain[next(iter(self._plain))]
        return found

    def _estimated(self, arranged: Arranged, layout: MemoryPlan, first: int, end: int,
                   most: int | None) -> tuple[MachineCode, Estimate | None]:
        """Return the program of some layers alone, and its estimate; None for more than ``most`` cycles."""
        problem = self.problem
        ordered = interleaved(self._scheduled(arranged, layout, first, end), problem.arch, arranged.choices)
        code = machine_code(ordered.table, ordered.layers, problem.arch)
        return code, estimate_within(code.content, problem.arch, most, problem.dram, origin=apart(problem.arch),
                                     alone=True)  # of several cores each has an image of its own


def _of_window(layout: MemoryPlan, choices: Choices, first: int, end: int) -> tuple[Hashable, ...]:
    """Return all that decides what the program of some layers is."""
    local = tuple(place for place in layout.local.values() if place.meets(first, end - 1))
    homes = tuple(layout.homes.get(var.root) for shape in layout.shapes[first:end]
                  for var in (*shape.layer.inputs, *shape.layer.outputs))
    return layout.copy, local, homes, tuple(_of_layer(layout, choices, number) for number in range(first, end))


def _of_layer(layout: MemoryPlan, choices: Choices, number: int) -> Hashable:
    """Return all that decides how a layer runs: its tiling, with which others, where its tensors are, its pace."""
    shape = layout.shapes[number]
    fetch = choices.fetch_paces.get(number, choices.fetch_pace)
    return (shape.streams, layout.plans[number].tiling, layout.stripes.get(number), layout.beside.get(number),
            choices.paces.get(number), fetch)


# -- in a process of its own -------------------------------------------------------------------------------------------
_JUDGES: list[Judge] = []


def begin(problems: Sequence[Problem]) -> None:
    """Make a judge for each of ``problems`` in this process, for :func:`local` and :func:`whole`."""
    _JUDGES[:] = map(Judge, problems)


def local(part: int, reach: int, base: Choices, candidate: Choices) -> Local | None:
    """Return what :meth:`Judge.local` returns for the problem with the index ``part``."""
    return _JUDGES[part].local(base, candidate, reach)


def whole(part: int, choices: Choices, most: int | None = None) -> Whole | None:
    """Return what :meth:`Judge.whole` returns for the problem with the index ``part``."""
    return _JUDGES[part].whole(choices, most)
