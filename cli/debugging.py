# SPDX-License-Identifier: Apache-2.0
"""The command ``weft debug``: the golden machine, step by step, through a compiled model."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from weft.cli.options import MemoryOption, OwnLatencyOption, SetOption, load, override
from weft.runtime.arrays import read_arrays
from weft.support.errors import WeftError, explain
from weft.support.files import read_bytes

if TYPE_CHECKING:
    from weft.cli.debugger import Answer, Debugger
    from weft.tmodel.network import Network

PROMPT = "(weft) "

MOST_SCRIPT_BYTES = 1 << 20


def debug_command(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    inputs: Annotated[Path | None, typer.Option("--input", metavar="FILE", help=".npz with an array for each input, or "
                                                ".npy; the first image runs; default: zeros.")] = None,
    commands: Annotated[list[str] | None, typer.Option("-x", "--command", metavar="COMMAND", help="A command, instead "
                                                       "of those typed; may be repeated; default: none.")] = None,
    script: Annotated[Path | None, typer.Option("--script", metavar="FILE", help="A file with a command in each line, "
                                                "before those of -x; # begins a comment; default: none.")] = None,
    program: Annotated[int, typer.Option("--program", min=1, metavar="NUMBER", help="Which of the network's programs, "
                                         "if the host computes between them.")] = 1,
    board: MemoryOption = None,
    latency: OwnLatencyOption = None,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a command instead of text.")] = False,
) -> None:
    """Step the golden machine through a compiled model, and look at memories and at what is under way in a cycle."""
    from weft.cli.debugger import Debugger
    from weft.cli.memory import memory_of
    from weft.runtime import Session

    if not all(map(str.strip, commands or ())):
        raise WeftError(explain("--command", "no command", "one of the debugger's commands", "for example -x help"))
    lines = None if script is None and commands is None else [*_script(script), *(commands or ())]
    dram = memory_of(board, latency)
    loaded = load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    if program > len(session.machines):
        raise WeftError(explain("--program", program, f"1..{len(session.machines)}", "name one of them"))
    debugger = Debugger(session, program - 1, _inputs(loaded, inputs), dram)
    if lines is None and sys.stdin is None:
        raise WeftError(explain("standard input", "it is closed", "an open one, for commands",
                                "do not close it (<&-), or give commands with -x"))
    if lines is not None or not sys.stdin.isatty():
        _run(debugger, sys.stdin if lines is None else lines, as_json)
    else:
        _talk(debugger, as_json)


def _script(path: Path | None) -> list[str]:
    """Return the lines of a script. Raise WeftError if it cannot be read."""
    if path is None:
        return []
    return read_bytes(path, "script", "name a file with a command in each line",
                      MOST_SCRIPT_BYTES).decode(errors="replace").splitlines()


def _inputs(network: Network, path: Path | None) -> Mapping[str, np.ndarray]:
    """Return the user's arrays, or zeros. Raise WeftError if the file does not have them."""
    tensors = network.signature.inputs
    for tensor in (each for each in tensors if each.shape is None):
        raise WeftError(explain(f"input {tensor.name!r}", "no shape (made by the original tools)",
                                "a .tmodel that says shapes", "compile the network again, or use weft run --raw"))
    if path is None:
        return {tensor.name: np.zeros(tensor.shape or (), tensor.type or np.float32) for tensor in tensors}
    return read_arrays(path, [tensor.name for tensor in tensors])


def _run(debugger: Debugger, lines: Any, as_json: bool) -> None:
    """Run commands to the first that is wrong. Raise WeftError for it."""
    for line in lines:
        if not _one(debugger, line, as_json):
            return


def _one(debugger: Debugger, line: str, as_json: bool) -> bool:
    """Run a line and print its answer; tell whether there is more to do."""
    command = line.partition("#")[0].strip()
    if not command:
        return True
    answer: Answer = debugger.answer(command)
    if as_json:
        print(json.dumps(answer.data), flush=True)
    else:
        for text in answer.lines:
            print(text)
    return answer.data["command"] != "quit"


def _talk(debugger: Debugger, as_json: bool) -> None:
    """Run the commands that a user types; a wrong one is told and the next is asked for."""
    for line in _typed(debugger):
        try:
            if not _one(debugger, line, as_json):
                return
        except WeftError as error:
            print(f"weft: {error}", file=sys.stderr)


def _typed(debugger: Debugger) -> Iterator[str]:
    """Yield the user's lines until the end of input, with readline's history and completion where Python has it."""
    with contextlib.suppress(ImportError):
        import readline

        readline.set_completer(_completer())
        readline.parse_and_bind("tab: complete")
    print("The machine stops before the first instruction. `help` lists the commands.")
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print()
            return


def _completer() -> Any:
    """Return readline's function from the beginning of a word, and a number, to the command of that number."""
    from weft.cli.debugger import COMMANDS

    def complete(beginning: str, number: int) -> str | None:
        known: Sequence[str] = [name for name in COMMANDS if name.startswith(beginning)]
        return known[number] if number < len(known) else None

    return complete
