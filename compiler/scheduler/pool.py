# SPDX-License-Identifier: Apache-2.0
"""The free vectors of one memory. The least recently freed ones are handed out first, so loads rarely wait."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import NamedTuple


class Buffer(NamedTuple):
    """A buffer: ``size`` vectors from address ``base`` on."""

    base: int
    size: int


@dataclass(slots=True)
class _Segment:
    """Vectors that were given back together; ``released`` is the time of that, None while they are in use."""

    base: int
    size: int
    released: int | None


class Pool:
    """The ``depth`` vectors of a memory from ``base`` on, of which some are free.

    The least recently freed ones are handed out first. So buffers go round the whole memory, and a load rarely waits
    for the last user of its place."""

    def __init__(self, depth: int, base: int = 0) -> None:
        self.base = base
        self._segments = [_Segment(base, depth, 0)]
        self._now = 0

    def take(self, size: int) -> Buffer | None:
        """Take ``size`` free vectors in a row, or return None if there are not so many. An empty buffer lies at 0."""
        if not size:
            return Buffer(0, 0)
        base, best = None, self._now + 1
        for first, segment in enumerate(self._segments):
            if segment.released is None or segment.released >= best:
                continue
            latest = self._latest(first, size, best)
            if latest < best:
                base, best = segment.base, latest
        if base is None:
            return None
        self.hold(Buffer(base, size))
        return Buffer(base, size)

    def _latest(self, first: int, size: int, bound: int) -> int:
        """Return when the last of ``size`` vectors was freed, counted from the segment ``first`` on.

        Return ``bound`` if that is not earlier than ``bound``, if one of them is in use, or if the memory ends
        before."""
        latest = 0
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if segment.released is None or segment.released >= bound:
                return bound
            latest, size = max(latest, segment.released), size - segment.size
            if size <= 0:
                return latest
        return bound

    def largest(self) -> Buffer:
        """Return the longest run of free vectors, of size 0 if none is free."""
        best, run = Buffer(0, 0), Buffer(0, 0)
        for segment in self._segments:
            run = Buffer(run.base, run.size + segment.size) if segment.released is not None else Buffer(
                segment.base + segment.size, 0)
            best = max(best, run, key=lambda buffer: buffer.size)
        return best

    def hold(self, buffer: Buffer) -> None:
        """Take exactly the vectors of ``buffer``, which must be free."""
        self._mark(buffer, None)

    def release(self, buffer: Buffer) -> None:
        """Give back the vectors of ``buffer``."""
        self._now += 1
        self._mark(buffer, self._now)

    def _mark(self, buffer: Buffer, released: int | None) -> None:
        """Set the time ``released`` for a buffer's vectors, splitting segments at its ends."""
        if not buffer.size:
            return
        end = buffer.base + buffer.size
        low = bisect.bisect_right(self._segments, buffer.base, key=_base) - 1
        high = bisect.bisect_left(self._segments, end, key=_base)
        first, last = self._segments[low], self._segments[high - 1]
        marked = [_Segment(buffer.base, buffer.size, released)]
        if first.base < buffer.base:
            marked.insert(0, _Segment(first.base, buffer.base - first.base, first.released))
        if last.base + last.size > end:
            marked.append(_Segment(end, last.base + last.size - end, last.released))
        self._segments[low:high] = marked


def _base(segment: _Segment) -> int:
    """Return a segment's base, as a sorting key."""
    return segment.base
