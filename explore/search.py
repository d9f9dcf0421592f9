# SPDX-License-Identifier: Apache-2.0
"""The search: every machine is measured, or ruled out with certainty.

So its front is exact, and the same whatever order and however many workers measure. A machine is ruled out if the chip
is too small, if a network does not run on it, or if another one that costs no more is certainly as fast. For a
network's cycles are never less than the vectors that the array has to take. Machines come in the order of their cost,
so each has to beat the fastest of those before."""

from __future__ import annotations

import bisect
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.explore import measure
from weft.explore.measure import Network, Refused
from weft.explore.results import CYCLES, LEAST, Results
from weft.explore.space import FREE_OF_CONSTANTS, FREE_OF_PROGRAM, Point, digest, without
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import DramModel, IdealDram

FIT, REFUSED, BOUNDED, ESTIMATED = "too large", "refused", "bounded", "estimated"
"""The results for a machine."""
PROGRAM = "program"

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Found:
    """A machine of the front: cycles of each network, in their order, and of all."""

    point: Point
    each: tuple[int, ...]

    @property
    def cycles(self) -> int:
        """The cycles of all networks together."""
        return sum(self.each)


@dataclass(frozen=True)
class Outcome:
    """The result of a search.

    ``front``: from the cheapest to the fastest; ``counts``: number of machines by result; ``refusals``: texts, with how
    often; ``found_before``: results that were in the file."""

    front: tuple[Found, ...]
    counts: dict[str, int]
    refusals: dict[str, int]
    found_before: int


class Keys(NamedTuple):
    """The digests of a machine that identify its constants, its programs and its cycles.

    Machines that share them have the same digest."""

    constants: str
    program: str
    cycles: str


class Search:
    """One search; ``dram``: the memory of every machine. :meth:`run` ends when every point is decided."""

    def __init__(self, networks: Sequence[Network], points: Sequence[Point], executor: Executor, workers: int,
                 results: Results, dram: DramModel, tell: Tell = lambda stage, done, total: None) -> None:
        self.networks, self.points, self.results = networks, points, results
        self.executor, self.workers, self.dram, self.tell = executor, workers, dram, tell
        self.states = {point.index: FIT for point in points if point.short}
        self.refusals: Counter[str] = Counter()
        self._keys = {point.index: _keys(point.arch, dram) for point in points if not point.short}
        self._programs: dict[tuple[str, str], list[bytes]] = {}
        self._fastest: list[tuple[float, int]] = []
        self._measured: list[Found] = []
        self._running: dict[Future[Any], Callable[[Any], None]] = {}
        self._asked: set[tuple[str, ...]] = set()

    def run(self) -> Outcome:
        """Run the search. Raise WeftError if a worker cannot read a model, or the results cannot be written."""
        waiting = sorted((point for point in self.points if not point.short), key=lambda point: point.rank)
        try:
            while waiting:
                waiting = self._pass(waiting)
                self.tell("looking at machines", len(self.states), len(self.points))
                if self._running:
                    done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._running.pop(future)(future.result())
        finally:
            for future in self._running:
                future.cancel()
        counts = Counter(self.states.values())
        return Outcome(self._front(), {name: counts[name] for name in (FIT, REFUSED, BOUNDED, ESTIMATED)},
                       dict(self.refusals), self.results.found_before)

    def _pass(self, waiting: list[Point]) -> list[Point]:
        """Return the machines that are not decided yet; the first of them keep all workers busy."""
        left: list[Point] = []
        for number, point in enumerate(waiting):
            if len(self._running) > self.workers:
                return left + waiting[number:]
            if not self._decide(point):
                left.append(point)
        return left

    # -- one machine ---------------------------------------------------------------------------------------------------
    def _decide(self, point: Point) -> bool:
        """Tell whether a machine is decided; if not, ask for what it needs next."""
        known = [self._known(network, point) for network in self.networks]
        for text in known:
            if isinstance(text, str):
                self.refusals[text] += 1
                return self._end(point, REFUSED)
        least = [number for number in known if isinstance(number, int)]
        if len(least) < len(known):
            return False
        most = self._to_beat(point)
        if most is not None and sum(least) > most:
            return self._end(point, BOUNDED)
        keys = self._keys[point.index]
        missing = [network for network in self.networks if self._get(CYCLES, network, keys.cycles) is None]
        if not missing:
            self._enter(Found(point, tuple(least)))
            return self._end(point, ESTIMATED)
        allowed = None if most is None else most - sum(least) + least[self.networks.index(missing[0])]
        self._measure(missing[0], point, keys, allowed)
        return False

    def _known(self, network: Network, point: Point) -> int | str | None:
        """Return a network's cycles, or a lower limit, the text of a refusal, or None if nothing is known yet."""
        keys = self._keys[point.index]
        for what, key in ((CYCLES, keys.cycles), (LEAST, keys.cycles), (LEAST, keys.program), (LEAST, keys.constants)):
            found = self._get(what, network, key)
            if found is not None:
                return found
        self._ask(LEAST, network, keys.constants, measure.least_cycles, network, point.arch)
        return None

    def _measure(self, network: Network, point: Point, keys: Keys, most: int | None) -> None:
        """Ask for the program, or for its cycles up to ``most``."""
        made = self._programs.get((network.key, keys.program))
        if made is None:
            self._ask(PROGRAM, network, keys.program, measure.programs, network, point.arch)
        else:
            self._ask(CYCLES, network, keys.cycles, measure.cycles, made, point.arch, self.dram, most, most=most)

    def _get(self, what: str, network: Network, key: str) -> int | str | None:
        """Return a known result, or None."""
        return self.results.get((what, network.key, key))

    def _ask(self, what: str, network: Network, key: str, task: Callable[..., Any], *given: Any,
             most: int | None = None) -> None:
        """Submit a task once; its answer is noted when it is there."""
        asked = what, network.key, key
        if asked in self._asked:
            return
        self._asked.add(asked)

        def arrived(made: Any) -> None:
            self._asked.discard(asked)
            if isinstance(made, Refused):
                self.results.add((LEAST, network.key, key), made.why)
            elif what == PROGRAM:
                self._programs[network.key, key] = made
            elif made is None and most is not None:
                self.results.add((LEAST, network.key, key), most + 1)
            else:
                self.results.add(asked, made)

        self._running[self.executor.submit(task, *given)] = arrived

    # -- the front -----------------------------------------------------------------------------------------------------
    def _end(self, point: Point, state: str) -> bool:
        """Record the result for a machine. Return True, so that a caller may return this call's value."""
        self.states[point.index] = state
        return True

    def _to_beat(self, point: Point) -> int | None:
        """Return the cycles of the fastest machine measured that costs no more, or None."""
        place = bisect.bisect_right(self._fastest, (point.share, sys.maxsize))
        return self._fastest[place - 1][1] if place else None

    def _enter(self, found: Found) -> None:
        """Add a measured machine to those that others have to beat."""
        self._measured.append(found)
        most = self._to_beat(found.point)
        if most is None or found.cycles < most:
            kept = [entry for entry in self._fastest if entry[0] < found.point.share or entry[1] < found.cycles]
            self._fastest = sorted([*kept, (found.point.share, found.cycles)])

    def _front(self) -> tuple[Found, ...]:
        """Return the front: each machine is faster than all cheaper ones; of equals it has the first."""
        kept: list[Found] = []
        for found in sorted(self._measured, key=lambda found: (found.point.share, found.cycles, found.point.rank)):
            if not kept or found.cycles < kept[-1].cycles:
                kept.append(found)
        return tuple(kept)


def _keys(arch: Arch, dram: DramModel) -> Keys:
    """Return the digests of a machine with its memory."""
    plain = isinstance(dram, IdealDram) and dram == IdealDram(dram.read_latency, dram.read_latency)
    memory = str(dram.read_latency) if plain else hashlib.sha256(repr(dram).encode()).hexdigest()
    return Keys(digest(without(arch, FREE_OF_CONSTANTS)), digest(without(arch, FREE_OF_PROGRAM)),
                f"{digest(arch.replace(sampler=0))}-{memory}")
