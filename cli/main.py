"""The program ``weft``: the list of its commands, and how it ends. Each command is a function in a file of this room.

Exit codes: 0 fine, 1 a user's mistake (one message on standard error, no traceback), 2 RTL and golden differ,
130 interrupted.
Heavy imports stand inside the commands, so that ``weft isa`` does not wait for onnxruntime.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError  # typer has no public name for them

from weft.cli import board, streams
from weft.cli.archs import archs_command
from weft.cli.compiling import compile_command
from weft.cli.demo import demo_command
from weft.cli.doctor import doctor_command
from weft.cli.estimating import estimate_command
from weft.cli.examples import add_examples, add_summaries
from weft.cli.exploring import explore_command
from weft.cli.inspecting import inspect_command
from weft.cli.machines import disassemble_command, isa_command, resources_command, verilog_command
from weft.cli.options import version
from weft.cli.reporting import report_command
from weft.cli.running import run_command
from weft.cli.values import insist_on_values
from weft.hw.contract.errors import INTERRUPTED, USER_ERROR, WeftError, explain
from weft.runtime.errors import Mismatch
from weft.runtime.files import reason

FINE, MISMATCH = 0, 2

app = typer.Typer(name="weft", no_args_is_help=True, rich_markup_mode=None,
                  pretty_exceptions_enable=False,
                  help="Machine-learning accelerators: hardware, compiler, and the proof that both agree.")
app.add_typer(board.app, name="board")

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
app.command("resources")(resources_command)
app.command("isa")(isa_command)
app.command("disassemble")(disassemble_command)


@app.callback()
def weft(show_version: Annotated[bool, typer.Option("--version", help="Print the version and end.",
                                                    is_eager=True, callback=lambda on: _version(on))] = False) -> None:
    """Machine-learning accelerators: hardware, compiler, and the proof that both agree."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weft {version()}")
        raise typer.Exit


add_examples(app)
add_examples(board.app, "board ")
add_summaries(app)
add_summaries(board.app)


# -- exit codes --------------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The program ``weft``. A request to end (SIGTERM) is an interrupt, so that what was begun is cleaned up."""
    signal.signal(signal.SIGTERM, _interrupt)
    code = exit_code(arguments)
    streams.abandon()
    sys.exit(code)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; whatever goes wrong by the user's doing becomes one message and a 1."""
    try:
        with streams.guarded():
            return _command(arguments)
    except WeftError as error:
        return _say(error, USER_ERROR)
    except Mismatch as error:
        return _say(error, MISMATCH)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return USER_ERROR
    except OSError as error:  # what no reader and no writer has foreseen, such as a full disk behind another library
        place = "the system" if error.filename is None else f"file {os.fsdecode(error.filename)}"
        return _say(explain(place, reason(error), "files that can be read, and written where there is room",
                            "look at the disk and the file's rights, or choose another place"), USER_ERROR)
    except MemoryError:
        return _say(explain("memory", "less than this needs", "what fits", "give a smaller model or input"), USER_ERROR)


def _command(arguments: Sequence[str] | None) -> int:
    """What typer says of a wrong option or argument becomes a message as all others."""
    insist_on_values(app, sys.argv[1:] if arguments is None else arguments)
    try:
        return int(app(args=None if arguments is None else list(arguments), prog_name="weft",
                       standalone_mode=False) or FINE)
    except NoArgsIsHelpError as help_text:
        help_text.show()
        return USER_ERROR
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else app.info.name
        raise WeftError(explain(f"command {command}", error.format_message().rstrip("."), _usage(error),
                                f"{command} --help")) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:  # of what shows a completion script
        return int(end.code or FINE)


def _usage(error: UsageError) -> str:
    """What may be typed there: the commands where one is unknown, else how the command is called."""
    if error.ctx is None:
        return "a command"
    if error.message.startswith("No such command"):
        return ", ".join(getattr(error.ctx.command, "commands", {}))
    return " ".join(error.ctx.get_usage().split())


def _say(message: object, code: int) -> int:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(streams.printable(f"weft: {message}\n", sys.stderr.encoding))
    return code


if __name__ == "__main__":
    main()
