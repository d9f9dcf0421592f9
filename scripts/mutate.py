# SPDX-License-Identifier: Apache-2.0
"""Make every break of tb/mutations in a copy of the sources, and run the test that must find it.

    python scripts/mutate.py [--json] [--jobs N] [id ...]               all of them, or those named
    python scripts/mutate.py --draw COUNT [--seed N] [--room ROOM ...]  drawn ones, COUNT in each room
    python scripts/mutate.py --draw COUNT --near FILES                  by so many test files nearest to each

First the tests run unbroken. Exit code 1 if one fails then, if a break survives, or if its text is not found."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Queue

from weft.tb.mutations import Break, breaks
from weft.tb.mutations.drawn import ROOMS, Drawn, draw
from weft.tb.mutations.nearest import nearest

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__")
"""The files that are left out of the copy: no test reads them."""
TIMEOUT_SECONDS = 600
"""The time for one break: longer than any of its tests takes unbroken. A room's tests, which all run for a drawn one,
get as much as they took unbroken besides."""
PASSED, FAILED = 0, 1
"""The exit codes of pytest; others mean that there was nothing to run."""
KILLED, SURVIVED, HUNG, NO_TEST, NO_TEXT = "killed", "SURVIVED", "HUNG", "NO TEST", "NO TEXT"
OUTCOMES = {PASSED: SURVIVED, FAILED: KILLED, None: HUNG}
KILLERS_FIRST = 5
"""Test files that killed the most drawn breaks of a room run before its other tests."""
KILLERS: dict[str, Counter[str]] = {room: Counter() for room in ROOMS}
RUNNING: set[int] = set()
"""The process groups of the tests that run: they are killed with all simulators that they started."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a break. ``says``: the last line of the test, or why there was none."""

    id: str
    outcome: str
    seconds: float
    file: str
    test: str
    meaning: str
    says: str


def run_tests(tree: Path, tests: list[str], *, keep_bytecode: bool = False,
              seconds: float = TIMEOUT_SECONDS) -> tuple[int | None, str]:
    """Return exit code, None if they took too long, and output of pytest in a copy of the sources."""
    # Python tells an old module's bytecode by time and size, which two breaks of a file may share: only the unbroken
    # sources' is kept.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "" if keep_bytecode else "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=line", *(() if keep_bytecode else ("-x",)),
               "-p", "no:cacheprovider", "-m", "not long and not wide", *tests]
    with subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, start_new_session=True) as process:
        RUNNING.add(process.pid)
        try:
            output, _ = process.communicate(timeout=None if keep_bytecode else seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, f"longer than {seconds:.0f} s"
        finally:
            RUNNING.discard(process.pid)
    return process.returncode, output


def end(*_: object) -> None:
    """End the tests that run, and raise KeyboardInterrupt: a signal asked for the end."""
    for group in list(RUNNING):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    raise KeyboardInterrupt


@contextmanager
def broken(tree: Path, entry: Break) -> Iterator[None]:
    """Put one break into the copy for as long as the block runs. Raise ValueError if its text is not found."""
    path = tree / entry.file
    original, times = path.read_text(), path.stat()
    path.write_text(entry.applied(original))
    os.utime(path, (1, 1))
    try:
        yield
    finally:
        path.write_text(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def order(entry: Break) -> list[str]:
    """Return the tests of a break: first those files that killed most others, if a whole room is to be run."""
    if not isinstance(entry, Drawn):
        return entry.tests
    return [file for file, _ in KILLERS[entry.room].most_common(KILLERS_FIRST)] + entry.tests


def try_break(tree: Path, entry: Break, seconds: float) -> Outcome:
    """Return the outcome of one break in a copy of the sources, whose tests get ``seconds``."""
    begin = time.monotonic()
    try:
        with broken(tree, entry):
            code, output = run_tests(tree, order(entry), seconds=seconds)
        outcome = OUTCOMES.get(code, NO_TEST)
    except (OSError, ValueError) as error:
        outcome, output = NO_TEXT, str(error)
    says = [line for line in output.splitlines() if line.strip()] or [""]
    first = next((line for line in says if line.startswith(("FAILED", "ERROR"))), says[-1])
    if isinstance(entry, Drawn) and outcome == KILLED and "::" in first:
        KILLERS[entry.room][first.split()[1].partition("::")[0]] += 1
    return Outcome(entry.id, outcome, time.monotonic() - begin, entry.file, entry.test, entry.meaning, first)


def trees(folder: Path, count: int) -> Queue[Path]:
    """Return copies of the sources, one for each break that runs at a time."""
    found: Queue[Path] = Queue()
    for number in range(count):
        tree = folder / f"tree{number}"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        found.put(tree)
    return found


def run_all(chosen: list[Break], jobs: int) -> Iterator[Outcome]:
    """Yield outcomes as they come, in the order of the list. Raise RuntimeError if a test fails unbroken."""
    with tempfile.TemporaryDirectory(prefix="weft-mutate-") as folder:
        free = trees(Path(folder), jobs)
        unbroken = free.get()
        begin, tests = time.monotonic(), list(dict.fromkeys(test for entry in chosen for test in entry.tests))
        code, output = run_tests(unbroken, tests, keep_bytecode=True)
        if code != PASSED:
            raise RuntimeError(f"tests fail, or are missing, without any break:\n{output[-3000:]}")
        free.put(unbroken)
        seconds = TIMEOUT_SECONDS + time.monotonic() - begin

        def one(entry: Break) -> Outcome:
            tree = free.get()
            try:
                return try_break(tree, entry, seconds)
            finally:
                free.put(tree)

        pool = ThreadPoolExecutor(jobs)
        try:
            yield from pool.map(one, chosen)
        finally:
            pool.shutdown(cancel_futures=True)


def line(found: Outcome) -> str:
    """Return the line that tells of an outcome."""
    return f"{found.outcome:9}{found.seconds:7.1f} s  {found.id:24} {found.file:36} {found.test}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options, with ``chosen``, the breaks that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="of breaks; all when none is named")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--jobs", type=int, default=1, help="breaks tried side by side, each in a copy of its own")
    parser.add_argument("--draw", type=int, default=0, metavar="COUNT", help="draw so many breaks in each room")
    parser.add_argument("--seed", type=int, default=0, help="of the breaks that are drawn")
    parser.add_argument("--near", type=int, default=0, metavar="FILES",
                        help="run so many test files that are nearest to a drawn break, and not all of its room")
    parser.add_argument("--room", action="append", choices=ROOMS, help="where to draw (may be repeated); else in all")
    options = parser.parse_args(arguments)
    known = {entry.id: entry for entry in breaks()}
    missing = [name for name in options.ids if name not in known]
    if missing or options.jobs < 1:
        parser.error(f"no break is called {', '.join(missing)}; there are {', '.join(known)}" if missing
                     else "--jobs must be 1 or more")
    if options.draw < 0 or (options.ids and options.draw):
        parser.error("--draw takes a count of 1 or more, and no ids beside it")
    drawn = [entry for room in options.room or ROOMS for entry in draw(room, options.draw, options.seed)]
    if options.near:
        drawn = [replace(entry, test=" ".join(nearest(entry.file, options.near)) or entry.test) for entry in drawn]
    options.chosen = drawn or [known[name] for name in options.ids] or list(known.values())
    return options


def by_room(found: list[Outcome], chosen: list[Break]) -> Iterator[str]:
    """Yield a line for each room of drawn breaks: how many of them were found, by a failing test or by no end."""
    rooms = {entry.id: entry.room for entry in chosen if isinstance(entry, Drawn)}
    for room in dict.fromkeys(rooms.values()):
        outcomes = [outcome.outcome for outcome in found if rooms.get(outcome.id) == room]
        yield f"{room}: {sum(each in (KILLED, HUNG) for each in outcomes)} of {len(outcomes)}"


def main(arguments: list[str] | None = None) -> int:
    """Try the breaks; return the exit code."""
    options = parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    begin, found = time.monotonic(), []
    try:
        for outcome in run_all(options.chosen, options.jobs):
            found.append(outcome)
            if not options.json:
                print(line(outcome), flush=True)
                if outcome.outcome != KILLED:
                    print(f"{'':20}{outcome.meaning}; {outcome.says}", flush=True)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    seconds, killed = time.monotonic() - begin, sum(outcome.outcome == KILLED for outcome in found)
    if options.json:
        print(json.dumps({"seconds": seconds, "killed": killed, "breaks": [asdict(each) for each in found]}, indent=1))
    else:
        for text in by_room(found, options.chosen):
            print(text)
        print(f"{killed} of {len(found)} breaks killed, {seconds:.0f} s with the tests unbroken first")
    return 0 if killed == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
