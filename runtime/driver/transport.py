# SPDX-License-Identifier: Apache-2.0
"""The interface of transports, which carry words to a remote bus and back, right or wrong; see ``bridge.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from weft.support.errors import WeftError

WORD_BYTES = 4
PROGRAM_SECONDS = 60.0
"""The seconds that a program may run by default."""

Write = tuple[int, np.ndarray]
"""Byte address, and the words (uint32) to write from there on."""
Read = tuple[int, int]
"""Byte address, and the number of words to read from there on."""


class LinkError(WeftError):
    """The error that the link to a device is gone, or so bad that nothing comes through whole."""


class LinkFault(Exception):
    """The failure of one exchange, which may be tried again: no answer in time, or one of the wrong form."""


class Transport(Protocol):
    """A link to a remote bus with one exchange at a time.

    An exchange has at most ``most_words`` words of 32 bits, at byte addresses that are multiples of 4. Nothing is
    promised of what arrives; a transport only sees what its own framing shows."""

    name: str
    most_words: int

    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words (uint32). Raise LinkFault, in bounded time."""

    def write(self, address: int, words: np.ndarray) -> None:
        """Send words; nobody says whether they arrived. Raise LinkFault, in bounded time."""

    def resynchronise(self) -> bool:
        """Wait until the remote end has given up anything it had begun, and drop what has come in.

        Open the link again if it was unplugged; then return True, because the far end may have been off."""

    def pause(self, seconds: float) -> None:
        """Wait while the far end works, or less if it is known to have something to tell."""

    def seconds(self) -> float:
        """Return the time by a clock that only goes forward; :meth:`pause` waits by it."""

    def close(self) -> None:
        """Close the transport."""


class WindowTransport(Transport, Protocol):
    """A link that carries several accesses of the bus without waiting for each.

    An exchange has at most ``window_words`` words of writes, and as many of reads, and ``most_reads`` reads."""

    window_words: int
    most_reads: int

    def exchange(self, writes: Sequence[Write], reads: Sequence[Read]) -> list[np.ndarray]:
        """Send writes and then reads, which the far end takes in order; return the words of each read.

        Each has at most ``most_words`` words. Raise LinkFault, in bounded time."""
