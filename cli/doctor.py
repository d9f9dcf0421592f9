# SPDX-License-Identifier: Apache-2.0
"""The command ``weft doctor``: what this machine lacks, and the one command that brings it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from weft.boards.shell import loader
from weft.cli import console
from weft.cli.options import JsonOption
from weft.support import packages
from weft.support.cache import cache_directory, chosen, shared
from weft.support.errors import WeftError, explain

OLDEST = (3, 11)
LEAST_FREE_BYTES = 2 << 30
"""The least free bytes on disk.

A built simulator of a large machine with its objects takes some 100 MB, a bitstream's folder as much."""
SYSTEM = {"g++": "simulation", "make": "simulation", "perl": "simulation"}
FINE, LACKING, NOT_NEEDED = "ok", "missing", "not installed"

@dataclass(frozen=True)
class Finding:
    """One result of the doctor: what was examined, its state, details in words, and the command that mends it.

    ``mend`` is empty if nothing is to do."""

    what: str
    state: str
    found: str
    mend: str = ""


def doctor_command(
    extra: Annotated[list[str] | None, typer.Option("--extra", metavar="NAME", help="An extra that has to be there; "
                                                    "may be repeated; default: sim.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this computer; print the one command that brings what is missing, and end with exit code 1 then."""
    pinned = packages.requirements()
    for name in extra or ():
        if not name or name not in pinned:
            raise WeftError(explain("--extra", name, ", ".join(sorted(filter(None, pinned))), "name one of them"))
    found = [*_system(), *_packages(pinned, extra or ["sim"]), *_boards(extra or ()), *_places()]
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, "version": packages.version(),
                          "findings": [asdict(row) for row in found]}))
    else:
        console.print_columns([("what", "state", "found"), *((row.what, row.state, row.found) for row in found)])
        for row in found:
            if row.mend:
                print(f"{row.what}: {row.mend}")
    if any(row.state == LACKING for row in found):
        raise typer.Exit(1)


def _system() -> Iterator[Finding]:
    """Yield the findings about Python and system tools."""
    version_found = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info[:2] >= OLDEST
    yield Finding("Python", FINE if good else LACKING, version_found,
                  "" if good else "sudo apt-get install -y python3.11 python3.11-venv libpython3.11")
    for tool, purpose in SYSTEM.items():
        place = shutil.which(tool)
        yield Finding(tool, FINE if place else LACKING, place or f"needed for {purpose}",
                      "" if place else f"sudo apt-get install -y {tool}")


def _packages(pinned: dict[str, list[packages.Requirement]], needed: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each extra's packages, those that every use needs first."""
    for name, wanted in pinned.items():
        lacks = [f"{package} {packages.installed(package) or 'missing'}, wanted {versions}"
                 for package, versions in packages.lacking(name)]
        must = name == packages.BASE or name in needed
        state = FINE if not lacks else LACKING if must else NOT_NEEDED
        mend = packages.pip_install(name) if lacks else ""
        yield Finding(f"extra {name}" if name else "packages", state,
                      "; ".join(lacks) or f"{len(wanted)} package{'s' * (len(wanted) != 1)}", mend)


def _boards(needed: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings about loading bitstreams: the program, its libraries, the permission to open a cable."""
    lacks = LACKING if "bitstream" in needed else NOT_NEEDED
    try:
        program = loader.loader()
    except WeftError:
        yield Finding(loader.LOADER, lacks, "needed for loading bitstreams", packages.pip_install("bitstream"))
        return
    missing = loader.missing_libraries(program)
    yield Finding(loader.LOADER, lacks if missing else FINE, f"no {' and no '.join(missing)}" if missing else
                  str(program), loader.bringing(missing) if missing else "")
    good = loader.may_open()
    yield Finding("USB rights", FINE if good else lacks, "cables of boards may be opened" if good else
                  "no udev rule for the cables of boards", "" if good else loader.RIGHTS)


def _places() -> Iterator[Finding]:
    """Yield the findings about folders: whether they can be written and have room."""
    wanted = chosen()
    cache = cache_directory()
    try:
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        yield Finding("cache", LACKING, f"{cache}: {error.strerror}", "export WEFT_CACHE=$HOME/.cache/weft")
        return
    problem = shared(wanted) if wanted != cache else ""
    yield Finding("cache", LACKING if problem else FINE, problem or str(cache),
                  f"chmod go-w {wanted}" if problem else "")
    free = shutil.disk_usage(cache).free
    good = free >= LEAST_FREE_BYTES
    yield Finding("disk", FINE if good else LACKING, f"{free / (1 << 30):.1f} GiB free",
                  "" if good else f"rm -rf {cache}")
