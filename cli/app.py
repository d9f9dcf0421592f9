# SPDX-License-Identifier: Apache-2.0
"""The typer application: the list of the commands. Each command is a function in a file of this room.

Heavy imports stand inside the commands, so that ``weft isa`` does not wait for onnxruntime."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from weft.cli import board, ir
from weft.cli.archs import archs_command
from weft.cli.compiling import compile_command
from weft.cli.debugging import debug_command
from weft.cli.demo import demo_command
from weft.cli.doctor import doctor_command
from weft.cli.estimating import estimate_command
from weft.cli.examples import add_examples, add_summaries
from weft.cli.exploring import explore_command
from weft.cli.inspecting import inspect_command
from weft.cli.machines import disassemble_command, isa_command, resources_command, verilog_command
from weft.cli.options import help_without_command
from weft.cli.reporting import report_command
from weft.cli.running import run_command
from weft.cli.scheduling import schedule_command
from weft.cli.values import insist_on_values
from weft.cli.version import said_version
from weft.support.errors import FINE, WeftError, explain

app = typer.Typer(name="weft", invoke_without_command=True, rich_markup_mode=None,
                  pretty_exceptions_enable=False,
                  help="Machine-learning accelerators: hardware, compiler, and the proof that both agree.")
app.add_typer(board.app, name="board")
app.add_typer(ir.app, name="ir")

app.command("compile")(compile_command)
app.command("inspect")(inspect_command)
app.command("archs")(archs_command)
app.command("report")(report_command)
app.command("explore")(explore_command)
app.command("doctor")(doctor_command)
app.command("demo")(demo_command)
app.command("verilog")(verilog_command)
app.command("run")(run_command)
app.command("estimate")(estimate_command)
app.command("schedule")(schedule_command)
app.command("debug")(debug_command)
app.command("resources")(resources_command)
app.command("isa")(isa_command)
app.command("disassemble")(disassemble_command)


@app.callback()
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


add_examples(app)
add_examples(board.app, "board ")
add_examples(ir.app, "ir ")
add_summaries(app)
add_summaries(board.app)
add_summaries(ir.app)


# -- a command line ----------------------------------------------------------------------------------------------------
def run_command_line(arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; return its exit code. Raises WeftError for wrong options."""
    program = typer.main.get_command(app)  # typer would make it anew at every call
    insist_on_values(program, sys.argv[1:] if arguments is None else arguments)
    try:
        return int(program(args=None if arguments is None else list(arguments), prog_name="weft",
                           standalone_mode=False) or FINE)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else app.info.name
        raise WeftError(explain(f"command {command}", error.format_message().rstrip("."), _usage(error, context),
                                f"{command} --help")) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:  # of what shows a completion script
        return int(end.code or FINE)


def _usage(error: TyperException, context: typer.Context | None) -> str:
    """Return what may be typed instead: the list of commands for an unknown command, else the command's usage."""
    if context is None:
        return "a command"
    if error.message.startswith("No such command"):
        return ", ".join(getattr(context.command, "commands", {}))
    return " ".join(context.get_usage().split())
