# SPDX-License-Identifier: Apache-2.0
"""The typer application: the list of the commands. Each command is a function in a file of this room.

A command line imports the file of its own command alone. Heavy imports stand inside the commands, so that ``weft isa``
does not wait for onnxruntime."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from weft.cli.examples import add_examples, add_summaries
from weft.cli.options import help_without_command
from weft.cli.values import insist_on_values
from weft.cli.version import said_version
from weft.support.errors import FINE, WeftError, explain

GROUPS = {"board": "board.app", "ir": "ir.app"}
"""Name of a group of commands -> its application, as FILE.NAME in this room."""

COMMANDS = {
    "compile": "compiling.compile_command",
    "inspect": "inspecting.inspect_command",
    "archs": "archs.archs_command",
    "report": "reporting.report_command",
    "explore": "exploring.explore_command",
    "doctor": "doctor.doctor_command",
    "demo": "demo.demo_command",
    "verilog": "machines.verilog_command",
    "run": "running.run_command",
    "estimate": "estimating.estimate_command",
    "schedule": "scheduling.schedule_command",
    "debug": "debugging.debug_command",
    "resources": "machines.resources_command",
    "isa": "machines.isa_command",
    "disassemble": "machines.disassemble_command",
}
"""Name of a command -> its function, as FILE.NAME in this room."""


def application(*names: str) -> typer.Typer:
    """Return the program with the commands and groups of these ``names``, or with all of them if there are none."""
    app = typer.Typer(name="weft", invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                      help="Machine-learning accelerators: hardware, compiler, and the proof that both agree.")
    app.callback()(weft)
    for name, place in GROUPS.items():
        if name in names or not names:
            group = _found(place)
            add_examples(group, f"{name} ")
            add_summaries(group)
            app.add_typer(group, name=name)
    for name, place in COMMANDS.items():
        if name in names or not names:
            app.command(name)(_found(place))
    add_examples(app)
    add_summaries(app)
    return app


def _found(place: str) -> Any:
    """Return what is at a place FILE.NAME of this room."""
    file, _, name = place.partition(".")
    return getattr(import_module(f"weft.cli.{file}"), name)


def weft(context: typer.Context,
         show_version: Annotated[bool, typer.Option("--version", help="Print the version and end.", is_eager=True,
                                                    callback=lambda on: _version(on))] = False) -> None:
    """Machine-learning accelerators: hardware, compiler, and the proof that both agree."""
    help_without_command(context)


def _version(wanted: bool) -> None:
    """Print the version and exit if ``wanted``."""
    if wanted:
        print(said_version())
        raise typer.Exit


# -- a command line ----------------------------------------------------------------------------------------------------
def run_command_line(arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; return its exit code. Raises WeftError for wrong options."""
    words = sys.argv[1:] if arguments is None else arguments
    own = [name for name in words[:1] if name in COMMANDS or name in GROUPS]
    program = typer.main.get_command(application(*own))  # typer would make it anew at every call
    insist_on_values(program, words)
    try:
        return int(program(args=None if arguments is None else list(arguments), prog_name="weft",
                           standalone_mode=False) or FINE)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else " ".join(["weft", *own])
        raise WeftError(explain(f"command {command}", error.format_message().rstrip("."), _usage(error, context),
                                f"{command} --help")) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:  # of what shows a completion script
        return int(end.code or FINE)


def _usage(error: TyperException, context: typer.Context | None) -> str:
    """Return what may be typed instead: the list of commands for an unknown command, else the command's usage."""
    if context is None:  # of an option without the value that belongs behind it
        return "a command with its arguments, and a value behind each option that takes one"
    if error.message.startswith("No such command"):
        return ", ".join(getattr(context.command, "commands", {}))
    return " ".join(context.get_usage().split())
