# SPDX-License-Identifier: Apache-2.0
"""Compare two memories word for word, and measure how far two results are apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.support.errors import Mismatch

CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Difference:
    """A word that differs: where it is, and both values.

    ``image`` is the run whose window of ``memory`` has the word, the first one if several share a window; ``address``
    counts vectors within the window."""

    image: int
    address: int
    lane: int
    golden: int
    rtl: int
    name: str = "RTL"
    """The name of the machine that is compared with golden."""
    memory: str = "dram0"

    def __str__(self) -> str:
        """Return the place and both values as text."""
        where = f"image {self.image}, {self.memory.upper()} address {self.address}, lane {self.lane}"
        return f"{where}: {self.name} {self.rtl}, golden {self.golden}"


@dataclass(frozen=True)
class Comparison:
    """The result of comparing memories.

    ``words``: all words of pages that either memory ever touched; the rest of both is zero. ``different``: how many of
    them differ; ``first``: the first of these."""

    words: int
    different: int
    first: Difference | None

    @property
    def equal(self) -> int:
        """The number of equal words."""
        return self.words - self.different

    def insist(self) -> None:
        """Raise Mismatch, which names the first word that differs, unless all words are equal."""
        if self.first:
            raise Mismatch(f"{self.first.name} and golden differ in {self.different} of {self.words} words, first at "
                           f"{self.first}")

    def __add__(self, other: Comparison) -> Comparison:
        """Return the result of both comparisons together."""
        return Comparison(self.words + other.words, self.different + other.different, self.first or other.first)


def compare(arch: Arch, memory: str, golden: Dram, rtl: Dram, window_bytes: int, first_image: int = 0) -> Comparison:
    """Compare all words of golden's and the RTL's DRAM ``memory``.

    Image i has the window that starts at byte i x ``window_bytes``."""
    dtype = arch.number.storage_dtype
    words = different = 0
    first = None
    for start, end in _touched(golden, rtl):
        left, right = golden.bytes[start:end].view(dtype), rtl.bytes[start:end].view(dtype)
        words += len(left)
        if np.array_equal(left, right):
            continue
        where = np.flatnonzero(left != right)
        different += len(where)
        if first is None:
            at = int(where[0])
            image, byte = divmod(start + at * dtype.itemsize, window_bytes)
            address, offset = divmod(byte, arch.vector_bytes)
            first = Difference(first_image + image, address, offset // dtype.itemsize, int(left[at]), int(right[at]),
                               memory=memory)
    return Comparison(words, different, first)


def compare_vectors(golden: np.ndarray, found: np.ndarray, image: int, base: int, name: str) -> Comparison:
    """Compare all words of vectors [size, lanes] of DRAM0 from ``base`` on; ``found``: by the machine ``name``."""
    different = np.argwhere(golden != found)
    if not len(different):
        return Comparison(golden.size, 0, None)
    vector, lane = map(int, different[0])
    first = Difference(image, base + vector, lane, int(golden[vector, lane]), int(found[vector, lane]),
                       name)
    return Comparison(golden.size, len(different), first)


def _touched(*memories: Dram) -> Iterator[tuple[int, int]]:
    """Yield byte ranges that any memory has touched, ascending, disjoint, none longer than CHUNK_BYTES."""
    done = 0
    for start, end in sorted(extent for memory in memories for extent in memory.extents()):
        for low in range(max(start, done), end, CHUNK_BYTES):
            yield low, min(low + CHUNK_BYTES, end)
        done = max(done, end)
