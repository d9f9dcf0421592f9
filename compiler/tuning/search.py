# SPDX-License-Identifier: Apache-2.0
"""The search: rounds of moves, judged side by side, of which those that save cycles are kept together.

A round draws ``ROUND`` moves from what is best so far and judges each in its window (``judge.py``). Those that save
most are taken, as many as do not touch each other. Now and then the whole program is estimated with all that was taken
since: what is not faster there is dropped, or the half of it that promised less. So what comes out is never slower than
what the formulas choose. Which moves are drawn depends on the seed alone, not on how many processes judge them.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from weft.compiler.choices import FORMULA, Choices
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.tuning import judge
from weft.compiler.tuning.judge import Judge, Local, Problem, Whole
from weft.compiler.tuning.moves import Neighbours, paces_beside

ROUND = 16
"""Moves that are judged side by side."""

MOST_DRAWS = 40
"""The most draws for a move that was not judged yet; if none comes, pairs of moves are drawn, then dearer tilings."""

MOST_BREADTH = 16
"""The greatest breadth of moves (``moves.py``). Each is twice the one before; where none is left, a climb ends."""

MOST_CLIMBS = 4
"""The most climbs from the formulas' choices. Each begins with twice the breadth of the one before."""

LEAST_WEIGHT = 0.02
"""The weight in the draw of a layer that never waits, as a share of all layers' waits."""

MOST_REACH = 3
"""The most layers by which a window begins before the layers that a move changes. It begins with one."""

UNCHECKED = 2
"""The layers that are judged before the whole program is checked, as a multiple of its layers."""

LEAST_CHECKS = 4
"""The number of checks of the whole program that tell whether windows promise what is not so."""

LEAST_KEPT = 0.5
"""The share of what windows promise that whole programs have to keep, or windows reach farther."""

Progress = Callable[[float, int, int], None]
"""Hears what share of the budget is gone, and cycles of the part that is tuned: by the formulas, and the best."""


@dataclass(frozen=True)
class Budget:
    """One of ``seconds`` and ``steps``, moves that are judged; ``seed`` of what is drawn."""

    seconds: float | None = None
    steps: int | None = None
    seed: int = 0

    def share(self, part: float) -> Budget:
        """Return the budget of a part of the work."""
        return Budget(None if self.seconds is None else self.seconds * part,
                      None if self.steps is None else round(self.steps * part), self.seed)


@dataclass(frozen=True)
class Tuned:
    """``choices`` of a part, and its cycles by the formulas for the memory (``before``) and with these."""

    choices: Choices
    before: Whole
    after: Whole


def tune(problems: Sequence[Problem], budget: Budget, executor: Executor, progress: Progress,
         clock: Callable[[], float] = time.monotonic) -> list[Tuned]:
    """Search for choices for each part of a network; parts get of the budget what they take of its cycles.

    The processes of ``executor`` know ``problems`` (:func:`judge.begin`). ``clock`` counts the budget's seconds."""
    waiting = [executor.submit(judge.whole, part, problem.formula) for part, problem in enumerate(problems)]
    known = [future.result() for future in waiting]
    before = [found for found in known if found is not None]
    total = sum(found.cycles for found in before)
    return [_Search(part, problem, found, executor).run(_Clock(budget.share(found.cycles / total), clock), progress)
            for part, (problem, found) in enumerate(zip(problems, before, strict=True))]


@dataclass
class _Clock:
    """A clock that tells how much of a budget is gone."""

    budget: Budget
    now: Callable[[], float]
    steps: int = 0
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.now()

    def gone(self, reserve: float) -> float:
        """Return the share of it that is gone when ``reserve`` seconds more are."""
        if self.budget.steps is not None:
            return self.steps / max(self.budget.steps, 1)
        assert self.budget.seconds is not None
        return (self.now() - self.began + reserve) / max(self.budget.seconds, 1e-9)


class _Search:
    """The search for one part's choices.

    ``best``: the choices with which the whole program is known to be fastest in this climb, and its ``cycles``;
    ``climbs``: both at the ends of the climbs before. ``taken``: the choices put on top since. ``tried_around``: the
    choices at which no move was left. ``breadth``: that of moves, which grows when none is left. ``reach`` of windows;
    ``promises``: what windows of this reach promised at each check, and what the whole program kept of it."""

    def __init__(self, part: int, problem: Problem, before: Whole, executor: Executor) -> None:
        self.part, self.problem, self.executor = part, problem, executor
        self.judge = Judge(problem)
        self.before = before
        self.climbs: list[tuple[Choices, Whole]] = []
        self.longest_check = 0.0
        self.reach = 1
        self.promises: list[tuple[int, int]] = []
        self._climb()

    def _climb(self) -> None:
        """Begin at the formulas' choices, as if nothing was judged."""
        self.best, self.cycles = self.problem.formula, self.before
        self.taken: list[tuple[int, Choices]] = []
        self.seen: set[str] = set()
        self.queue: deque[Choices] = deque()
        self.tried_around: Choices | None = None
        self.breadth = 2 ** len(self.climbs)
        self.judged_layers = 0

    @property
    def current(self) -> Choices:
        """Return the best choices with all that was taken since."""
        return self.best.plus(*(what for _, what in self.taken))

    def run(self, clock: _Clock, progress: Progress) -> Tuned:
        """Search round after round until the clock's budget is gone."""
        budget, chance = clock.budget, random.Random(clock.budget.seed)
        while clock.gone(self.longest_check if self.taken else 0) < 1:
            progress(clock.gone(0), self.before.cycles, self._fastest[1].cycles)
            most = ROUND if budget.steps is None else min(ROUND, budget.steps - clock.steps)
            base, moves = self.current, list(self._moves(chance, most))
            if not moves and not self.taken:
                self.climbs.append((self.best, self.cycles))
                if len(self.climbs) == MOST_CLIMBS:
                    break
                self._climb()
                continue
            clock.steps += len(moves)
            waiting = [self.executor.submit(judge.local, self.part, self.reach, base, move) for move in moves]
            self._take(base, [(future.result(), move) for future, move in zip(waiting, moves, strict=True)])
            if self.taken and (self.judged_layers >= UNCHECKED * len(self.problem.layers) or not moves):
                self._check(clock)
        if self.taken:
            self._check(clock)
        choices, cycles = self._fastest
        return Tuned(choices, self.before, cycles)

    @property
    def _fastest(self) -> tuple[Choices, Whole]:
        """Return the fastest end of all climbs, the first of equal ones."""
        return min([*self.climbs, (self.best, self.cycles)], key=lambda climb: climb[1].cycles)

    def _moves(self, chance: random.Random, most: int) -> Iterator[Choices]:
        """Yield up to ``most`` moves that were not judged yet."""
        base, layout = self.current, self.judge.layout(self.current)
        assert layout is not None
        floor = 1 + LEAST_WEIGHT * sum(self.cycles.waits)
        neighbours = Neighbours(base, layout, [wait + floor for wait in self.cycles.waits], self.judge.search,
                                self.problem.predecessors, self.breadth)
        if not self.seen:
            self.queue.extend(move.beyond(base) for move in neighbours.openings())
        for _ in range(most):
            move = self._fresh(base, neighbours, chance)
            while move is None and self.breadth < MOST_BREADTH:
                self.breadth *= 2
                neighbours = replace(neighbours, breadth=self.breadth)
                move = self._fresh(base, neighbours, chance)
            if move is None:
                return
            yield move

    def _fresh(self, base: Choices, neighbours: Neighbours, chance: random.Random) -> Choices | None:
        """Return a move that was not judged yet, or else two at once; None if none is left."""
        move = self._unseen(base, neighbours, chance)
        if move is None and self.tried_around != base:  # moves of other choices before: all may come again
            self.tried_around = base
            self.seen.clear()
            move = self._unseen(base, neighbours, chance)
        return move or self._unseen_pair(base, neighbours, chance)

    def _unseen_pair(self, base: Choices, neighbours: Neighbours, chance: random.Random) -> Choices | None:
        """Return two moves at once, of a layer or of one and its neighbour, where none alone is left."""
        for _ in range(MOST_DRAWS):
            number = neighbours.drawn_layer(chance)
            first = neighbours.draw(chance, number)
            layout = None if first is None else self.judge.layout(first)
            if first is None or layout is None:
                continue
            beside = min(max(number + chance.choice((-1, 0, 1)), 0), len(self.problem.layers) - 1)
            drawn = replace(neighbours, choices=first, layout=layout).draw(chance, beside)
            if drawn is not None and self._is_new(base, drawn):
                return drawn
        return None

    def _unseen(self, base: Choices, neighbours: Neighbours, chance: random.Random) -> Choices | None:
        while self.queue:
            move = base.plus(self.queue.popleft())
            if self._is_new(base, move):
                return move
        for _ in range(MOST_DRAWS):
            drawn = neighbours.draw(chance, neighbours.drawn_layer(chance))
            if drawn is not None and self._is_new(base, drawn):
                return drawn
        return None

    def _is_new(self, base: Choices, move: Choices) -> bool:
        key = move.beyond(base).key
        known = key in self.seen or move.key == base.key
        self.seen.add(key)
        return not known

    def _take(self, base: Choices, judged: Sequence[tuple[Local | None, Choices]]) -> None:
        """Take the moves that save most and do not touch each other; queue the same for layers of the same form."""
        good = sorted(((found, move) for found, move in judged if found is not None and found.saved > 0),
                      key=lambda entry: -entry[0].saved)
        self.judged_layers += sum(found.end - found.first for found, _ in judged if found is not None)
        windows: list[Local] = []
        layout = self.judge.layout(base)
        assert layout is not None
        for found, move in good:
            if all(found.end <= other.first or other.end <= found.first for other in windows):
                windows.append(found)
                what = move.beyond(base)
                self.taken.append((found.saved, what))
                self.queue.extend(alike(what, layout, base.sequence(len(self.problem.layers))))
                self.queue.extend(paces_beside(what))

    def _check(self, clock: _Clock) -> None:
        """Estimate the whole program with all that was taken, and with the half that promised most."""
        began, before = clock.now(), self.cycles.cycles
        order = sorted(self.taken, key=lambda entry: -entry[0])
        tries = [order, order[:len(order) // 2]] if len(order) > 1 else [order]
        choices = [self.best.plus(*(what for _, what in each)) for each in tries]
        waiting = [self.executor.submit(judge.whole, self.part, each, self.cycles.cycles) for each in choices]
        for future, each in zip(waiting, choices, strict=True):
            found = future.result()
            if found is not None and found.cycles < self.cycles.cycles:
                self.best, self.cycles = each, found
        self._weigh(sum(saved for saved, _ in self.taken), before - self.cycles.cycles)
        self.taken, self.judged_layers = [], 0
        self.longest_check = max(self.longest_check, clock.now() - began)

    def _weigh(self, promised: int, kept: int) -> None:
        """Let windows reach farther if the whole program keeps too little of what they promise."""
        self.promises.append((promised, kept))
        if len(self.promises) >= LEAST_CHECKS and self.reach < MOST_REACH:
            promises, keeps = (sum(each) for each in zip(*self.promises, strict=True))
            if keeps < LEAST_KEPT * promises:
                self.reach, self.promises = self.reach + 1, []


def alike(move: Choices, layout: MemoryPlan, order: Sequence[int]) -> Iterator[Choices]:
    """Yield moves that give a move's tilings to other layers of the same form, which run in ``order``."""
    for number, tiling in move.tilings.items():
        form = layout.shapes[order.index(number)].form
        for place, each in enumerate(layout.shapes):
            if order[place] != number and each.form == form and layout.plans[place].tiling != tiling:
                yield replace(FORMULA, tilings={order[place]: tiling})
