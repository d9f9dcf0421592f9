# SPDX-License-Identifier: Apache-2.0
"""The list of breaks fits the sources: each text is found once, each named test exists and runs in `make test`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from weft.tb.mutations import breaks

ROOT = Path(__file__).resolve().parents[3]
LEAST = 100


@cache
def decorators(file: str) -> dict[str, str]:
    """Name -> decorators, of the test functions of a file."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in tree.body
            if isinstance(node, ast.FunctionDef)}


def test_every_break_still_applies() -> None:
    """When one does not: give it the text as it stands now, or take another break of the same thing."""
    wrong = []
    for entry in breaks():
        try:
            assert entry.applied((ROOT / entry.file).read_text()) != (ROOT / entry.file).read_text()
        except (OSError, ValueError) as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def test_every_named_test_is_one_of_make_test() -> None:
    wrong = []
    for entry in breaks():
        file, _, name = entry.test.partition("::")
        found = decorators(file).get(name.partition("[")[0]) if (ROOT / file).is_file() else None
        if found is None or "mark.long" in found:
            wrong.append(f"break {entry.id}: {entry.test} " + ("does not exist" if found is None else "is long"))
    assert not wrong, "\n".join(wrong)


def test_the_list_is_long_and_broad() -> None:
    names = [entry.id for entry in breaks()]
    assert len(names) == len(set(names)) and len(names) >= LEAST
    rooms = {entry.file.partition("/")[0] for entry in breaks()}
    assert rooms >= {"hw", "golden", "compiler", "runtime", "cli"}
    assert {entry.file.split("/")[1] for entry in breaks() if entry.file.startswith("hw/")} >= {
        "contract", "array", "memory", "simd", "control", "bus"}
