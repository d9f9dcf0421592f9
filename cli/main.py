# SPDX-License-Identifier: Apache-2.0
"""The program ``weft``: its start and its end. ``app.py`` has the list of its commands.

Exit codes: 0 fine, 1 a user's mistake (one message on standard error, no traceback), 2 RTL and golden differ, 130
interrupted."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from weft.cli import streams
from weft.support.errors import FINE, INTERRUPTED, USER_ERROR, Mismatch, WeftError, explain

MISMATCH = 2

NEW_OBJECTS = 200_000
"""The new objects after which Python looks for cycles of garbage.

A command's imports make 100 000 that stay. With Python's own number, 700, they would be searched 160 times."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program ``weft``. A request to end (SIGTERM) is an interrupt, so that started work is cleaned up."""
    signal.signal(signal.SIGTERM, _interrupt)
    gc.set_threshold(NEW_OBJECTS)
    code = exit_code(arguments)
    streams.abandon()
    gc.freeze()  # else the interpreter would search all that is left for cycles as it ends
    sys.exit(code)


def _interrupt(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt."""
    raise KeyboardInterrupt


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code; a user's mistake becomes one message and a 1."""
    streams.drop_odd_variables()
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
        from weft.support.files import reason

        place = "the system" if error.filename is None else f"file {os.fsdecode(error.filename)}"
        return _say(explain(place, reason(error), "files that can be read, and written where there is room",
                            "look at the disk and the file's rights, or choose another place"), USER_ERROR)
    except MemoryError:
        return _say(explain("memory", "less than this needs", "what fits", "give a smaller model or input"), USER_ERROR)


def _command(arguments: Sequence[str] | None) -> int:
    """Run a command; the version is printed without typer, which takes longer to load than everything else."""
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        from weft.cli.version import said_version

        print(said_version())
        return FINE
    from weft.cli.app import run_command_line

    return run_command_line(arguments)


def _say(message: object, code: int) -> int:
    """Write a message on standard error and return ``code``."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(streams.printable(f"weft: {message}\n", sys.stderr.encoding))
    return code


if __name__ == "__main__":
    main()
