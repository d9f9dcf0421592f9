# SPDX-License-Identifier: Apache-2.0
"""The order that Signals of several cores make, found before they run.

Programs do not branch, and only a core's own waits take from its counters. So how far all cores come does not depend on
who runs first, and one run of the Signals alone decides it. Each Signal then has a clock: how many Signals of each core
come before it for sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import COUNT_WIDTH
from weft.support.errors import WeftError, explain

MOST_SIGNALS = 1 << 19
"""The most Signals of all programs together; each takes some ten us."""
MOST_COUNT = (1 << COUNT_WIDTH) - 1


class SignalError(WeftError):
    """The error for programs whose Signals leave a core waiting, or do not say which post fills which wait."""

    def __init__(self, found: str, allowed: str, way_out: str) -> None:
        super().__init__(explain("programs of several cores", found, allowed, way_out))


@dataclass
class _Counter:
    """The history of a core's counter: posts (core, number of its Signal) in the order of the run, and waits.

    ``waits``: number of the Signal, and how many posts all waits take up to it."""

    posts: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    taken: int = 0


class SignalOrder:
    """The order of Signals; ``signals``: for each core ``legality.SIGNAL`` of its legal program.

    ``clocks`` [core][Signals, cores]: how many Signals of each core come before a Signal, itself included, in every
    order in which the cores may run. ``places`` [core][Signals]: its place in one such order. Raise SignalError if a
    wait is never filled or could be filled by different posts, if a counter could overflow, or is not 0 at the end."""

    def __init__(self, signals: Sequence[np.ndarray], arch: Arch) -> None:
        count = sum(map(len, signals))
        if count > MOST_SIGNALS:
            raise SignalError(f"{count} Signals", f"at most {MOST_SIGNALS}",
                              "post and wait less often, for larger pieces of work")
        self._signals, self._cores = signals, arch.cores
        self._counters = [[_Counter() for _ in range(arch.sync_counters)] for _ in range(arch.cores)]
        self.clocks = [np.zeros((len(each), arch.cores), np.int32) for each in signals]
        self.places = [np.zeros(len(each), np.int64) for each in signals]
        self._at = [0] * len(signals)
        self._run()
        for core, counters in enumerate(self._counters):
            for number, counter in enumerate(counters):
                self._check(core, number, counter)

    # -- one run ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        """Run the Signals of all cores, each core as far as it comes in turn."""
        rows = [each[["waits", "counter", "above"]].tolist() for each in self._signals]
        place, before = 0, -1
        while place > before:
            before = place
            for core, own in enumerate(rows):
                while self._at[core] < len(own) and self._step(core, *own[self._at[core]]):
                    self.places[core][self._at[core]] = place
                    self._at[core] += 1
                    place += 1
        if place < sum(map(len, rows)):
            raise self._stuck()

    def _step(self, core: int, waits: int, counter: int, above: int) -> bool:
        """Run the next Signal of a core; tell whether it does not have to wait."""
        at = self._at[core]
        clock = self.clocks[core][at]
        if waits:
            own = self._counters[core][counter]
            if own.taken + above > len(own.posts):
                return False
            for poster, number in own.posts[own.taken:own.taken + above]:
                np.maximum(clock, self.clocks[poster][number], out=clock)
            own.taken += above
            own.waits.append((at, own.taken))
        else:
            for other in range(self._cores):
                if above >> other & 1:
                    self._counters[other][counter].posts.append((core, at))
        if at:
            np.maximum(clock, self.clocks[core][at - 1], out=clock)
        clock[core] = at + 1
        return True

    # -- what may not be -------------------------------------------------------------------------------------------
    def _stuck(self) -> SignalError:
        """Return the error for cores that wait for ever: what each waits for, and whether they do for each other."""
        blocked = [core for core, own in enumerate(self._signals) if self._at[core] < len(own)]
        told = []
        for core in blocked:
            wait = self._signals[core][self._at[core]]
            counter = self._counters[core][int(wait["counter"])]
            later = [other for other in blocked if self._posts_later(other, core, int(wait["counter"]))]
            who = (f"core {' and core '.join(map(str, later))} would post, behind a wait" if later
                   else "no core posts more")
            told.append(f"core {core}, instruction {int(wait['instruction'])}, which waits for {int(wait['above'])} in "
                        f"counter {int(wait['counter'])}, that gets {len(counter.posts) - counter.taken} ({who})")
        return SignalError("a wait that no post fills: " + "; ".join(told),
                           "waits that posts of other cores fill, without a cycle",
                           "post to the counter, from a core that does not wait for this one first")

    def _posts_later(self, poster: int, core: int, counter: int) -> bool:
        """Tell whether ``poster``, which is stuck, has a later post to a ``counter`` of ``core``."""
        left = self._signals[poster][self._at[poster]:]
        return bool(((left["waits"] == 0) & (left["counter"] == counter) & (left["above"] >> core & 1 == 1)).any())

    def _check(self, core: int, number: int, counter: _Counter) -> None:
        """Raise SignalError if the posts of a counter of a core could fill its waits in two ways, or overfill it."""
        by_core: dict[int, list[tuple[int, int]]] = {}
        for place, (poster, signal) in enumerate(counter.posts):
            by_core.setdefault(poster, []).append((place, signal))
        posts = {poster: np.array(own).T for poster, own in by_core.items()}
        before = 0
        for wait, taken in counter.waits:
            if taken > before:
                self._check_one_way(core, number, wait, taken, posts)
            reach = sum(int(np.searchsorted(self.clocks[poster][own[1], core], wait + 1))
                        for poster, own in posts.items())
            if reach - before > MOST_COUNT:
                raise self._overflow(core, number, reach - before, f"before the wait at {self._name(core, wait)}")
            before = taken
        left = len(counter.posts) - before
        if left:
            poster, signal = counter.posts[-1]
            raise SignalError(f"{left} posts to counter {number} of core {core} that no wait takes, the last of them "
                              f"by {self._name(poster, signal)}", "as many posts as waits take: each counter ends at 0",
                              "add a wait, or leave the posts out")

    def _check_one_way(self, core: int, number: int, wait: int, taken: int, posts: dict[int, np.ndarray]) -> None:
        """Raise SignalError if the first ``taken`` posts to a counter do not all come before each further one.

        Else another post could come first and fill the wait. It is enough to look at the last of the first and the
        first of the further ones of each core."""
        firsts = {poster: int(np.searchsorted(own[0], taken)) for poster, own in posts.items()}
        for poster, count in firsts.items():
            if not count:
                continue
            last = int(posts[poster][1, count - 1])
            for other, begin in firsts.items():
                if begin == posts[other].shape[1]:
                    continue
                further = int(posts[other][1, begin])
                if self.clocks[other][further, poster] <= last:
                    raise SignalError(
                        f"a wait that could be filled in two ways, {self._name(core, wait)}, counter {number}: by the "
                        f"post of {self._name(poster, last)}, or sooner by that of {self._name(other, further)}",
                        "posts to a counter in an order that the programs fix", "give each posting core a counter")

    def _overflow(self, core: int, number: int, count: int, where: str) -> SignalError:
        """Return the error for a counter that could hold too much."""
        return SignalError(f"{count} posts that could stand in counter {number} of core {core}, {where}",
                           f"at most {MOST_COUNT} that no wait has taken", "let the posting core wait now and then")

    def _name(self, core: int, signal: int) -> str:
        """Return the text for a Signal of a core."""
        return f"core {core}, instruction {int(self._signals[core][signal]['instruction'])}"
