# SPDX-License-Identifier: Apache-2.0
"""Texts of the sources that tell the user what to type: commands, options, and the examples of the helps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from weft.cli.examples import EXAMPLES
from weft.tb.bench.pages import ROOT, make_targets, part_fault, tree

TOPS = ("hw", "compiler", "golden", "simulate", "runtime", "report", "cli", "boards", "explore", "scripts")
COMMAND = re.compile(r"\b(weft|run make|: make) ((?:board )?[a-z]+(?: [^;,()'\"\n#]*)?)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OTHERS = re.compile(r"(python -m (?!weft)|bbaexport|openFPGALoader|udevadm|-O1)[^;\n]*")
"""The options of other programs."""
PROSE = ("machine", "model", "makes", "at")
"""The words that may stand behind the word weft where it is no command."""


@dataclass(frozen=True)
class Text:
    """A literal of the sources; ``text`` has VALUE where something is filled in."""

    where: str
    text: str


def texts() -> Iterator[Text]:
    """Yield every text for people in the sources but docstrings, and the examples of the helps."""
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            apart = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            apart |= {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
            for node in nodes:
                text = literal(node) if id(node) not in apart else ""
                if " " in text:
                    yield Text(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text)
    yield from (Text(f"help of {name}", text) for name, text in EXAMPLES.items())


def literal(node: ast.AST) -> str:
    """Return the text of a literal, empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(each) if isinstance(each, ast.Constant) else "VALUE" for each in node.values)
    return ""


@cache
def options() -> frozenset[str]:
    """Return every option of every command."""
    def walk(command: object) -> Iterator[str]:
        for each in command.params:  # type: ignore[attr-defined]
            yield from each.opts
        for inner in getattr(command, "commands", {}).values():
            yield from walk(inner)

    return frozenset(walk(tree())) | {"--help"}


def faults(found: Text) -> list[str]:
    """Return the commands and options of a text that there are not."""
    text, wrong = OTHERS.sub("", found.text), []
    for program, rest in COMMAND.findall(text):
        words = rest.split()
        if program != "weft":
            wrong += [f"make {words[0]}"] if words[0] not in make_targets() and words[0] != "it" else []
        elif words[0] not in PROSE:
            fault = part_fault([word.strip(":") for word in words])
            wrong += [f"weft {rest}: {fault}"] if fault else []
    file = found.where.partition(":")[0]
    own = (ROOT / file).read_text() if file.startswith("scripts/") else ""
    return wrong + [option for option in OPTION.findall(text)
                    if option not in options() and own.count(option) + own.count(option[2:].replace("-", "_")) < 2]
