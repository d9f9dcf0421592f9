# SPDX-License-Identifier: Apache-2.0
"""Folders of work in progress: leftovers of a killed process, files and running programs, go at the next start.

An owned folder holds a file that its owner keeps locked; the system drops the lock when the owner dies, in any way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

OWNER = "owner.lock"


@contextlib.contextmanager
def owned(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a new folder in ``parent`` that is ours until the end of the block. It then stays: move it or remove it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    with open(folder / f"{OWNER}.new", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(lock.name).rename(folder / OWNER)  # never there unlocked while we live
        try:
            yield folder
        finally:
            (folder / OWNER).unlink(missing_ok=True)


def remove_dead(parent: Path, pattern: str) -> None:
    """Remove the folders that ``pattern`` fits and whose owners died, and end what still runs in them."""
    for folder in parent.glob(pattern):
        with contextlib.suppress(OSError):  # somebody else's, or just removed by another process
            if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    """Remove a folder whose owner died. Raise OSError otherwise."""
    with open(folder / OWNER, "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        discard(folder)


def discard(folder: Path) -> None:
    """Remove a folder, and end what still runs in it."""
    for process in _running_in(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _running_in(folder: Path) -> list[int]:
    """Return our processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == os.getuid() and Path(os.readlink(entry / "cwd")).is_relative_to(folder.resolve()):
                found.append(int(entry.name))
    return found


def run_group(command: Sequence[str], directory: Path, output: IO[str], environment: Mapping[str, str],
              timeout_seconds: float | None = None) -> int:
    """Run a command and return its exit code.

    Whatever ends the wait ends the command, with all that it has started. Raise subprocess.TimeoutExpired."""
    process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=output,
                               stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(timeout_seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
