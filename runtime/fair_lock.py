# SPDX-License-Identifier: Apache-2.0
"""A lock that nobody overtakes."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A lock that is given in the order in which it was asked for.

    With Python's own lock, a thread that releases and asks again is served before those that wait. A launch would then
    run after others that came later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    @property
    def waiting(self) -> int:
        """The number of threads that wait for the lock."""
        return len(self._waiting)

    def __enter__(self) -> None:
        """Take the lock, after all that asked before."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        try:
            mine.wait()
        except BaseException:  # interrupted: nobody may wait for a thread that has gone
            with self._lock:
                given = mine not in self._waiting
                if not given:
                    self._waiting.remove(mine)
            if given:
                self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Release the lock to the thread that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False
