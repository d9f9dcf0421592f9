# SPDX-License-Identifier: Apache-2.0
"""A board's folder, which a build replaces as a whole, if all of it is what an earlier build left.

Everything is made in a folder beside it. A build that is killed leaves the old folder or the new one. In the worst
moment it lies beside its place; the next build puts it back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from weft.support.errors import WeftError, explain
from weft.support.strict_json import read_object

REPORT, FILES = "report.json", "files"
"""The report of a build, and its key that lists the other files of the folder."""
MARK = ".weft-build"
"""The first file of a working folder."""
READY, OLD = "ready", "old"
"""The parts of the working folder: what becomes the result, and what was there before it."""
WAY_OUT = "move your files elsewhere, remove what is in the way, or name another folder with -o"


def begin(folder: Path) -> Path:
    """Return a fresh working folder beside ``folder``, with an empty folder READY in it.

    Raise WeftError if either holds files that no build left; nothing is changed then."""
    folder = Path(os.path.realpath(folder))
    work = folder.with_name(f".{folder.name}-work")
    if os.path.lexists(work) and not (work / MARK).is_file():
        raise WeftError(explain(f"working folder {work}", "files of another kind", "what a broken build left", WAY_OUT))
    if not folder.exists() and (work / OLD).is_dir():
        (work / OLD).rename(folder)
    check(folder)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / MARK).touch()
    (work / READY).mkdir()
    return work


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
    if folder.exists():
        folder.rename(work / OLD)
    ready.rename(folder)
    shutil.rmtree(work, ignore_errors=True)
