"""A layer's buffers in local memory: what each step needs, kept while a later step needs it again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from weft.compiler.scheduler.pool import Buffer, Pool


class Key(NamedTuple):
    """What a buffer holds."""

    kind: str
    content: Hashable


class Buffers:
    """Buffers by key. What is kept can always be loaded again, so it gives way where memory is short."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held: dict[Key, Buffer] = {}

    def claim(self, sizes: Mapping[Key, int]) -> tuple[dict[Key, int], set[Key]]:
        """Bases of all that a step needs at once, and which of it must be filled. It fits, if need be in one piece."""
        fresh = self._take(sizes)
        if fresh is None:
            self._drop([key for key in self._held if key not in sizes])
            fresh = self._take(sizes)
        if fresh is None:
            self._drop([*self._held])
            base = self._pool.largest().base
            for key, size in sizes.items():
                self._held[key] = Buffer(base, size)
                self._pool.hold(self._held[key])
                base += size
            fresh = set(sizes)
        return {key: self._held[key].base for key in sizes}, fresh

    def _take(self, sizes: Mapping[Key, int]) -> set[Key] | None:
        """What was not held yet, now is; or nothing is changed, and None."""
        taken: dict[Key, Buffer] = {}
        for key in [key for key in sizes if key not in self._held]:
            buffer = self._pool.take(sizes[key])
            if buffer is None:
                for entry in taken.values():
                    self._pool.release(entry)
                return None
            taken[key] = buffer
        self._held |= taken
        return set(taken)

    def _drop(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._pool.release(self._held.pop(key))

    def release(self, key: Key) -> None:
        """No later step needs it, or not soon enough to keep it."""
        self._drop([key])


def kept(keys: Sequence[Hashable], count: int) -> list[bool]:
    """Whether each use's content is still there at its next use, in ``count`` buffers that are used in turn: the one
    unused for longest is taken for a new content."""
    found = [False] * len(keys)
    recent: dict[Hashable, int] = {}  # content -> its latest use, the longest unused first
    for number, key in enumerate(keys):
        if key in recent:
            found[recent.pop(key)] = True
        elif len(recent) == count:
            del recent[next(iter(recent))]
        recent[key] = number
    return found
