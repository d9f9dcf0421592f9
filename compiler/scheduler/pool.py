"""One memory's free vectors, handed out so that each waits as little as possible for who used them last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Buffer(NamedTuple):
    """``size`` vectors from ``base``."""

    base: int
    size: int


@dataclass(slots=True)
class _Segment:
    """Vectors that were given back together; ``released`` counts up, None while they are held."""

    base: int
    size: int
    released: int | None


class Pool:
    """Vectors 0..``depth`` - 1. What was given back longest ago is handed out first, so that buffers follow each other
    round the whole memory and a load finds its place long out of use."""

    def __init__(self, depth: int) -> None:
        self._segments = [_Segment(0, depth, 0)]
        self._now = 0

    def take(self, size: int) -> Buffer | None:
        """``size`` vectors in a row; None when there are none. An empty buffer lies anywhere."""
        if not size:
            return Buffer(0, 0)
        found = min(((self._latest(first, size), first) for first in range(len(self._segments))),
                    default=(None, 0), key=lambda entry: (entry[0] is None, entry))
        if found[0] is None:
            return None
        buffer = Buffer(self._segments[found[1]].base, size)
        self.hold(buffer)
        return buffer

    def _latest(self, first: int, size: int) -> int | None:
        """When the last of ``size`` vectors from a segment on was given back, None if some are held or missing."""
        latest = 0
        for segment in self._segments[first:]:
            if segment.released is None:
                return None
            latest, size = max(latest, segment.released), size - segment.size
            if size <= 0:
                return latest
        return None

    def largest(self) -> Buffer:
        """The most free vectors in a row."""
        best, run = Buffer(0, 0), Buffer(0, 0)
        for segment in self._segments:
            run = Buffer(run.base, run.size + segment.size) if segment.released is not None else Buffer(
                segment.base + segment.size, 0)
            best = max(best, run, key=lambda buffer: buffer.size)
        return best

    def hold(self, buffer: Buffer) -> None:
        """Take just these vectors, which are free."""
        self._mark(buffer, None)

    def release(self, buffer: Buffer) -> None:
        """Give back what was taken."""
        self._now += 1
        self._mark(buffer, self._now)

    def _mark(self, buffer: Buffer, released: int | None) -> None:
        if not buffer.size:
            return
        end = buffer.base + buffer.size
        kept: list[_Segment] = []
        for segment in self._segments:
            last = segment.base + segment.size
            if segment.base < buffer.base:
                kept.append(_Segment(segment.base, min(last, buffer.base) - segment.base, segment.released))
            if segment.base <= buffer.base < last:
                kept.append(_Segment(buffer.base, buffer.size, released))
            if last > end:
                first = max(segment.base, end)
                kept.append(_Segment(first, last - first, segment.released))
        self._segments = kept
