"""Standard output and standard error as every command writes them.

What is printed may come from a file that somebody else made. So control characters and lone surrogates are written as
``\\u001b``, which is what they are called in JSON too; characters that the terminal's encoding lacks likewise. What
cannot be written, because a disk is full, is an error with a message.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from weft.support.errors import RAW, WeftError, escaped, explain

SIZE = re.compile("[1-9][0-9]{0,3}")
"""Of a terminal, as its variables say it."""


def drop_odd_variables() -> None:
    """Forget sizes that no terminal has, which tables would be made for, and a completion that asks for nothing."""
    for name in ("COLUMNS", "LINES"):
        if name in os.environ and not SIZE.fullmatch(os.environ[name]):
            del os.environ[name]
    if not {"COMP_WORDS", "_TYPER_COMPLETE_ARGS"} & set(os.environ):
        os.environ.pop("_WEFT_COMPLETE", None)


def printable(text: str, encoding: str | None = None) -> str:
    """``text`` with all of RAW, and all that ``encoding`` lacks, written as escapes."""
    text = RAW.sub(escaped, text)
    return text if encoding is None else text.encode(encoding, "backslashreplace").decode(encoding)


class Stream:
    """A text stream that writes what is ``printable`` to ``raw``, whose other attributes are its own."""

    def __init__(self, raw: TextIO, name: str) -> None:
        self.raw, self._name = raw, name

    def write(self, text: str) -> int:
        with self._errors():
            self.raw.write(printable(text, self.raw.encoding or "utf-8"))
        return len(text)

    def flush(self) -> None:
        with self._errors():
            self.raw.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """A closed pipe is no mistake: whoever read has seen enough."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise WeftError(explain(self._name, (error.strerror or str(error)).lower(), "a place with room",
                                    "free some, or write elsewhere")) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """``sys.stdout`` and ``sys.stderr`` as Streams, the former written out at the end."""
    before = sys.stdout, sys.stderr
    if sys.stdout is None:
        raise WeftError(explain("standard output", "it is closed", "an open one", "do not close it (>&-)"))
    sys.stdout = Stream(sys.stdout, "standard output")
    sys.stderr = Stream(sys.stderr, "standard error") if sys.stderr is not None else None
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def abandon() -> None:
    """Drop what could not be written, so that the interpreter does not try again at its end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
