# SPDX-License-Identifier: Apache-2.0
"""Check that options with values have one, and that options without values have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.support.errors import WeftError, explain

if TYPE_CHECKING:
    from typer._click import Command


def insist_on_values(program: Command, arguments: Sequence[str]) -> None:
    """Raise WeftError for an option that takes the next option as its value, or a value that it does not take.

    Typer takes ``--report --html`` as a file of the name ``--html``, and for ``--json=yes`` it does not name the
    command."""
    command, words = program, list(arguments)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    options = {name: each for each in command.params if each.param_type_name == "option" for name in each.opts}
    for name, given, value in (word.partition("=") for word in words):
        if given and name in options and options[name].is_flag:  # type: ignore[attr-defined]
            raise WeftError(explain(name, f"the value {value}", f"{name} alone", f"leave ={value} out"))
    for name, value in zip(words, words[1:], strict=False):
        takes = name in options and not options[name].is_flag  # type: ignore[attr-defined]
        if takes and value in options:
            raise WeftError(explain(name, f"no value, but the option {value}", f"{name} {options[name].metavar}",
                                    f"give it a value; one that looks like an option: {name}={value}"))
