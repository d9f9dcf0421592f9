# SPDX-License-Identifier: Apache-2.0
"""Call Verilator and make while a simulation is built, with the flags of g++."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.simulate import toolchain
from weft.simulate.leftovers import run_group

RUN_FAST = "-O2 -fno-tree-pre"
"""The flags for long runs.

Without the search for partial redundancies simulations are a fiftieth faster: in functions as large as Verilator's,
finding and keeping them costs more than they save."""
OWN_PROCESSOR = "-march=native"
"""The flag that goes with RUN_FAST where g++ knows it: all instructions of this processor, 3 % of a long run."""
BUILD_FAST = "-O1 --param sccvn-max-alias-queries-per-access=8"
"""The flags for short runs, such as those of tests: g++ takes half as long, the program runs an eighth slower.

The parameter bounds the search for equal loads (1000 by default), which in functions as large as Verilator's is a third
of -O1."""
LOG_TAIL_LINES = 60


class BuildError(Exception):
    """The error that Verilator or the C++ compiler refused the design; its message has the end of their output."""


def optimise() -> str:
    """Return the flags of g++: those in the environment variable WEFT_SIMULATOR_FLAGS, else those for long runs."""
    own = f"{RUN_FAST} {OWN_PROCESSOR}" if toolchain.processor() else RUN_FAST
    return os.environ.get("WEFT_SIMULATOR_FLAGS", own)


def log_tail(log: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def make(directory: Path, target: str, variables: Mapping[str, str], log: Path, makefile: str = "Vtop.mk") -> None:
    """Make a target of Verilator's makefile. Raise BuildError if it fails."""
    jobs = len(os.sched_getaffinity(0))
    assignments = [f"{name}={value}" for name, value in variables.items()]
    call(["make", f"-j{jobs}", "-f", makefile, *assignments, target], directory, log, {"MAKEFLAGS": ""})


def call(command: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> None:
    """Run a command of a build in ``directory``, and append it with its output to ``log``.

    Raise BuildError if it fails."""
    with log.open("a") as output:
        output.write(shlex.join(command) + "\n")
        output.flush()
        code = run_group(command, directory, output, {**os.environ, **environment})
    if code != 0:
        raise BuildError(f"building a simulation failed with exit code {code}:\n{log_tail(log)}")
