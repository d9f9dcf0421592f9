# SPDX-License-Identifier: Apache-2.0
"""Draw docstrings and error messages at random, to be explained from their text and then held against the code.

    python scripts/draw_docstrings.py --seed 35 [--code]

Sixty docstrings of public definitions come first, with qualified name and signature, then twenty calls that make error
messages or warnings. ``--code`` also shows where each stands, and its source. Tests and scripts are left out.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("boards", "cli", "compiler", "cycles", "explore", "golden", "hw", "report", "runtime", "schedule", "simulate",
         "support", "tmodel")
MAKERS = frozenset({"explain", "refuse", "warn", "warning"})
"""The functions that make an error message of four parts, or a warning."""
DOCSTRINGS, MESSAGES = 60, 20
CODE_LINES = 40
"""Lines of a definition that ``--code`` shows; of a message as many before it as a screen has room for."""


class Text(NamedTuple):
    """A text for readers, by a name that sorts it: what is said, where it stands, and the source that it tells of."""

    name: str
    said: str
    place: str
    source: str


def head_of(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return a definition's head as one line."""
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def docstrings(body: Sequence[ast.stmt], prefix: str, place: str, source: str) -> Iterator[Text]:
    """Yield the docstrings of the public definitions in ``body``, and of those in its classes."""
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        name = f"{prefix}.{node.name}"
        if said := ast.get_docstring(node):
            code = (ast.get_source_segment(source, node) or "").splitlines()[:CODE_LINES]
            yield Text(name, f"{head_of(node)}\n{said}", f"{place}:{node.lineno}", "\n".join(code))
        if isinstance(node, ast.ClassDef):
            yield from docstrings(node.body, name, place, source)


def messages(tree: ast.Module, place: str, source: str) -> Iterator[Text]:
    """Yield the calls of a file that make messages, of which at least one part is a text of several words."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS and any(
                isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value
                for argument in node.args for part in ast.walk(argument)):
            yield Text(f"{place}:{node.lineno}", ast.unparse(node), f"{place}:{node.lineno}",
                       "\n".join(lines[max(0, node.lineno - CODE_LINES // 2):node.lineno + 3]))


def main(seed: Annotated[int, typer.Option(help="of the draw")] = 35,
         code: Annotated[bool, typer.Option("--code", help="with place and source of each text")] = False) -> None:
    """Draw docstrings and error messages at random."""
    found: tuple[list[Text], list[Text]] = [], []
    for path in [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]:
        source, place = path.read_text(), path.relative_to(ROOT)
        tree = ast.parse(source)
        found[0].extend(docstrings(tree.body, ".".join(place.with_suffix("").parts), str(place), source))
        found[1].extend(messages(tree, str(place), source))
    drawing = random.Random(seed)
    for kind, texts, count in zip("DM", found, (DOCSTRINGS, MESSAGES), strict=True):
        for number, text in enumerate(drawing.sample(sorted(texts), count), 1):
            print(f"--- {kind}{number} {text.name if kind == 'D' else ''}\n{text.said}\n")
            if code:
                print(f"{text.place}\n{text.source}\n")


if __name__ == "__main__":
    typer.run(main)
