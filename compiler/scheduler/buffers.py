"""A layer's buffers in local memory: what each step needs, kept while a later step needs it again."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from weft.compiler.scheduler.pool import Buffer, Pool


class Key(NamedTuple):
    """What a buffer holds."""

    kind: str
    content: Hashable


FAR_SMALLER = 4
"""Times that a buffer is larger than what is loaded again for its sake."""


class Buffers:
    """Buffers by key. What is kept can always be loaded again, so it gives way where memory is short. With room for
    ``two`` of each, a step's buffers should not lie where the step before had its own: loads would wait for that.
    Nothing is ever loaded into buffers of the kinds ``made``."""

    def __init__(self, pool: Pool, two: bool, made: Collection[str] = ()) -> None:
        self._pool = pool
        self._held: dict[Key, Buffer] = {}
        self._two, self._made = two, made
        self._given_back: list[Buffer] = []  # since the last claim

    def claim(self, sizes: Mapping[Key, int]) -> tuple[dict[Key, int], set[Key]]:
        """Buffers of these sizes (vectors) for one step: their bases, and the keys whose content must be loaded.

        What earlier steps left is kept if there is room for both, else it gives way. So it does where small buffers
        that are kept lie so that a large one finds no place but that of the step before. The sizes together always fit
        into the empty pool in one piece.
        """
        fresh = self._take(sizes)
        if fresh is None:
            self._drop([key for key in self._held if key not in sizes])
            fresh = self._take(sizes)
        if fresh is None:
            fresh = self._in_one_piece(sizes, Buffer(0, 0))
        elif self._two and self._waits(fresh):
            fresh = self._in_one_piece(sizes, max(self._given_back, key=lambda buffer: buffer.size))
        self._given_back = []
        return {key: self._held[key].base for key in sizes}, fresh

    def _in_one_piece(self, sizes: Mapping[Key, int], beside: Buffer) -> set[Key]:
        """All of them anew, behind each other, and apart from the free vectors ``beside`` if there is room."""
        self._drop([*self._held])
        vectors = sum(sizes.values())
        self._pool.hold(beside)
        piece = self._pool.largest()
        self._pool.release(beside)
        base = piece.base if piece.size >= vectors else self._pool.largest().base
        for key, size in sizes.items():
            self._held[key] = Buffer(base, size)
            self._pool.hold(self._held[key])
            base += size
        return set(sizes)

    def _take(self, sizes: Mapping[Key, int]) -> set[Key] | None:
        """Take buffers for the keys that are not held yet, and return these keys. Without room: None, and no change."""
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

    def _waits(self, fresh: set[Key]) -> bool:
        """Whether the largest of these buffers lies where one was that the step before gave back, for the sake of far
        smaller ones whose content is kept."""
        # In the order of the buffers: a set's own is another one in each process, and of equal ones the first counts.
        loaded = (buffer for key, buffer in self._held.items() if key in fresh)
        largest = max(loaded, key=lambda buffer: buffer.size, default=Buffer(0, 0))
        stay = [key for key in self._held if key not in fresh]
        again = sum(self._held[key].size for key in stay if key.kind not in self._made)
        return bool(stay) and FAR_SMALLER * again <= largest.size and any(
            before.base < largest.base + largest.size and largest.base < before.base + before.size
            for before in self._given_back)

    def _drop(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._pool.release(self._held.pop(key))

    def release(self, key: Key) -> None:
        """Give a buffer back: no later step needs its content, or not soon enough to keep it."""
        self._given_back.append(self._held[key])
        self._drop([key])


def kept(keys: Sequence[Hashable], count: int) -> list[bool]:
    """For each use in ``keys``: whether its content is still in a buffer at the next use of that content. There are
    ``count`` buffers, and a new content takes the one that was unused for longest."""
    found = [False] * len(keys)
    recent: dict[Hashable, int] = {}  # content -> its latest use, the longest unused first
    for number, key in enumerate(keys):
        if key in recent:
            found[recent.pop(key)] = True
        elif len(recent) == count:
            del recent[next(iter(recent))]
        recent[key] = number
    return found
