# SPDX-License-Identifier: Apache-2.0
"""Measure which lines and branches of each room the tests run, and write the table of docs/coverage.md.

    python scripts/coverage_table.py [TESTS]

Without TESTS it runs what `make test` runs: three times as long as that, an hour on two cores. A room that falls below
docs/data/coverage.json is refused, and the file stays as it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from tables import number, table

from weft.support.errors import WeftError, explain, run_script

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data" / "coverage.json"
FOLDER = ROOT / "build" / "coverage"
CONTRACT = "hw/contract"
BARS = {"golden": 98, "runtime": 98, CONTRACT: 98, "compiler": 95}
"""The percent of branches that a room is to reach."""
WHAT = {"lines": ("num_statements", "covered_lines"), "branches": ("num_branches", "covered_branches")}
"""What is counted -> coverage's names for how many there are and how many were run."""
QUICK = "not long and not wide"
"""The marks of what `make test` runs, for pytest."""
COMMAND = "make coverage"
UNMET = f"{COMMAND} leaves build/coverage/rooms.json"
Rooms = dict[str, dict[str, int]]


# -- measuring ---------------------------------------------------------------------------------------------------------
def run(tests: list[str]) -> None:
    """Run tests and what they start under coverage, a part of the data for each process; combine them as JSON.

    Raise CalledProcessError if a test fails."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    coverage, data = [sys.executable, "-m", "coverage"], {**os.environ, "COVERAGE_FILE": str(FOLDER / "data")}
    pytest = ["-m", "pytest", "--numprocesses", "auto", "--dist", "worksteal", "-m", QUICK, *tests]
    for command in (["run", *pytest], ["combine", "--quiet"], ["json", "--quiet", "-o", str(FOLDER / "rooms.json")]):
        subprocess.run([*coverage, *command], cwd=ROOT, env=data, check=True)


def rooms(report: Mapping[str, Any]) -> Rooms:
    """Return room -> counts of statements and branches, from coverage's own JSON."""
    found: Rooms = {}
    for file, each in report["files"].items():
        room = CONTRACT if file.startswith(f"{CONTRACT}/") else file.partition("/")[0]
        counts = found.setdefault(room, dict.fromkeys(chain(*WHAT.values()), 0))
        for name in counts:
            counts[name] += each["summary"][name]
    return dict(sorted(found.items()))


def share(counts: Mapping[str, int], what: str, names: Mapping[str, tuple[str, str]] = WHAT) -> float:
    """Return the percent of what is counted that was run, cut to a tenth; 100 if there is none. ``names`` as WHAT."""
    there, run = (counts[name] for name in names[what])
    return 1000 * run // there / 10 if there else 100.0


def check(found: Rooms, before: Rooms, names: Mapping[str, tuple[str, str]] = WHAT, unmet: str = UNMET) -> None:
    """Raise WeftError if a share of a room fell. ``names`` as WHAT; ``unmet``: words on where to see what is missed."""
    for room, counts in before.items():
        for what in names:
            old, new = share(counts, what, names), share(found[room], what, names) if room in found else 0.0
            if new < old:
                raise WeftError(explain(f"{what} of {room} that tests run", f"{new} %", f"at least {old} %",
                                        f"write tests for what is new ({unmet})"))


def show(found: Rooms) -> None:
    """Print the shares of each room."""
    for room, counts in found.items():
        print(f"{room:12} lines {share(counts, 'lines'):5} %, branches {share(counts, 'branches'):5} %")


def head() -> str:
    """Return the first eight digits of the commit that is checked out."""
    return subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, text=True, capture_output=True,
                          check=True).stdout.strip()


def runs() -> list[dict[str, Any]]:
    """Return the runs of docs/data/coverage.json: what was run, at which commit, and the rows of rooms."""
    found: list[dict[str, Any]] = json.loads(DATA.read_text())["runs"]
    return found


def known() -> Rooms:
    """Return the counts of all rooms that are in docs/data/coverage.json."""
    return {room: counts for each in runs() for room, counts in each["rooms"].items()}


def write(command: str, found: Rooms) -> None:
    """Write the rows of rooms into docs/data/coverage.json, with what was run at this commit. Others stay."""
    kept = [{**each, "rooms": {room: counts for room, counts in each["rooms"].items() if room not in found}}
            for each in runs()]
    made = [*(each for each in kept if each["rooms"]), {"command": command, "commit": head(), "rooms": found}]
    DATA.write_text(json.dumps({"runs": made}, indent=1) + "\n")


# -- the table ---------------------------------------------------------------------------------------------------------
def measured() -> str:
    """Return the table of rooms, under what was run."""
    all_runs = runs()
    of_room = {room: run for run, each in enumerate(all_runs, 1) for room in each["rooms"]}
    rows = [(f"`{room}`", number(counts["num_statements"]), f"{share(counts, 'lines')} %",
             number(counts["num_branches"]), f"{share(counts, 'branches')} %",
             f"{BARS[room]} %" if room in BARS else "", str(of_room[room])) for room, counts in sorted(known().items())]
    heads = [f"{run}. `{each['command']}` at commit `{each['commit']}`" for run, each in enumerate(all_runs, 1)]
    names = ("room", "statements", "lines run", "branches", "branches run", "bar", "run")
    return "\n".join(heads) + "\n\n" + table(names, rows)


TABLES: dict[str, Callable[[], str]] = {"coverage": measured}


def main(tests: Annotated[list[str] | None, typer.Argument(metavar="TESTS", help="what pytest runs; default: all of "
                                                           "make test, and the table is written")] = None) -> None:
    """Measure; write docs/data/coverage.json if no room fell."""
    run(tests or [])
    found = rooms(json.loads((FOLDER / "rooms.json").read_text()))
    show(found)
    if not tests:
        check(found, known())
        write(COMMAND, found)


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
