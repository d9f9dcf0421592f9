# SPDX-License-Identifier: Apache-2.0
"""Build something once and keep it: one process fills a folder of the cache, others find it whole."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from weft.simulate.leftovers import discard, owned, remove_dead

WORK = ".work-"
"""The part of the name of a folder that is being filled."""


@contextlib.contextmanager
def built_once(directory: Path) -> Iterator[Path | None]:
    """Yield a fresh folder to fill, which then becomes ``directory``, or None if that exists already.

    Only one process at a time fills it; the others wait and find it. A failure leaves nothing behind."""
    if directory.exists():
        yield None
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_name(directory.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            yield None
            return
        remove_dead(directory.parent, f"*{WORK}*")  # of other designs
        with owned(directory.parent, f"{directory.name}{WORK}") as work:
            try:
                yield work
            except BaseException:
                discard(work)
                raise
        work.rename(directory)
