# SPDX-License-Identifier: Apache-2.0
"""How fast the command line is there: what a command does not need, it does not load."""

from __future__ import annotations

import os
import subprocess
import sys

from weft.tb.unit.runtime.test_import import imported

VERSION_SECONDS = 0.15
"""Of the processor, all of a process that prints the version."""
TRIES = 5
COMMAND = [sys.executable, "-c", "from weft.cli.main import main; main()"]
LIBRARIES = {"onnx", "onnxruntime", "amaranth", "numba", "cocotb", "rich"}
NOT_FOR_EVERY_NETWORK = {"amaranth", "cocotb", "numba", "rich", "onnx.reference", "weft.golden.machine",
                         "weft.simulate", "weft.cycles.system"}
"""Modules that ``weft compile`` needs only with an option, on a terminal, for a rare network or for several cores."""


def seconds_of(*arguments: str) -> tuple[float, str]:
    """Processor time of a command (user and system), the least of some runs; and what it printed."""
    found, said = [], ""
    for _ in range(TRIES):
        before = os.times()
        said = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True).stdout
        after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(found), said


def test_the_version_is_said_at_once() -> None:
    seconds, said = seconds_of("--version")
    print(f"\nweft --version: {1000 * seconds:.0f} ms")
    assert said.startswith("weft ") and len(said.split()) == 2
    assert seconds <= VERSION_SECONDS


def test_the_version_is_the_same_beside_other_words() -> None:
    """The way without typer says what typer's own option says."""
    assert seconds_of("--version")[1] == seconds_of("--version", "isa")[1]


def test_the_commands_load_their_libraries_when_they_run() -> None:
    _, modules = imported("from weft.cli.app import application; application()")
    assert not modules & {*LIBRARIES, "weft.compiler", "weft.hw.core", "weft.hw.flow.resources"}


def test_compiling_loads_no_more_than_every_network_needs() -> None:
    _, modules = imported("from weft.cli.app import application; application('compile'); import weft.compiler.pipeline")
    assert "onnxruntime" in modules and not modules & NOT_FOR_EVERY_NETWORK


def test_a_command_loads_the_files_of_no_other() -> None:
    _, modules = imported("from weft.cli.app import application; application('isa')")
    assert {name for name in modules if name.startswith("weft.cli.")} >= {"weft.cli.machines"}
    assert not modules & {"weft.cli.compiling", "weft.cli.board", "weft.boards", "weft.runtime", "weft.schedule"}
