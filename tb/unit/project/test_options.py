# SPDX-License-Identifier: Apache-2.0
"""What the help of every option says: a number its unit, a choice its default; one word means one thing everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from weft.cli.app import application

UNITS = ("BYTES", "CYCLES", "MHZ", "COUNT", "DB", "SECONDS", "NUMBER")
"""What stands behind an option that takes a number."""
PLACES = {"DIR": "--folder", "FILE": "--output", "FILE.tarch": "--output", "PAGE.html": "--output",
          "FILE.json": "--output"}
"""What ``-o`` takes -> its long name."""


def options() -> Iterator[tuple[str, Any]]:
    """Of every command its name and each of its options."""
    def walk(group: Any, before: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, f"{before}{name} ")
            else:
                yield from ((before + name, each) for each in command.params if each.param_type_name == "option")

    yield from walk(typer.main.get_command(application()), "weft ")


def faults(option: Any) -> list[str]:
    """What the help of an option lacks."""
    said, found = option.help or "", []
    if not said.endswith("."):
        found.append("a sentence")
    if option.is_flag:
        return found
    kind = option.type_descriptor.annotation
    if not option.metavar:
        found.append("a word for what it takes")
    if kind in (int, float) and option.metavar not in UNITS:
        found.append("a unit")
    shown = option.show_default and option.default not in (None, "")
    if not option.required and not shown and "default: " not in said:
        found.append("its default")
    return found


OPTIONS = list(options())


@pytest.mark.parametrize("command, option", OPTIONS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_help_of_an_option_says_unit_and_default(command: str, option: Any) -> None:
    assert faults(option) == []


def test_results_go_to_a_folder_or_to_a_file_by_the_same_words() -> None:
    for command, option in OPTIONS:
        names = set(option.opts)
        if names & {"-o", "--folder", "--output"}:
            assert names == {"-o", PLACES[option.metavar]}, command


def test_one_option_means_the_same_in_every_command() -> None:
    taken: dict[str, set[str | None]] = {}
    for _, option in OPTIONS:
        for name in option.opts:
            taken.setdefault(name, set()).add(option.metavar)
    free = {"-o", "--output"}  # the kind of file
    assert {name: found for name, found in taken.items() if len(found) > 1 and name not in free} == {}


def test_a_help_that_says_too_little_is_found() -> None:
    command = typer.Typer()

    @command.command()
    def run(many: int = 3, name: str | None = None,
            good: int = typer.Option(3, metavar="COUNT", help="How many.")) -> None:
        pass

    wanted = ("many", "name", "good")
    many, name, good = (each for each in typer.main.get_command(command).params if each.name in wanted)
    assert faults(many) == ["a sentence", "a word for what it takes", "a unit"]
    assert faults(name) == ["a sentence", "a word for what it takes", "its default"]
    assert faults(good) == []


def test_a_command_alone_comes_without_the_others() -> None:
    whole = typer.main.get_command(application())
    assert {"compile", "run", "board", "ir"} <= set(whole.commands)  # type: ignore[attr-defined]
    for name in ("compile", "board"):
        alone: Any = typer.main.get_command(application(name))
        assert set(getattr(alone, "commands", {})) <= {name}
