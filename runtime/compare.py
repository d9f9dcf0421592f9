"""Are two memories equal, word for word, and if not, where first? How far are two results apart?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from weft.support.errors import Mismatch

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch

CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Difference:
    """One word that differs: ``image`` is the run whose window of ``memory`` it lies in, the first of those that share
    one; ``address`` counts vectors there."""

    image: int
    address: int
    lane: int
    golden: int
    rtl: int
    name: str = "RTL"
    """Of what was compared with golden."""
    memory: str = "dram0"

    def __str__(self) -> str:
        where = f"image {self.image}, {self.memory.upper()} address {self.address}, lane {self.lane}"
        return f"{where}: {self.name} {self.rtl}, golden {self.golden}"


@dataclass(frozen=True)
class Comparison:
    """``words``: all words of pages that either memory ever touched; the rest of both is zero."""

    words: int
    different: int
    first: Difference | None

    @property
    def equal(self) -> int:
        return self.words - self.different

    def insist(self) -> None:
        """Raises Mismatch, naming the first word that differs, unless all are equal."""
        if self.first:
            raise Mismatch(f"{self.first.name} and golden differ in {self.different} of {self.words} words, first at "
                           f"{self.first}")

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(self.words + other.words, self.different + other.different, self.first or other.first)


def compare(arch: Arch, memory: str, golden: Dram, rtl: Dram, window_bytes: int, first_image: int = 0) -> Comparison:
    """All words of golden's DRAM ``memory`` and the RTL's, in which image i has the window that starts at byte i x
    ``window_bytes``."""
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
    """All words of vectors [size, lanes] of DRAM0 from ``base`` on; ``found``: by the machine ``name``."""
    different = np.argwhere(golden != found)
    if not len(different):
        return Comparison(golden.size, 0, None)
    vector, lane = map(int, different[0])
    first = Difference(image, base + vector, lane, int(golden[vector, lane]), int(found[vector, lane]),
                       name)
    return Comparison(golden.size, len(different), first)


def _touched(*memories: Dram) -> Iterator[tuple[int, int]]:
    """Byte ranges that any of the memories has touched, ascending, without overlap, none longer than CHUNK_BYTES."""
    done = 0
    for start, end in sorted(extent for memory in memories for extent in memory.extents()):
        for low in range(max(start, done), end, CHUNK_BYTES):
            yield low, min(low + CHUNK_BYTES, end)
        done = max(done, end)


def signal_to_noise(signal: float, noise: float) -> float | None:
    """Decibels, of sums of squares, to a tenth; None without noise, -inf without signal or with endless noise."""
    if not noise:
        return None
    return round(10 * math.log10(signal / noise), 1) if signal and math.isfinite(noise) else -math.inf
