# SPDX-License-Identifier: Apache-2.0
"""A layer's buffers in local memory: what each step needs, retained while a later step needs it again."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from weft.compiler.scheduler.pool import Buffer, Pool


class Key(NamedTuple):
    """A buffer's content: its kind, and a hashable value that identifies it."""

    kind: str
    content: Hashable


FAR_SMALLER = 4
"""The ratio of a new buffer's size to the retained buffers' from which these are loaded again instead."""


class Buffers:
    """The buffers of a layer by key.

    Content that is retained can always be loaded again, so it gives way if memory is short. With ``two`` (double
    buffering) a step's buffers should not lie where the step before had its own, as loads would wait for that. Buffers
    of the kinds ``made`` are computed, never loaded."""

    def __init__(self, pool: Pool, two: bool, made: Collection[str] = ()) -> None:
        self._pool = pool
        self._held: dict[Key, Buffer] = {}
        self._two, self._made = two, made
        self._given_back: list[Buffer] = []  # since the last claim

    def claim(self, sizes: Mapping[Key, int]) -> tuple[dict[Key, int], set[Key]]:
        """Return the base of each buffer for one step, and the keys whose content must be loaded.

        ``sizes`` in vectors. Content of earlier steps is retained if there is room for both. It also gives way if small
        retained buffers leave a large one no place except that of the step before. All ``sizes`` together always fit
        into the empty pool in one piece."""
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
        """Place all buffers anew, contiguously and apart from ``beside`` if there is room; return their keys."""
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
        """Take buffers for the keys that have none yet, and return these keys.

        Without room change nothing and return None."""
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
        """Tell whether the largest new buffer overlaps one that the step before released.

        This counts only if far smaller retained buffers, which could be loaded again, are the reason."""
        # In the order of the buffers: a set's own is another one in each process, and of equal ones the first counts.
        loaded = (buffer for key, buffer in self._held.items() if key in fresh)
        largest = max(loaded, key=lambda buffer: buffer.size, default=Buffer(0, 0))
        stay = [key for key in self._held if key not in fresh]
        again = sum(self._held[key].size for key in stay if key.kind not in self._made)
        return bool(stay) and FAR_SMALLER * again <= largest.size and any(
            before.base < largest.base + largest.size and largest.base < before.base + before.size
            for before in self._given_back)

    def _drop(self, keys: Sequence[Key]) -> None:
        """Return the buffers of ``keys`` to the pool."""
        for key in keys:
            self._pool.release(self._held.pop(key))

    def release(self, key: Key) -> None:
        """Give a buffer back, because no later step needs its content, or not soon enough to retain it."""
        self._given_back.append(self._held[key])
        self._drop([key])


def kept(keys: Sequence[Hashable], count: int) -> list[bool]:
    """Return, for each use in ``keys``, whether its content is still in a buffer at the next use of that content.

    There are ``count`` buffers, and a new content takes the one that was unused for longest."""
    found = [False] * len(keys)
    recent: dict[Hashable, int] = {}  # content -> its latest use, the longest unused first
    for number, key in enumerate(keys):
        if key in recent:
            found[recent.pop(key)] = True
        elif len(recent) == count:
            del recent[next(iter(recent))]
        recent[key] = number
    return found
