"""What carries words to a remote bus and back, right or wrong: the interface that ``bridge.py`` stands on."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from weft.support.errors import WeftError

WORD_BYTES = 4
PROGRAM_SECONDS = 60.0
"""How long a program may run, where nothing else is said."""


class LinkError(WeftError):
    """The link to a device is gone, or so bad that nothing comes through whole."""


class LinkFault(Exception):
    """One exchange did not come to its end: no answer in time, or one of the wrong form. It may be tried again."""


class Transport(Protocol):
    """One exchange at a time, each of at most ``most_words`` words of 32 bits at byte addresses that are multiples
    of 4. Nothing is promised of what arrives; a transport only sees what its own framing shows."""

    name: str
    most_words: int

    def read(self, address: int, count: int) -> np.ndarray:
        """``count`` words (uint32). Raises LinkFault, in bounded time."""

    def write(self, address: int, words: np.ndarray) -> None:
        """Send words; nobody says whether they came. Raises LinkFault, in bounded time."""

    def resynchronise(self) -> bool:
        """Wait until the remote end has given up whatever was begun, and forget what has come in.

        Opens the link again where it was unplugged and is there: then True, for the far end may have been off."""

    def pause(self, seconds: float) -> None:
        """Let the far end work for so long, or less where it is known to have something to tell."""

    def close(self) -> None:
        """The transport is not used any more."""
