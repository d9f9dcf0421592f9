# SPDX-License-Identifier: Apache-2.0
"""Write output files whole or not at all, and never over files that others made.

A command writes a new file, an empty one, or one of the kind that it writes itself (:class:`Kind`). Every other file
stays as it is: a directory, a pipe, a device, a file without write permission, a file of another kind. Output to
/dev/null is dropped.

A new file is first written under a hidden name beside its place, and its writer keeps it locked. The next writer of the
same file removes those that nobody locks, which killed writers have left."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from weft.support.errors import WeftError, explain
from weft.support.files import opened, reason
from weft.support.locks import hold

HEAD_BYTES = 64 << 10
"""The bytes of a file that are read to know its kind."""
ELSEWHERE = "choose another place"
REMOVE = "name another file, or remove that one first"


@dataclass(frozen=True)
class Kind:
    """The kind of file that a command writes.

    ``name`` stands in messages, such as "a trace". ``recognises`` tells whether an open, non-empty file is one that an
    earlier command may have written; its OSError and ValueError mean no."""

    name: str
    recognises: Callable[[BinaryIO], bool]

    @classmethod
    def of_head(cls, name: str, pattern: str) -> Kind:
        """Return a kind of text file whose first HEAD_BYTES match the regular expression from their beginning."""
        found = re.compile(pattern.encode(), re.DOTALL)
        return cls(name, lambda file: bool(found.match(file.read(HEAD_BYTES))))


def check_output(path: Path, kind: Kind, what: str = "output file") -> Path | None:
    """Return the file to write, links followed; None for /dev/null. Raise WeftError if it must not be written."""
    if path.parts[:1] and path.parts[0].startswith("~"):
        raise WeftError(explain(f"{what} {path}", "a ~ that the shell did not expand", "a path",
                                f"write $HOME instead of ~, or ./{path}"))
    try:
        target = Path(os.path.realpath(path))
        status = _status(path)
        if status is not None and stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev:
            return None
        if status is not None:
            _check_present(path, status, kind, what)
        _check_folder(target)
    except (OSError, ValueError) as error:
        raise _unwritable(what, path, error) from None
    return target


def _status(path: Path) -> os.stat_result | None:
    """Return the status of the file at ``path``, links followed, or None if there is none.

    Raise OSError or ValueError."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _check_folder(target: Path) -> None:
    """Raise OSError if a new file cannot be made in the existing part of the path; it is tried."""
    there = next(folder for folder in target.parents if folder.exists())
    with tempfile.TemporaryFile(dir=there):
        pass


def _check_present(path: Path, status: os.stat_result, kind: Kind, what: str) -> None:
    """Raise WeftError if an existing file may not be replaced."""
    if stat.S_ISDIR(status.st_mode):
        raise WeftError(explain(f"{what} {path}", "a directory", "the name of a file", "add a file name"))
    if not stat.S_ISREG(status.st_mode):
        raise WeftError(explain(f"{what} {path}", "a pipe or a device", "a regular file, or a new one",
                                "write into a file"))
    if not status.st_mode & 0o222:
        raise WeftError(explain(f"{what} {path}", "a file that is read-only", "a file that may be written", REMOVE))
    if status.st_size and not _recognised(path, kind, what):
        raise WeftError(explain(f"{what} {path}", "a file of another kind", f"{kind.name}, or a new file", REMOVE))


def _recognised(path: Path, kind: Kind, what: str) -> bool:
    """Tell whether a file is of the given kind."""
    with opened(path, what, REMOVE) as file:
        try:
            return kind.recognises(file)
        except (OSError, ValueError):
            return False


def _unwritable(what: str, path: Path, error: Exception) -> WeftError:
    """Return the error for a path that cannot be written."""
    return WeftError(explain(f"{what} {path}", reason(error), "a place that can be written", ELSEWHERE))


@contextlib.contextmanager
def replacing(path: Path, kind: Kind, what: str = "output file") -> Iterator[BinaryIO]:
    """Open a new file that becomes ``path`` when the block ends, or disappears if the block raises.

    Folders that are missing are made. A file that is there is replaced only if it is empty or of this ``kind``; its
    permissions stay. ``what`` names the file in messages. Raise WeftError if the path cannot or must not be
    written."""
    target = check_output(path, kind, what)
    if target is None:
        yield io.BytesIO()
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        status = _status(target)
        mode = 0o666 & ~_umask() if status is None else status.st_mode & 0o777
        handle, temporary = _temporary(target)
    except OSError as error:
        raise _unwritable(what, path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            temporary.chmod(mode)
            temporary.replace(target)
    except OSError as error:
        raise _unwritable(what, path, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(target: Path) -> tuple[int, Path]:
    """Make a hidden file beside ``target``; return its descriptor, which has its lock, and its path.

    Remove those that killed writers have left. Raise OSError if none can be made. The folder is not locked: anybody
    could hold that lock of a common folder, and this would wait for ever."""
    start, end = f".{target.name}.", ".new"
    left = re.compile(re.escape(start) + "[a-z0-9_]{8}" + re.escape(end))
    for path in [path for path in target.parent.iterdir() if left.fullmatch(path.name) and path.is_file()]:
        with contextlib.suppress(OSError), path.open("rb") as file:
            if hold(file.fileno()):
                path.unlink()
    while True:
        handle, name = tempfile.mkstemp(prefix=start, suffix=end, dir=target.parent)
        try:
            hold(handle)
            os.stat(name)
            return handle, Path(name)
        except (BlockingIOError, FileNotFoundError):  # removed by another writer before it had its lock
            os.close(handle)


def _umask() -> int:
    """Return the process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str, kind: Kind) -> None:
    """Write ``text`` to the file ``path`` in UTF-8; if that fails, the file stays as it was.

    Folders that are missing are made. A file that is there is replaced only if it is empty or of this ``kind``. Raise
    WeftError if the path cannot or must not be written."""
    with replacing(path, kind) as file:
        file.write(text.encode())
