# SPDX-License-Identifier: Apache-2.0
"""The free vectors of one memory. The least recently freed ones are handed out first, so loads rarely wait."""

from __future__ import annotations

import bisect
import itertools
from typing import NamedTuple


class Buffer(NamedTuple):
    """A buffer: ``size`` vectors from address ``base`` on."""

    base: int
    size: int


IN_USE = 1 << 62
"""The time at which vectors were freed that are in use: after all others."""


class Pool:
    """The ``depth`` vectors of a memory from ``base`` on, of which some are free.

    The least recently freed ones are handed out first. So buffers go round the whole memory, and a load rarely waits
    for the last user of its place.

    The memory is cut into segments that were taken or freed together. ``_bases`` has where they begin and, at its end,
    where the memory ends; ``_freed`` has when each was freed, and IN_USE at its end."""

    def __init__(self, depth: int, base: int = 0) -> None:
        self.base = base
        self._bases, self._freed = [base, base + depth], [0, IN_USE]
        self._now = 0

    def take(self, size: int) -> Buffer | None:
        """Take ``size`` free vectors in a row, or return None if there are not so many. An empty buffer lies at 0."""
        if not size:
            return Buffer(0, 0)
        base, best = None, self._now + 1
        bases, freed = self._bases, self._freed
        for first, latest in enumerate(freed):
            if latest >= best:
                continue
            end, index = bases[first] + size, first + 1
            while bases[index] < end:
                other = freed[index]
                if other >= best:  # in use, or no earlier than the best place
                    break
                latest, index = max(latest, other), index + 1
            else:
                base, best = bases[first], latest
        if base is None:
            return None
        self.hold(Buffer(base, size))
        return Buffer(base, size)

    def largest(self) -> Buffer:
        """Return the longest run of free vectors, of size 0 if none is free."""
        best = run = Buffer(self.base, 0)
        for (base, end), freed in zip(itertools.pairwise(self._bases), self._freed, strict=False):
            run = Buffer(end, 0) if freed == IN_USE else Buffer(run.base, run.size + end - base)
            best = max(best, run, key=lambda buffer: buffer.size)
        return best

    def hold(self, buffer: Buffer) -> None:
        """Take exactly the vectors of ``buffer``, which must be free."""
        self._mark(buffer, IN_USE)

    def release(self, buffer: Buffer) -> None:
        """Give back the vectors of ``buffer``."""
        self._now += 1
        self._mark(buffer, self._now)

    def _mark(self, buffer: Buffer, freed: int) -> None:
        """Set the time ``freed`` for a buffer's vectors, splitting segments at its ends."""
        if not buffer.size:
            return
        end = buffer.base + buffer.size
        low = bisect.bisect_right(self._bases, buffer.base) - 1
        high = bisect.bisect_left(self._bases, end)
        bases, times = [buffer.base], [freed]
        if self._bases[low] < buffer.base:
            bases, times = [self._bases[low], buffer.base], [self._freed[low], freed]
        if self._bases[high] > end:
            bases.append(end)
            times.append(self._freed[high - 1])
        self._bases[low:high], self._freed[low:high] = bases, times
