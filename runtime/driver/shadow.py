# SPDX-License-Identifier: Apache-2.0
"""The words that a bridge has written and must keep in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.runtime.driver.transport import WORD_BYTES

PAGE_WORDS = 1024


class Shadow:
    """Words by address, in pages: each with a value, and whether it is kept."""

    def __init__(self) -> None:
        self._pages: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def keep(self, address: int, words: np.ndarray) -> None:
        """Keep words at an address."""
        for page, part, first in self._parts(address, len(words)):
            values, kept = self._pages.setdefault(page, (np.zeros(PAGE_WORDS, np.uint32), np.zeros(PAGE_WORDS, bool)))
            values[part], kept[part] = words[first:first + part.stop - part.start], True

    def holds(self, address: int, words: np.ndarray) -> bool:
        """Tell whether all these words are kept, with these values."""
        for page, part, first in self._parts(address, len(words)):
            values, kept = self._pages.get(page, (None, None))
            if values is None or kept is None or not kept[part].all():
                return False
            if not np.array_equal(values[part], words[first:first + part.stop - part.start]):
                return False
        return True

    def keeps(self, address: int, count: int) -> bool:
        """Tell whether all of ``count`` words from ``address`` on are kept."""
        return all(page in self._pages and bool(self._pages[page][1][part].all())
                   for page, part, _ in self._parts(address, count))

    def within(self, address: int, count: int) -> list[tuple[int, np.ndarray]]:
        """Return (address, words) of each run that is kept among ``count`` words from ``address``."""
        found = []
        for page, part, _ in self._parts(address, count):
            if page in self._pages:
                values, kept = self._pages[page]
                for low, high in _runs(kept[part]):
                    start = part.start + low
                    found.append(((page * PAGE_WORDS + start) * WORD_BYTES, values[start:part.start + high].copy()))
        return found

    def release(self, address: int, count: int) -> None:
        """Stop keeping ``count`` words from ``address``."""
        for page, part, _ in self._parts(address, count):
            if page in self._pages:
                self._pages[page][1][part] = False

    def kept(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (address, words) of each run that is kept, ascending."""
        for page in sorted(self._pages):
            yield from self.within(page * PAGE_WORDS * WORD_BYTES, PAGE_WORDS)

    @staticmethod
    def _parts(address: int, count: int) -> Iterator[tuple[int, slice, int]]:
        """Yield the parts of a range in pages: page, words of it, number of the first of these in the range."""
        word, done = address // WORD_BYTES, 0
        while done < count:
            page, low = divmod(word + done, PAGE_WORDS)
            size = min(PAGE_WORDS - low, count - done)
            yield page, slice(low, low + size), done
            done += size


def _runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, end) of each run of true elements."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
