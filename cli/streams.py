# SPDX-License-Identifier: Apache-2.0
r"""Standard output and standard error as every command writes them.

What is printed may come from a file that somebody else made. So control characters and lone surrogates are written as
``\u001b``, as in JSON; so are characters that the terminal's encoding lacks. A failed write, as on a full disk, is an
error with a message."""

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
"""The pattern of a terminal's size in its environment variables."""


def drop_odd_variables() -> None:
    """Remove environment variables with impossible terminal sizes, and of an empty completion."""
    for name in ("COLUMNS", "LINES"):
        if name in os.environ and not SIZE.fullmatch(os.environ[name]):
            del os.environ[name]
    if not {"COMP_WORDS", "_TYPER_COMPLETE_ARGS"} & set(os.environ):
        os.environ.pop("_WEFT_COMPLETE", None)


def printable(text: str, encoding: str | None = None) -> str:
    """Return ``text`` with control characters, and all that ``encoding`` lacks, as escapes."""
    text = RAW.sub(escaped, text)
    return text if encoding is None else text.encode(encoding, "backslashreplace").decode(encoding)


class Stream:
    """A text stream that writes ``printable`` text to ``raw``, whose other attributes are its own."""

    def __init__(self, raw: TextIO, name: str) -> None:
        self.raw, self._name = raw, name

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        with self._errors():
            self.raw.write(printable(text, self.raw.encoding or "utf-8"))
        return len(text)

    def flush(self) -> None:
        """Flush the raw stream."""
        with self._errors():
            self.raw.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the raw stream into WeftError, except a closed pipe, whose reader has seen enough."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise WeftError(explain(self._name, (error.strerror or str(error)).lower(), "a place that can be written",
                                    "write elsewhere, or make room there if it is full")) from None

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the raw stream."""
        return getattr(self.raw, name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Replace ``sys.stdout`` and ``sys.stderr`` by Streams; flush standard output at the end."""
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
