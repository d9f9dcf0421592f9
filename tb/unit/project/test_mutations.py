# SPDX-License-Identifier: Apache-2.0
"""The list of breaks fits the sources: each text is found once, each named test exists and runs in `make test`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from weft.tb.mutations import breaks
from weft.tb.mutations.drawn import ROOMS, changes, draw, is_break
from weft.tb.mutations.nearest import nearest

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


@pytest.mark.parametrize("room", ROOMS)
def test_breaks_are_drawn_in_every_room(room: str) -> None:
    drawn = draw(room, 10, seed=7)
    assert len({entry.id for entry in drawn}) == 10
    assert drawn == draw(room, 10, seed=7) != draw(room, 10, seed=8)
    for entry in drawn:
        text = (ROOT / entry.file).read_text()
        assert entry.applied(text) != text
        ast.parse(entry.applied(text))
    assert all((ROOT / test).exists() for test in ROOMS[room].tests)


@pytest.mark.parametrize(("file", "test"), [
    ("compiler/lowering/axes.py", "tb/compile/test_axes.py"), ("hw/simd/alu.py", "tb/unit/simd/test_alu.py"),
    ("runtime/arrays.py", "tb/unit/project/test_arrays.py"), ("golden/races.py", "tb/unit/golden/test_races.py")])
def test_the_nearest_tests_are_those_that_import_the_file_and_share_its_name(file: str, test: str) -> None:
    found = nearest(file, 4)
    assert found[0] == test and len(set(found)) == 4 and all((ROOT / each).is_file() for each in found)
    assert nearest(file, 2) == found[:2]


def test_a_drawn_break_is_one_of_behaviour() -> None:
    text = """def largest(a: int = 3) -> int:
    \"\"\"Return 1 + 2.\"\"\"
    if a < 4 and not flag:
        log.append(a)
        a += wide(b, é[1] - 2) << min(x)
    raise ValueError(f"{a} < 5")
"""
    found = {(old, new) for change in changes(text) if is_break(text, change) for _, old, new in [change]}
    assert found == {
        ("3", "4"), ("<", "<="), ("4", "5"), ("and", "or"), ("not flag", "(flag)"), ("log.append(a)", "pass"),
        ("a < 4 and not flag", "(not (a < 4 and not flag))"), ("a += wide(b, é[1] - 2) << min(x)", "pass"),
        ("min", "max"), ("b, é[1] - 2", "é[1] - 2, b"), ("-", "+"), ("1", "2"), ("2", "3"), ("<<", ">>")}
