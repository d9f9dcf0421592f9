# SPDX-License-Identifier: Apache-2.0
"""A board's folder, which a build replaces as a whole, if all of it is what an earlier build left.

Everything is made in a folder beside it. A build that is killed leaves the old folder or the new one. In the worst
moment it lies beside its place; the next build puts it back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from weft.support.errors import WeftError, explain
from weft.support.locks import hold, locked
from weft.support.strict_json import read_object

REPORT, FILES = "report.json", "files"
"""The report of a build, and its key that lists the other files of the folder."""
MARK = ".weft-build"
"""The first file of a working folder."""
READY, OLD = "ready", "old"
"""The parts of the working folder: what becomes the result, and what was there before it."""
WAY_OUT = "move your files elsewhere, remove what is in the way, or name another folder with -o"


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Yield a fresh working folder beside ``folder``, with an empty folder READY in it, which is ours in this block.

    Raise WeftError if either holds files that no build left, or if another build is at work; nothing is changed
    then."""
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as ours:
        with locked(folder.parent):
            work = _begin(folder)
            hold(ours.enter_context((work / MARK).open("wb")).fileno())
        (work / READY).mkdir()
        yield work


def _begin(folder: Path) -> Path:
    """Return a new working folder with nothing in it. Raise WeftError as ``building`` does."""
    work = folder.with_name(f".{folder.name}-work")
    if os.path.lexists(work) and not (work / MARK).is_file() and not (work.is_dir() and not any(work.iterdir())):
        raise WeftError(explain(f"working folder {work}", "files of another kind", "what a broken build left", WAY_OUT))
    try:
        with contextlib.suppress(FileNotFoundError), (work / MARK).open("rb") as mark:
            hold(mark.fileno())
    except BlockingIOError:
        raise WeftError(explain(f"working folder {work}", "another build at work", "one build of a folder at a time",
                                "wait until that one ends, or name another folder with -o")) from None
    if not folder.exists() and (work / OLD).is_dir():
        (work / OLD).rename(folder)
    check(folder)
    if work.exists():
        _remove(work)
    work.mkdir()
    return work


def _remove(work: Path) -> None:
    """Remove a working folder, MARK last, so that what a kill leaves of it is known as ours. Raise OSError."""
    for path in [path for path in work.iterdir() if path.name != MARK]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (work / MARK).unlink(missing_ok=True)
    work.rmdir()


def check(folder: Path) -> None:
    """Raise WeftError if the folder holds a file that no build left."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise WeftError(explain(f"output folder {folder}", "no folder", "a folder, or a new one", WAY_OUT))
    there = sorted(_files(folder))
    known = _listed(folder / REPORT) if REPORT in there else set()
    for name in [name for name in there if name not in known]:
        raise WeftError(explain(f"output folder {folder}", f"{name}, which no build left there", "a new folder, or "
                                "what weft board build wrote, for it is replaced as a whole", WAY_OUT))


def _files(folder: Path) -> Iterator[str]:
    """Yield everything in a folder but folders, by path."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in (*files, *links))


def _listed(report: Path) -> set[str]:
    """Return the files that a report lists. Raise WeftError if it is no report."""
    found = read_object(report, "report", "what weft board build wrote", WAY_OUT).get(FILES)
    return {REPORT, *map(str, found)} if isinstance(found, list) else set()


def deliver(work: Path, folder: Path, report: dict[str, object]) -> None:
    """Make READY, with its report, the folder. The list of FILES is added to ``report``."""
    folder = Path(os.path.realpath(folder))
    ready = work / READY
    report[FILES] = sorted(_files(ready))
    (ready / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    with locked(folder.parent):
        if folder.exists():
            folder.rename(work / OLD)
        try:
            ready.rename(folder)
        except BaseException:
            if (work / OLD).exists():
                (work / OLD).rename(folder)
            raise
        with contextlib.suppress(OSError):
            _remove(work)
