# SPDX-License-Identifier: Apache-2.0
"""A built simulation, and how cocotb tests run on it.

Unless all of them pass, ``run_simulation`` raises ``SimulationError`` with the log's tail, the seed and the command to
repeat."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.simulate import coverage, toolchain
from weft.simulate.leftovers import run_group
from weft.simulate.make import log_tail

MOST_SEED = (1 << 31) - 2
"""The largest seed of Verilator, whose 0 means one of its own."""


@dataclass(frozen=True)
class Simulation:
    """A simulator, and the top module that it simulates.

    ``random_start``: what has no initial value begins random, decided by the run's seed. ``covered``: it counts
    coverage (``coverage.py``)."""

    program: Path
    top: str
    traceable: bool
    random_start: bool = False
    covered: bool = False

    @property
    def design(self) -> str:
        """Return the name of the design, which is equal for equal content and options."""
        return self.program.parent.name


@dataclass(frozen=True)
class RunResult:
    """One run: where it ran, what it printed, and how to repeat it."""

    directory: Path
    log_file: Path
    seed: int
    command: str


class SimulationError(Exception):
    """The error that a test failed, the simulator stopped early, or the watchdog fired.

    ``result`` says where everything is."""

    def __init__(self, reason: str, result: RunResult) -> None:
        self.reason, self.result, self.log_tail = reason, result, log_tail(result.log_file)
        super().__init__(f"{reason}\n{self.log_tail}\nseed {result.seed}, log {result.log_file}\n"
                         f"repeat with: {result.command}")


def run_simulation(simulation: Simulation, test_module: str, *, directory: Path,
                   environment: Mapping[str, str] | None = None, plusargs: Sequence[str] = (),
                   python_path: Sequence[Path] = (), testcase: str | None = None, seed: int | None = None,
                   timeout_seconds: float = 600, trace: bool = False) -> RunResult:
    """Run the cocotb tests of ``test_module`` (all, or ``testcase``) in ``directory``; return when all have passed.

    The test finds ``environment`` in os.environ, modules in ``python_path`` besides the running interpreter's, and
    ``seed`` (chosen when None) in cocotb.RANDOM_SEED. ``directory`` gets run.log, results.xml, repeat.sh and the
    trace."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    seed = random.getrandbits(31) if seed is None else seed
    extra = {
        **toolchain.simulation_environment(),
        **(environment or {}),
        "COCOTB_TOPLEVEL": simulation.top,
        "COCOTB_TEST_MODULES": test_module,
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_RESULTS_FILE": str(directory / "results.xml"),
        "PYTHONPATH": os.pathsep.join([*map(str, python_path), *filter(None, sys.path)]),
    }
    if testcase:
        extra["COCOTB_TEST_FILTER"] = rf"\.{testcase}$"
    start = ["+verilator+rand+reset+2", f"+verilator+seed+{seed % MOST_SEED + 1}"] if simulation.random_start else []
    command = [str(simulation.program), *plusargs, *start, *(["+weft_trace"] if trace else [])]
    script = directory / "repeat.sh"
    exports = [f"export {name}={shlex.quote(text)}" for name, text in extra.items() if os.environ.get(name) != text]
    script.write_text("\n".join([f"cd {shlex.quote(str(directory))}", *exports, f"exec {shlex.join(command)}", ""]))
    result = RunResult(directory, directory / "run.log", seed, f"sh {script}")
    (directory / "results.xml").unlink(missing_ok=True)
    with result.log_file.open("w") as log:
        try:
            code = run_group(command, directory, log, extra, timeout_seconds)
        except subprocess.TimeoutExpired:
            raise SimulationError(f"no end after {timeout_seconds} s: stopped by the watchdog", result) from None
    if reason := _failure(code, result):
        raise SimulationError(reason, result)
    if simulation.covered:
        coverage.add(directory / coverage.OF_A_RUN, simulation.design)
    return result


def _failure(exit_code: int, result: RunResult) -> str | None:
    """Return why the run has not passed: the simulator's message first, then the first failed test; None if passed."""
    for line in result.log_file.read_text(errors="replace").splitlines():
        if "%Fatal" in line or "%Error" in line:
            return line
    if not (results := result.directory / "results.xml").exists():
        return f"the simulator ended with exit code {exit_code} and without results"
    cases = list(xml.etree.ElementTree.parse(results).iter("testcase"))
    for case in cases:
        for failure in (*case.iter("failure"), *case.iter("error")):
            return f"{case.get('name')} failed: {failure.get('message') or failure.get('error_msg') or ''}"
    if not cases:
        return "no test ran"
    return f"the simulator ended with exit code {exit_code}" if exit_code else None
