# SPDX-License-Identifier: Apache-2.0
"""Locks of folders between processes, where the system has them: Windows has none of this kind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover - of Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock of a folder or file, so that others who ask for it follow one another.

    Go on without one where the system or the file system has none. Raise OSError if the place cannot be opened."""
    if fcntl is None:
        yield
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def hold(handle: int) -> bool:
    """Take the lock of an open file without waiting, until it is closed. Return False where there are no locks.

    Raise BlockingIOError if another open file has it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system has none
        return False
    return True
