# SPDX-License-Identifier: Apache-2.0
"""Every network on every preset: cycles, accuracy and resources, as JSON, as a table in Markdown and as a page.

    python scripts/zoo.py [--rtl] [--only NETWORK] [--arch PRESET] [--jobs COUNT] [--output DIR]

Networks are the demo's, the benchmark's and those of ../shared where these are. A network that a preset cannot run has
a line that says why. The file is written each time the machines of one size and data type are done with a network. So a
run that was broken off leaves what it had. The next run goes on from there, if no row can have changed since. `make
docs MEASURED=1` takes what is in build/zoo/ over into docs/data/zoo.json.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import bench
import typer
import zoo_cells
import zoo_table

from weft.hw.contract.arch import Arch
from weft.hw.contract.presets import presets
from weft.support.errors import WeftError, explain, run_script
from weft.support.outputs import Kind, write_text
from weft.support.processes import pool

DEMO = {"digits": bench.ROOT / "models" / "digits" / "digits.onnx"}
DECIMALS = 4
"""The decimals of numbers in the file."""
UNKNOWN = "unknown"
"""The commit of sources that are no checkout."""
KINDS = {"zoo.json": Kind.of_head("a measured zoo", r'\{"commit": '),
         "zoo.md": Kind.of_head("a table of the zoo", r"\| network \|"),
         "zoo.html": Kind.of_head("a page of the zoo", '<!doctype html>.*<title>Networks on presets, ')}
"""Name of a file that is written -> its kind."""
NO_PART = ("*.md", "docs", "report", "tb", "scripts/docs.py", "scripts/zoo.py", "scripts/zoo_table.py")
"""The files that no row depends on."""


Cell = tuple[str, str]
"""A network and a preset."""


@dataclass
class Zoo:
    """The results: ``cells``: what was measured of each, or why it was not; ``cpu_seconds``: of all of it."""

    cells: dict[Cell, dict[str, Any] | str] = field(default_factory=dict)
    cpu_seconds: float = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of what was measured."""
        return [found for found in self.cells.values() if not isinstance(found, str)]

    @property
    def refused(self) -> list[tuple[str, str, str]]:
        """Network, preset and reason of what was not measured."""
        return [(*cell, why) for cell, why in self.cells.items() if isinstance(why, str)]

    def sort(self, names: Sequence[str], machines: Sequence[str]) -> None:
        """Sort the cells into the order of ``names``, the machines of each into theirs."""
        place = {name: index for index, name in enumerate((*names, *machines))}
        self.cells = dict(sorted(self.cells.items(), key=lambda item: [place.get(name, -1) for name in item[0]]))


def networks() -> dict[str, Path | None]:
    """Return name -> file, None if it is neither shared nor built here."""
    shared = {path.stem: path for path in sorted(bench.SHARED.glob("*.onnx"))}
    taken = {bench.SHARED_NAMES.get(name, name) for name in (*bench.NETWORKS, *bench.WITHOUT_BAR)}
    found: dict[str, Path | None] = dict(DEMO)
    found |= {name: bench.network_file(name) for name in (*bench.NETWORKS, *bench.WITHOUT_BAR)}
    return {**found, **{name: path for name, path in shared.items() if name not in taken}}


def families(machines: Sequence[str]) -> list[list[str]]:
    """Return the machines that share their array size, data type and number of cores, in their order."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for machine in machines:
        arch = Arch.load(machine)
        found.setdefault((arch.data_type, arch.array_size, arch.cores), []).append(machine)
    return [*found.values()]


def collect(zoo: Zoo, names: dict[str, Path | None], machines: Sequence[str], *, on_rtl: bool,
            jobs: int) -> Iterator[None]:
    """Measure what ``zoo`` does not have, network by network, and put it there.

    Yield after each family of machines."""
    zoo.cells |= {(name, "all"): f"needs {bench.SHARED}" for name, path in names.items() if path is None}
    lacking = [(name, path, [machine for machine in family if (name, machine) not in zoo.cells])
               for name, path in names.items() if path is not None for family in families(machines)]
    with pool(jobs) as executor:
        waiting = {executor.submit(zoo_cells.measured, name, path, family, on_rtl): name
                   for name, path, family in lacking if family}
        for future in as_completed(waiting):
            found, seconds = future.result()
            zoo.cells |= {(waiting[future], machine): row for machine, row in found.items()}
            zoo.cpu_seconds += seconds
            yield


def broken_off(file: Path, commit: str, *, on_rtl: bool) -> Zoo:
    """Return the results of an earlier run, if it measured the same sources and not less."""
    found = json.loads(file.read_text()) if file.is_file() else {}
    if not unchanged(found.get("commit", UNKNOWN), commit):
        return Zoo()
    rows = {(row["network"], row["arch"]): row for row in found["rows"] if row["cycles_rtl"] or not on_rtl}
    return Zoo({**rows, **{(name, machine): why for name, machine, why in found["refused"]}}, found["cpu_seconds"])


def write(zoo: Zoo, folder: Path, commit: str) -> None:
    """Write the zoo as data, as a table and as a page."""
    today = f"{datetime.date.today()}"
    content = {"commit": commit, "date": today, "cpu_seconds": round(zoo.cpu_seconds), "rows": [
        {key: round(value, DECIMALS) if isinstance(value, float) else value for key, value in row.items()}
        for row in zoo.rows], "refused": zoo.refused}
    for name, text in (("zoo.json", _a_row_a_line(content)), ("zoo.md", zoo_table.markdown(zoo.rows, zoo.refused)),
                       ("zoo.html", zoo_table.page(zoo.rows, zoo.refused,
                                                   f"Networks on presets, commit {commit}, {today}"))):
        write_text(folder / name, text, KINDS[name])


def _a_row_a_line(content: dict[str, Any]) -> str:
    """Return JSON in which a change of a row is a change of a line."""
    def text(value: object) -> str:
        if isinstance(value, list):
            return "[\n" + ",\n".join(json.dumps(each) for each in value) + "\n]"
        return json.dumps(value)

    return "{" + ",\n".join(f"{json.dumps(key)}: {text(value)}" for key, value in content.items()) + "}\n"


def unchanged(before: str, commit: str) -> bool:
    """Return whether both commits are states of the checkout, and differ at most in NO_PART."""
    if any(state.endswith(("-dirty", UNKNOWN)) for state in (before, commit)):
        return False
    differ = ["git", "diff", "--quiet", before, commit, "--", ".", *(f":(exclude){path}" for path in NO_PART)]
    return before == commit or not subprocess.run(differ, cwd=bench.ROOT, capture_output=True, check=False).returncode


def commit_here() -> str:
    """Return the commit of the checkout, with a mark if it was changed since."""
    asked = subprocess.run(["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"], cwd=bench.ROOT,
                           capture_output=True, text=True, check=False)
    return asked.stdout.strip() or UNKNOWN


def main(
    rtl: Annotated[bool, typer.Option("--rtl", help="in RTL too")] = False,
    only: Annotated[str, typer.Option(help="one network")] = "",
    arch: Annotated[str, typer.Option(help="one preset")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="processes; default: one a core")] = os.cpu_count() or 1,
    output: Annotated[Path, typer.Option(help="folder")] = bench.ROOT / "build" / "zoo",
) -> None:
    """Measure the zoo, and write it."""
    commit, known, machines = commit_here(), networks(), list(presets())
    for found, allowed, what in ((only, list(known), "--only"), (arch, machines, "--arch")):
        if found and found not in allowed:
            raise WeftError(explain(what, found, ", ".join(allowed), "name one of them"))
    chosen = {name: path for name, path in known.items() if only in ("", name)}
    output.mkdir(parents=True, exist_ok=True)
    began, zoo = time.monotonic(), broken_off(output / "zoo.json", commit, on_rtl=rtl)
    for _ in collect(zoo, chosen, [arch] if arch else machines, on_rtl=rtl, jobs=jobs):
        zoo.sort(list(known), machines)
        write(zoo, output, commit)
        print(f"{len(zoo.rows)} measured, {len(zoo.refused)} refused, {time.monotonic() - began:.0f} s, "
              f"{zoo.cpu_seconds:.0f} s of CPU", file=sys.stderr, flush=True)
    print(output / "zoo.html")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
