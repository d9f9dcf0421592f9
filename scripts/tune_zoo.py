# SPDX-License-Identifier: Apache-2.0
"""Measure what `weft compile --tune` gains for the networks of the zoo: cycles before and after, and the mean.

    python scripts/tune_zoo.py [--seconds 100] [--only NETWORK] [--arch PRESET] [--jobs 2] [--output build/tuning]

A search runs in one process, and its seconds are of CPU: what else the machine does hardly changes what is found. So
100 of them are what 60 seconds on two processors are. A row is written as soon as it is known, and a later run goes on
with the cells that have none. Cells that the zoo refuses have none.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import as_completed
from pathlib import Path
from typing import Annotated, Any

import bench
import typer
import zoo
import zoo_cells
from rich.console import Console
from rich.table import Table

from weft.compiler.pipeline import run_parts
from weft.compiler.tuning import judge
from weft.compiler.tuning.network import problem_of
from weft.compiler.tuning.search import Budget, tune
from weft.hw.contract.dram import IdealDram
from weft.support.errors import WeftError, run_script
from weft.support.outputs import Kind, check_output, write_text
from weft.support.processes import Here, pool

PRESETS = ("pynq", "ultra96", "zcu104_int8")
ROWS = Kind.of_head("what tuning gained", r'\{"network": ')
Row = dict[str, Any]


def tuned(name: str, path: Path, preset: str, seconds: float) -> Row | str:
    """Return the row of a cell, or why the network does not run on the machine."""
    try:
        request = zoo_cells.request(path)
        _, made = run_parts(request, bench.machine(name, preset), last="consts")
    except WeftError as error:
        return str(error)
    problems = [problem_of(request, products, IdealDram()) for products in made]
    judge.begin(problems)
    began = time.process_time()
    found = tune(problems, Budget(seconds=seconds), Here(), lambda *_: None, time.process_time)
    return {"network": name, "arch": preset, "before": sum(each.before.cycles for each in found),
            "after": sum(each.after.cycles for each in found), "cpu_seconds": round(time.process_time() - began)}


def table(rows: list[Row]) -> Table:
    """Return a row for each network, a column for each preset: the share of cycles that tuning saved."""
    by_cell = {(row["network"], row["arch"]): 1 - row["after"] / row["before"] for row in rows}
    found = Table("network", *PRESETS)
    for name in dict.fromkeys(row["network"] for row in rows):
        gains = [by_cell.get((name, preset)) for preset in PRESETS]
        found.add_row(name, *("" if gain is None else f"{gain:.2%}" for gain in gains))
    found.add_row(f"mean of {len(rows)}", f"{sum(by_cell.values()) / max(len(by_cell), 1):.2%}")
    return found


def main(
    seconds: Annotated[float, typer.Option(min=0, help="CPU seconds of each search")] = 100,
    only: Annotated[list[str] | None, typer.Option(help="networks of the zoo; all unless named")] = None,
    arch: Annotated[list[str] | None, typer.Option(help=f"presets; {', '.join(PRESETS)} unless named")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="searches at a time")] = 2,
    output: Annotated[Path, typer.Option(help="the folder of tuning.jsonl")] = Path("build/tuning"),
) -> None:
    """Search for each cell that has no row yet, and print all rows."""
    file, console = output / "tuning.jsonl", Console()
    check_output(file, ROWS)
    rows: list[Row] = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {(row["network"], row["arch"]) for row in rows}
    names = {name: path for name, path in zoo.networks().items() if path is not None and name in (only or {name})}
    with pool(jobs) as executor:
        waiting = {executor.submit(tuned, name, path, preset, seconds): (name, preset)
                   for name, path in names.items() for preset in arch or PRESETS if (name, preset) not in known}
        for future in as_completed(waiting):
            found = future.result()
            if isinstance(found, str):
                console.print(*waiting[future], found, markup=False)
                continue
            rows.append(found)
            write_text(file, "".join(json.dumps(row) + "\n" for row in rows), ROWS)
    console.print(table(rows))


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
