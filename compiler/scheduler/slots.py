"""Buffers of one kind, used in turn; each remembers what it holds so that nothing is loaded twice in a row."""

from __future__ import annotations

from collections.abc import Hashable


class Slots:
    """``count`` buffers of ``size`` vectors from ``base``. The one unused for longest is taken for a new content."""

    def __init__(self, base: int, size: int, count: int) -> None:
        self.count = count
        self._order: list[tuple[int, Hashable]] = [(base + number * size, None) for number in range(count)]

    @property
    def contents(self) -> set[Hashable]:
        return {key for _, key in self._order}

    def keeps(self, key: Hashable, new: Hashable) -> bool:
        """Whether taking a buffer for ``new`` leaves the content ``key``."""
        return new in self.contents or self._order[0][1] != key

    def take(self, key: Hashable) -> tuple[int, bool]:
        """Base of the buffer for ``key``, and whether it must be filled."""
        for entry in self._order:
            if entry[1] == key:
                self._order.remove(entry)
                self._order.append(entry)
                return entry[0], False
        base, _ = self._order.pop(0)
        self._order.append((base, key))
        return base, True
