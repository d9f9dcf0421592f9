"""What a bridge has written and still answers for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.runtime.driver.transport import WORD_BYTES

PAGE_WORDS = 1024


class Shadow:
    """Words by address, in pages: a value, and whether it is kept."""

    def __init__(self) -> None:
        self._pages: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def keep(self, address: int, words: np.ndarray) -> None:
        for page, part, first in self._parts(address, len(words)):
            values, kept = self._pages.setdefault(page, (np.zeros(PAGE_WORDS, np.uint32), np.zeros(PAGE_WORDS, bool)))
            values[part], kept[part] = words[first:first + part.stop - part.start], True

    def release(self, address: int, count: int) -> None:
        for page, part, _ in self._parts(address, count):
            if page in self._pages:
                self._pages[page][1][part] = False

    def kept(self) -> Iterator[tuple[int, np.ndarray]]:
        """(address, words) of each run that is kept, ascending."""
        for page in sorted(self._pages):
            values, kept = self._pages[page]
            edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
            for low, high in edges.reshape(-1, 2).tolist():
                yield (page * PAGE_WORDS + low) * WORD_BYTES, values[low:high].copy()

    @staticmethod
    def _parts(address: int, count: int) -> Iterator[tuple[int, slice, int]]:
        """(page, words of it, number of the first of these within all)."""
        word, done = address // WORD_BYTES, 0
        while done < count:
            page, low = divmod(word + done, PAGE_WORDS)
            size = min(PAGE_WORDS - low, count - done)
            yield page, slice(low, low + size), done
            done += size
