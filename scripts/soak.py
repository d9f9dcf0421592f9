# SPDX-License-Identifier: Apache-2.0
"""Try random cases of every kind for hours, on all cores or a Dask cluster; resumable.

    python scripts/soak.py --hours 8                              # all kinds, into build/soak/
    python scripts/soak.py --hours 1 --kind resets --jobs 1       # one kind
    python scripts/soak.py --hours 1 --kind programs --machine lanes2 --machine lanes4_int8
    python scripts/soak.py --hours 8 --scheduler tls://HOST:8786  # on other machines

The folder has ``next_seeds.json``, where the next run goes on, and a text in ``failures/`` for each case that failed,
made small, with the command that repeats it. A failure ends nothing. Exit code 2 if there was one."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from weft.explore.workers import Keys, dask
from weft.support.errors import WeftError, explain, run_script
from weft.support.files import MOST_BYTES
from weft.support.outputs import Kind, check_output, write_text
from weft.support.strict_json import parse_object, read_object
from weft.tb.random.soak import FIRST_SEED, KINDS, Job, jobs, run

STATE = Kind("the next seeds of a soak run", lambda file: all(
    type(seed) is int for seed in parse_object(file.read(MOST_BYTES)).values()))
FAILURE = Kind.of_head("a failure of a soak run", "soak: ")
FAILED = 2


@contextlib.contextmanager
def workers(count: int, scheduler: str | None, keys: tuple[Path, ...]) -> Iterator[tuple[Executor, int]]:
    """Yield who runs the jobs, and how many run at a time: processes of this machine, or a Dask cluster's workers."""
    if scheduler:
        with dask(count, scheduler, Keys.read(*keys) if keys else None) as (executor, threads):
            yield executor, threads
    else:
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as executor:
            yield executor, count


def save(folder: Path, job: Job, failures: list[str]) -> None:
    """Write a job's failure to a file of its own."""
    name = f"{job.name} {job.seeds.start}".replace(" ", "_")
    write_text(folder / "failures" / f"{name}.txt", f"soak: {job.name}, {job.seeds}\n\n" + "\n\n".join(failures) + "\n",
               FAILURE)


def soak(executor: Executor, at_a_time: int, kinds: list[str], only: list[str], folder: Path, seconds: float,
         console: Console) -> tuple[Counter[str], Counter[str]]:
    """Run jobs for so long; return how many cases of each kind ran, and how many of their jobs failed.

    Jobs that began are waited for, and at least one runs for each worker. The next seeds are written after each."""
    state = folder / "next_seeds.json"
    next_seed = read_object(state, "state", STATE.name, "name another folder") if state.exists() else {}
    done, failed, end = Counter[str](), Counter[str](), time.monotonic() + seconds
    coming, running = jobs(kinds, next_seed, only), dict[Future[list[str]], Job]()
    while True:
        while len(running) < at_a_time and (time.monotonic() < end or sum(done.values()) == 0):
            job = next(coming)
            running[executor.submit(run, job)] = job
        if not running:
            return done, failed
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job, failures = running.pop(future), future.result()
            done[job.kind] += len(job.seeds)
            if failures:
                failed[job.kind] += 1
                save(folder, job, failures)
                console.print(f"{job.name}, seeds from {job.seeds.start}: {failures[0].splitlines()[0]}", markup=False)
            write_text(state, json.dumps(next_seed, indent=1), STATE)


def table(done: Counter[str], failed: Counter[str], next_seed: dict[str, int]) -> Table:
    """Return the totals of this run, and of all runs in the folder."""
    found = Table("kind", "cases", "all runs", "jobs that failed")
    for kind, row in KINDS.items():
        every = sum(next_seed.get(f"{kind} {machine}", FIRST_SEED) - FIRST_SEED for machine in row.machines)
        found.add_row(kind, str(done[kind]), str(every), str(failed[kind]))
    return found


def main(
    hours: Annotated[float, typer.Option(min=0, help="how long; jobs that began then end first")] = 1,
    kind: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(KINDS)}; all unless named")] = None,
    machine: Annotated[list[str] | None, typer.Option(help="of the kind's machines; all unless named")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes at a time")] = os.cpu_count() or 1,
    folder: Annotated[Path, typer.Option(help="where seeds and failures are kept")] = Path("build/soak"),
    scheduler: Annotated[str | None, typer.Option(help="a Dask scheduler, tls://HOST:PORT")] = None,
    tls: Annotated[list[Path] | None, typer.Option(help="files in PEM: authority, certificate, key")] = None,
) -> None:
    """Try random cases until the time is over."""
    unknown = [name for name in kind or [] if name not in KINDS]
    if unknown:
        raise WeftError(explain("--kind", unknown[0], ", ".join(KINDS), "name one of them, or leave it out"))
    machines = dict.fromkeys(name for each in kind or KINDS for name in KINDS[each].machines)
    strangers = [name for name in machine or [] if name not in machines]
    if strangers:
        raise WeftError(explain("--machine", strangers[0], ", ".join(machines), "name one of them, or leave it out"))
    if tls and len(tls) != 3:
        raise WeftError(explain("--tls", f"{len(tls)} files", "3: authority, certificate, key", "give it three times"))
    (folder / "failures").mkdir(parents=True, exist_ok=True)
    check_output(folder / "next_seeds.json", STATE)
    console = Console()
    with workers(jobs, scheduler, tuple(tls or ())) as (executor, count):
        done, failed = soak(executor, count, kind or list(KINDS), machine or [], folder, 3600 * hours, console)
    console.print(table(done, failed, read_object(folder / "next_seeds.json", "state", STATE.name, "")))
    raise SystemExit(FAILED if failed else 0)


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
