# SPDX-License-Identifier: Apache-2.0
"""The ring of performance samples in a board's shell, as the host empties it (``hw/contract/host_link.py``)."""

from __future__ import annotations

import numpy as np

from weft.hw.contract.host_link import (
    RING_COUNT_BITS,
    RING_SAMPLES,
    RING_TAKEN,
    RING_WORDS,
    RING_WRITTEN,
)
from weft.hw.contract.samples import FILLER
from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.transport import WORD_BYTES, LinkError
from weft.runtime.samples import Samples
from weft.support.errors import explain

ATTEMPTS = 5
"""The attempts to say how many samples were taken."""
COUNT = 1 << RING_COUNT_BITS


class SampleRing:
    """The ring at byte ``base`` of the bus. Methods raise LinkError if the link does not come through."""

    def __init__(self, bridge: Bridge, base: int) -> None:
        self._bridge, self._base = bridge, base
        self._taken = self._told = 0
        self._found: list[np.ndarray] = []
        self._was_full = False

    def start(self) -> None:
        """Drop what is there, so that samples from now on count."""
        self._taken = self._told = int(self._bridge.read(self._base + RING_TAKEN, 1)[0])
        for _ in range(3):  # of a full ring, and of one that waited for room in it
            self._taken = (self._taken + self._waiting()) % COUNT
        self._waiting()
        self._found, self._was_full = [], False

    def drain(self) -> None:
        """Take the samples that wait."""
        waiting = self._waiting()
        first, end = self._taken % RING_SAMPLES, self._taken % RING_SAMPLES + waiting
        for start, stop in ((first, min(end, RING_SAMPLES)), (0, end - RING_SAMPLES)):
            if start < stop:
                self._found.append(self._bridge.read(
                    self._base + RING_WORDS + 2 * WORD_BYTES * start, 2 * (stop - start)).view("<u8"))
        self._taken = (self._taken + waiting) % COUNT

    def ended(self, cycles: int, interval: int) -> np.ndarray:
        """Take the rest and return all samples (uint64) of a program of ``cycles``, one every ``interval``.

        The machine goes on sampling when a program has ended; these are left out. Where the ring was full, how many
        were lost is not known, and samples of a machine at rest at the end are left out too."""
        self.drain()
        self._waiting()
        words = np.concatenate([np.empty(0, np.uint64), *self._found])
        words = words[words != FILLER][:cycles // interval]
        if self._was_full and len(words):
            busy = np.flatnonzero(Samples.decode(words).valid.any(axis=1))
            words = words[:busy[-1] + 1] if len(busy) else words[:0]
        return words

    def _waiting(self) -> int:
        """Say how many samples were taken; return how many wait since then."""
        for _ in range(ATTEMPTS):
            self._bridge.command(self._base + RING_TAKEN, self._taken)
            taken, written = self._bridge.read(self._base + RING_TAKEN, RING_WRITTEN // WORD_BYTES + 1).tolist()
            if taken == self._taken:
                self._was_full |= (written - self._told) % COUNT == RING_SAMPLES
                self._told = taken
                return (written - taken) % COUNT
            self._bridge.doubt()
        raise LinkError(explain(f"ring of samples of {self._bridge.name}", f"{taken} samples taken",
                                f"{self._taken}, as it was told", "look at the cable, or lower the baud rate"))
