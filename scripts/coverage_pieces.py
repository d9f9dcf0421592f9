# SPDX-License-Identifier: Apache-2.0
"""Measure lines and branches one file of tests at a time, so that a run that was cut goes on where it stopped.

    python scripts/coverage_pieces.py tb/unit/golden tb/unit/contract --room golden --room hw/contract

What each file of tests reaches is kept in build/coverage_pieces/, and measured again only if that file or a measured
room has changed; a change of what tests share is not seen. build/coverage/rooms.json then has all of it together. With
--room the rows of these rooms in docs/data/coverage.json are written, unless one of them fell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from coverage_table import FOLDER, QUICK, ROOT, check, known, rooms, show, write

from weft.support.errors import WeftError, explain, run_script

PIECES = FOLDER.with_name("coverage_pieces")
NOTHING_CHOSEN = 5
"""Pytest's exit code where every test of a file is for longer runs."""


def digest(files: Iterable[Path]) -> str:
    """Return the first sixteen digits of SHA-256 over the paths and bytes of files."""
    found = sha256()
    for file in sorted(files):
        found.update(f"{file} {file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def files_of(tests: Sequence[str], root: Path = ROOT) -> list[str]:
    """Return the files of tests, relative to ``root``: those given, and those in given folders.

    Raise WeftError for one that is not there."""
    found = []
    for name in tests:
        path = root / name
        if not path.exists():
            raise WeftError(explain("tests", name, "a file or folder of tests", "give a path below tb/"))
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found += [file.relative_to(root).as_posix() for file in files]
    return list(dict.fromkeys(found))


def measured_sources() -> Iterator[Path]:
    """Yield the Python files of every room that is measured."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]
    return (file for room in settings["source"] for file in (ROOT / room).rglob("*.py"))


def measure(test: str, sources: str) -> Path:
    """Return the data of a file of tests, which it measures if they are not there; ``sources``: a digest of the rooms.

    Raise CalledProcessError if a test fails."""
    kept = PIECES / f"{test.replace('/', '+').removesuffix('.py')}+{digest([ROOT / test])}+{sources}"
    if not kept.exists():
        part = PIECES / "part"
        for old in PIECES.glob("part*"):
            old.unlink()
        environment = {**os.environ, "COVERAGE_FILE": str(part)}
        for command in (["run", "-m", "pytest", "--quiet", "-m", QUICK, test], ["combine", "--quiet"]):
            done = subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, env=environment)
            if done.returncode != NOTHING_CHOSEN:
                done.check_returncode()
        part.rename(kept)
    return kept


def together(pieces: Sequence[Path]) -> Path:
    """Combine the data of files of tests; return coverage's JSON of all of it."""
    environment, report = {**os.environ, "COVERAGE_FILE": str(FOLDER / "data")}, FOLDER / "rooms.json"
    for command in (["combine", "--keep", "--quiet", *map(str, pieces)], ["json", "--quiet", "-o", str(report)]):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, env=environment, check=True)
    return report


def main(tests: Annotated[list[str], typer.Argument(metavar="TESTS", help="files and folders of tests")],
         room: Annotated[list[str] | None, typer.Option(help="write the row of this room")] = None) -> None:
    """Measure; write the rows of rooms that are named."""
    for folder in (PIECES, FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
    sources = digest(measured_sources())
    found = rooms(json.loads(together([measure(test, sources) for test in files_of(tests)]).read_text()))
    show(found)
    if room:
        named = {name: found[name] for name in room}
        check(named, {name: counts for name, counts in known().items() if name in named})
        write(" ".join(["scripts/coverage_pieces.py", *tests]), named)


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
