# SPDX-License-Identifier: Apache-2.0
"""The expected state of the board's witness: a CRC-32 of all that the host wrote to the bus, and one of all it read.

The witness (``boards/shell/host_bus.py``) looks at every access of the host's bus. It takes the word address and the
word of each, lowest byte first, into the CRC of writes or into that of reads. So equal CRCs say that exactly these
accesses were carried out, once and in this order, and that what was read arrived as it was on the bus."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from weft.hw.contract.host_link import WITNESS_WORDS
from weft.runtime.driver.transport import WORD_BYTES, Write


def fold(crc: int, address: int, words: np.ndarray) -> int:
    """Return the CRC after accesses to ``words`` from byte ``address`` on."""
    pairs = np.empty((len(words), 2), "<u4")
    pairs[:, 0] = address // WORD_BYTES + np.arange(len(words))
    pairs[:, 1] = words
    return zlib.crc32(pairs.tobytes(), crc)


class Witness:
    """Both CRCs, as the far end must have them, if its witness is at byte ``address``."""

    def __init__(self, address: int) -> None:
        self.address, self.writes, self.reads = address, 0, 0

    @property
    def place(self) -> tuple[int, int]:
        """Address and words of the witness, to be read."""
        return self.address, WITNESS_WORDS

    def after(self, writes: Sequence[Write]) -> list[int]:
        """Return the CRC of writes after none, one, two, ... of ``writes``."""
        marks = [self.writes]
        for address, words in writes:
            marks.append(fold(marks[-1], address, words))
        return marks

    def confirms(self, writes: int, answers: Sequence[tuple[int, np.ndarray]], said: np.ndarray) -> bool:
        """Tell whether the witness ``said`` that writes up to the CRC ``writes``, and these reads, were all.

        ``answers``: address and words of each read, in order. If so, go on from there."""
        reads = self.reads
        for address, words in answers:
            reads = fold(reads, address, words)
        if [writes, fold(reads, self.address, said[:1])] != said.tolist():
            return False
        self._take(said)
        return True

    def agrees(self, first: np.ndarray, second: np.ndarray) -> bool:
        """Tell whether two readings of the witness in a row belong together; if so, go on from there."""
        reads = fold(fold(int(first[1]), self.address + WORD_BYTES, first[1:]), self.address, second[:1])
        if [int(first[0]), reads] != second.tolist():
            return False
        self._take(second)
        return True

    def _take(self, said: np.ndarray) -> None:
        """Go on from what was read last."""
        self.writes, self.reads = int(said[0]), fold(int(said[1]), self.address + WORD_BYTES, said[1:])
