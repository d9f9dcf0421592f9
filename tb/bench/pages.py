# SPDX-License-Identifier: Apache-2.0
"""The commands that pages tell to type, and whether the command line knows them.

A command stands in an indented or fenced block, or between backquotes in a sentence. In a block it has to be whole; in
a sentence it may be a part (``weft run --on``). A word for the reader to replace is in capitals: ``MODEL.tmodel``,
``BOARD``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import TyperException

from weft.boards import BOARDS
from weft.cli.app import application
from weft.cli.options import override
from weft.cli.resources import part_named
from weft.hw.contract.arch import Arch
from weft.runtime.driver.targets import read_device
from weft.support.errors import WeftError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [str(path.relative_to(ROOT)) for path in sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md"),
                                                         *ROOT.glob("[a-z]*/README.md")})]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", re.M | re.S)
BLOCK = re.compile(r"(?:^(?: {4}[^\n]*|)\n)+", re.M)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PROGRAM = re.compile(r"(?:\.venv/bin/|env/bin/)?(weft|make|python3?)(?= |$)")
SCRIPT = re.compile(r"(?:\.venv/bin/)?(?:python3? )?(scripts/\w+\.py)")
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*(\.\w+|:[A-Z,.]+|=[A-Z]+)?|\.\.\.|<[^>]+>")
TARGET = re.compile(r"^([a-z-]+):", re.M)
VARIABLES = re.compile(r"^([A-Z]+) [?]?=|\$\(if \$\(([A-Z]+)\)|\$\(([A-Z]+)\)", re.M)
ENDS = ("&&", "|", "||", ";", ">", "\\", "#")
"""The words behind which a shell begins anew."""


@dataclass(frozen=True)
class Command:
    """A command of a page. ``page``: where it stands, from the root. ``whole``: in a block, not in a sentence."""

    page: str
    text: str
    whole: bool

    @property
    def words(self) -> list[str]:
        """Program and arguments, without comment and redirection."""
        words = shlex.split(self.text, comments=True)
        return words[:next((at for at, word in enumerate(words) if word in ENDS), len(words))]

    @property
    def on_a_board(self) -> bool:
        """Whether it is a whole ``weft`` command for a board behind a link."""
        return self.whole and bool(PROGRAM.match(self.text)) and bool(re.search(r"[ \"'](serial|udp):", self.text))


# -- finding -----------------------------------------------------------------------------------------------------------
def commands(page: str) -> list[Command]:
    """Return the commands of a page that begin with a program of ours."""
    text = (ROOT / page).read_text()
    found = [Command(page, line, True) for block in _blocks(text) for line in _lines(block)]
    sentences = BLOCK.sub("\n", FENCE.sub("", text))
    spans = [" ".join(span.split()) for span in SPAN.findall(sentences)]
    found += [Command(page, span, False) for span in spans]
    return [command for command in found if PROGRAM.match(command.text) or SCRIPT.match(command.text)]


def _blocks(text: str) -> Iterator[str]:
    for _, language, content in FENCE.findall(text):
        if language in ("", "sh"):
            yield content
    yield from BLOCK.findall(FENCE.sub("", text))


def _lines(block: str) -> Iterator[str]:
    """Yield each command of a block: lines that end in a backslash and texts between quotes go on."""
    pending = ""
    for line in block.splitlines():
        pending = f"{pending}\n{line.strip()}" if pending else line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip()
            continue
        if _open_quote(pending):
            continue
        yield from (part.strip() for part in re.split(r"(?<= )&& ", pending)) if '"' not in pending else [pending]
        pending = ""


def _open_quote(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return True
    return False


# -- judging -----------------------------------------------------------------------------------------------------------
def fault(command: Command) -> str:
    """Return what is wrong with a command; empty where nothing is."""
    script = SCRIPT.match(command.text)
    if script:
        return _of_script(script[1], command.text[script.end():].split())
    program, *words = command.words
    if program.endswith("make"):
        return _of_make(words)
    if program.endswith("weft"):
        return _of_weft(words) if command.whole else part_fault(words)
    return ""


@cache
def tree() -> Any:
    """Return the commands of ``weft``."""
    return typer.main.get_command(application())


def part_fault(words: Sequence[str]) -> str:
    """Return what is wrong with a part of a ``weft`` command: its command, and the names of its options."""
    command, left = tree(), list(words)
    while left and hasattr(command, "commands"):
        name = left[0]
        if name.startswith("-"):
            break
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[left.pop(0)]
    known = {name for each in command.params for name in each.opts} | {"--help"}
    unknown = [word for word in left if word.startswith("-") and word.split("=")[0] not in known]
    return f"no option {unknown[0]}" if unknown else ""


def _of_weft(words: list[str]) -> str:
    """Return what is wrong with a whole command, short of running it."""
    wrong = part_fault(words)
    if wrong:
        return wrong
    command, context = tree(), None
    name = "weft"
    try:
        while hasattr(command, "commands") and words:
            context = command.make_context(name, [words[0]], parent=context)
            name, command, words = words[0], command.commands[words[0]], words[1:]
        context = command.make_context(name, _with_numbers(command, words), parent=context)
    except TyperException as error:
        return error.format_message()
    try:
        _check_values(context.params)
    except WeftError as error:
        return str(error)
    return ""


def _with_numbers(command: Any, words: list[str]) -> list[str]:
    """Give a number for the placeholder of one."""
    options = {name: each for each in command.params for name in each.opts}
    found = list(words)
    for at, word in enumerate(words[:-1]):
        option = options.get(word)
        if option is not None and not option.is_flag and PLACEHOLDER.fullmatch(words[at + 1]) and (
                option.type_descriptor.annotation in (int, float)):
            found[at + 1] = "2"
    return found


def _check_values(given: dict[str, Any]) -> None:
    """Raise WeftError for names that nothing has: presets, boards, chips, devices, keys."""
    arch = given.get("arch")
    if arch and not PLACEHOLDER.fullmatch(arch) and not arch.endswith(".tarch"):
        override(Arch.load(arch), [each for each in given.get("overrides") or () if not PLACEHOLDER.fullmatch(each)])
    board = given.get("board")
    if board and not PLACEHOLDER.fullmatch(board) and board not in (*BOARDS, EXAMPLE):
        raise WeftError(f"no board {board}")
    if given.get("part") and not PLACEHOLDER.fullmatch(given["part"]):
        part_named(given["part"])
    if given.get("on") not in (None, "golden", "rtl", "DEVICE"):
        read_device(given["on"])


EXAMPLE = "versa_ecp5"
"""The board that docs/boards/port.md adds."""


@cache
def make_targets() -> frozenset[str]:
    """Return what ``make`` can be asked for."""
    return frozenset(TARGET.findall((ROOT / "Makefile").read_text()))


def _of_make(words: list[str]) -> str:
    text = (ROOT / "Makefile").read_text()
    variables = {name for names in VARIABLES.findall(text) for name in names if name}
    for word in words:
        name, given, _ = word.partition("=")
        if given and name not in variables:
            return f"make has no variable {name}"
        if not given and word not in make_targets() and not PLACEHOLDER.fullmatch(word):
            return f"make has no target {word}"
    return ""


def _of_script(name: str, words: list[str]) -> str:
    if not (ROOT / name).is_file():
        return f"no {name}"
    text = (ROOT / name).read_text()
    unknown = [word for word in words if word.startswith("--") and word != "--help" and word not in text
               and not re.search(rf"\b{word[2:].split('=')[0].replace('-', '_')}\b", text)]
    return f"{name} has no option {unknown[0]}" if unknown else ""
