# SPDX-License-Identifier: Apache-2.0
"""Draw docstrings at random, to be explained from name and text alone and then held against the code.

    python scripts/draw_docstrings.py [--seed 35] [--count 60] [--code] [--messages]

``--code`` shows each definition's source below its text. ``--messages`` draws the calls that make error messages
instead. Tests and scripts are left out.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("boards", "cli", "compiler", "cycles", "explore", "golden", "hw", "report", "runtime", "schedule", "simulate",
         "support", "tmodel")
MAKERS = frozenset({"explain", "refuse"})
"""The functions that make an error message of four parts."""
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)


class Text(NamedTuple):
    """A text for readers: where it stands, what is said there, and the source that it tells of."""

    place: str
    said: str
    source: str


def docstrings(path: Path) -> Iterator[Text]:
    """Yield the docstrings of a file's definitions, each under the definition's head."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DEFINITIONS) and (said := ast.get_docstring(node)):
            code = ast.get_source_segment(source, node) or ""
            head = code[:code.index('"""')].rstrip()
            yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", f"{head}\n{said}", code)


def messages(path: Path) -> Iterator[Text]:
    """Yield the calls of a file that make error messages of text, and the functions around them."""
    source = path.read_text()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS and any(
                        isinstance(part, ast.Constant) for argument in node.args for part in ast.walk(argument)):
                    yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", ast.get_source_segment(source, node) or "",
                               ast.get_source_segment(source, function) or "")


def main(seed: Annotated[int, typer.Option(help="of the draw")] = 35,
         count: Annotated[int, typer.Option(min=1, help="texts to draw")] = 60,
         code: Annotated[bool, typer.Option("--code", help="with the source that each text tells of")] = False,
         of_messages: Annotated[bool, typer.Option("--messages", help="error messages, not docstrings")] = False,
         ) -> None:
    """Draw docstrings, or error messages, at random."""
    read = messages if of_messages else docstrings
    texts = [text for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) for text in read(path)]
    for number, text in enumerate(random.Random(seed).sample(texts, min(count, len(texts))), 1):
        print(f"--- {number}  {text.place}\n{text.said}\n" + (f"\n{text.source}\n" if code else ""))


if __name__ == "__main__":
    typer.run(main)
