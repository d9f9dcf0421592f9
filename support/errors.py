"""What every error for a user says: what, found, allowed, way out (docs/house.md, "Errors")."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import NoReturn

FINE, USER_ERROR, INTERRUPTED = 0, 1, 130
"""Exit codes of whatever a user starts."""


class WeftError(Exception):
    """A user's mistake. The command line prints the message alone and exits with 1."""


class ArchError(WeftError):
    """An architecture that cannot be built."""

    def __init__(self, what: str, found: object, allowed: str, way_out: str) -> None:
        super().__init__(explain(f"architecture key {what}", found, allowed, way_out))


class IsaError(WeftError):
    """A value that does not fit its field, or a program that cannot be read."""


RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and newline, marks that turn the direction of writing, halves of characters."""

LONGEST = 1000
"""Characters of each part of an error text: names and attributes may be megabytes."""


def explain(what: str, found: object, allowed: str, way_out: str) -> str:
    """Return the one form of an error text: a line, whatever names of files, nodes and keys hold."""
    what, found, allowed, way_out = (_shortened(one_line(text)) for text in (what, str(found), allowed, way_out))
    return f"{what}: found {found}; allowed: {allowed}; way out: {way_out}"


def escaped(match: re.Match[str]) -> str:
    """Return a character as JSON writes it."""
    return f"\\u{ord(match[0]):04x}"


def one_line(text: str) -> str:
    """Return ``text`` with newlines, tabs and all of RAW written as escapes: no name of a file's makes lines of its
    own."""
    return _BREAKS.sub(escaped, RAW.sub(escaped, text))


_BREAKS = re.compile("[\t\n]")


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST // 2]} ... ({len(text)} characters) ... {text[-LONGEST // 4:]}"


def run_script(main: Callable[[], int | None]) -> NoReturn:
    """Exit with what a script's ``main`` returns; a user's mistake and an interrupt are a line and an exit code."""
    try:
        sys.exit(main())
    except WeftError as error:
        print(error, file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
