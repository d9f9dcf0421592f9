# SPDX-License-Identifier: Apache-2.0
"""Faults of a file system at every change that a writer makes to a folder, each in a child process of its own.

A change is an audit event of Python that opens a file for writing, or makes, renames, removes, truncates or protects
one. The bytes that go into an open file raise no event; the limit of a file's size stands for them."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from weft.support.errors import WeftError

UNMET, REFUSED, DONE, KILLED, CRASHED = "unmet", "refused", "done", "killed", "crashed"
_CODES = {70: UNMET, 71: REFUSED, 72: DONE, 73: CRASHED, -signal.SIGKILL: KILLED, -signal.SIGXFSZ: KILLED}
_NEEDS_ROOM = {"open", "os.mkdir"}
_CHANGES = _NEEDS_ROOM | {"os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "os.link", "os.symlink"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Fault:
    """What a change meets, and all changes behind it.

    ``number``: the system's error for them, or None if the process is killed. ``limit``: the bytes up to which files
    can still be written from then on; the change itself succeeds. None: the change itself meets the fault."""

    number: int | None
    limit: int | None = None

    def strikes(self, event: str) -> None:
        """Do to a change what the fault does. Raise OSError."""
        if self.limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if self.number is None else signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))
        elif self.number is None:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.number == errno.EACCES or event in _NEEDS_ROOM:
            raise OSError(self.number, os.strerror(self.number))


LIMITS = (0, 1, 9000)
"""Bytes: before the first one, after it, and behind the first buffer that Python writes."""
FAULTS = {
    "full": Fault(errno.ENOSPC), "read-only": Fault(errno.EACCES), "killed": Fault(None),
    **{f"full at byte {limit}": Fault(errno.EFBIG, limit) for limit in LIMITS},
    **{f"killed at byte {limit}": Fault(None, limit) for limit in LIMITS},
}


def is_change(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    """Tell whether an audit event is a change below ``folder``, an absolute path without links."""
    if event not in _CHANGES or isinstance(arguments[0], int) or event == "open" and not arguments[2] & _WRITES:
        return False
    within = arguments[-1] if event != "open" else -1
    if isinstance(within, int) and within >= 0 and event in ("os.remove", "os.rmdir"):  # by shutil.rmtree
        return True
    return os.path.abspath(os.fsdecode(arguments[0])).startswith(folder)


def strike(folder: Path, number: int, fault: Fault) -> list[str]:
    """Let the change of that number, from 0, and those behind it meet a fault, for the rest of this process.

    Return the list that the changes met are added to."""
    below, seen, met = os.path.realpath(folder), 0, []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if is_change(event, arguments, below):
            seen += 1
            if seen > number:
                met.append(event)
                fault.strikes(event)

    sys.addaudithook(hook)
    return met


def dawdle(folder: Path, seed: int, most_seconds: float = 2e-3) -> list[str]:
    """Wait a random time before each change below ``folder``, for the rest of this process. No change meets a fault."""
    below, numbers = os.path.realpath(folder), random.Random(seed)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if is_change(event, arguments, below):
            time.sleep(numbers.random() * most_seconds)

    sys.addaudithook(hook)
    return []


def changes_beside(folder: Path, seam: Collection[str]) -> list[str]:
    """Return a list to which changes below ``folder`` are added that come from none of the files ``seam``.

    It grows for the rest of this process. A new folder is no change here: an empty one does no harm."""
    below, found = os.path.realpath(folder), []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "os.mkdir" and is_change(event, arguments, below):
            frame, files = sys._getframe(), set()
            while frame := frame.f_back:  # type: ignore[assignment]
                files.add(os.path.realpath(frame.f_code.co_filename))
            if not files & set(seam):
                found.append(f"{event} {arguments[0]}")

    sys.addaudithook(hook)
    return found


def started(work: Callable[[], object], prepare: Callable[[], list[str]]) -> int:
    """Start a child process that does ``prepare``, then ``work``; return its number."""
    child = os.fork()
    if child == 0:
        _child(work, prepare)
    return child


def _child(work: Callable[[], object], prepare: Callable[[], list[str]]) -> NoReturn:
    code = 73
    try:
        met = prepare()
        work()
        code = 72 if met else 70
    except (WeftError, OSError):
        code = 71
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int) -> str:
    """Wait for a child; return UNMET, REFUSED, DONE in spite of the fault, KILLED, or CRASHED by another exception."""
    return _CODES[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


def outcome(work: Callable[[], object], folder: Path, number: int, fault: Fault) -> str:
    """Do ``work`` in a child whose changes below ``folder`` meet a fault from ``number`` on; return how it ended."""
    return ended(started(work, lambda: strike(folder, number, fault)))
