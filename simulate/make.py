"""Calls Verilator and make while a simulation is built, and says what g++ is told."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.simulate.leftovers import run_group

RUN_FAST = "-O2 -fno-tree-pre"
"""What partial redundancies cost to find and to keep in registers, in functions as large as Verilator's, is more than
they are: without, simulations are a fiftieth faster."""
BUILD_FAST = "-O1 --param sccvn-max-alias-queries-per-access=8"
"""For short runs, such as those of tests: g++ takes half as long, and the program runs an eighth slower. The parameter
bounds the search for equal loads (1000 by default), which in functions as large as Verilator's is a third of -O1."""
LOG_TAIL_LINES = 60


class BuildError(Exception):
    """Verilator or the C++ compiler refused the design; the message holds the tail of what they said."""


def optimise() -> str:
    """Flags of g++: RUN_FAST, unless the environment variable WEFT_SIMULATOR_FLAGS says others."""
    return os.environ.get("WEFT_SIMULATOR_FLAGS", RUN_FAST)


def log_tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def make(directory: Path, target: str, variables: Mapping[str, str], log: Path, makefile: str = "Vtop.mk") -> None:
    """Raises BuildError."""
    jobs = len(os.sched_getaffinity(0))
    assignments = [f"{name}={value}" for name, value in variables.items()]
    call(["make", f"-j{jobs}", "-f", makefile, *assignments, target], directory, log, {"MAKEFLAGS": ""})


def call(command: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> None:
    """Run a command of a build in ``directory``; it and what it says are appended to ``log``. Raises BuildError."""
    with log.open("a") as output:
        output.write(shlex.join(command) + "\n")
        output.flush()
        code = run_group(command, directory, output, {**os.environ, **environment})
    if code != 0:
        raise BuildError(f"building a simulation failed with exit code {code}:\n{log_tail(log)}")
