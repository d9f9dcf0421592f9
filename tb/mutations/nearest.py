# SPDX-License-Identifier: Apache-2.0
"""The test files that stand nearest to a file of the sources, by their imports and by their names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("support", "hw", "golden", "cycles", "simulate", "tmodel", "runtime", "compiler", "report", "boards",
         "explore", "schedule", "cli", "tb")
WORD = 2
"""The imports on the way from a test to the file that a word in both of their names outweighs."""


def module_name(file: Path) -> str:
    """Return the module of a file, given below the root."""
    return ".".join(["weft", *(part for part in file.with_suffix("").parts if part != "__init__")])


def imported(text: str) -> set[str]:
    """Return all names that a file's import statements may take as modules, those within functions too."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def importers() -> tuple[dict[str, Path], dict[str, set[str]]]:
    """Return module -> file below the root, and module -> the modules that import it."""
    files = {module_name(path.relative_to(ROOT)): path.relative_to(ROOT)
             for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    found: dict[str, set[str]] = defaultdict(set)
    for module, file in files.items():
        for other in imported((ROOT / file).read_text()) & files.keys():
            found[other].add(module)
    return files, found


def words(file: Path) -> set[str]:
    """Return the words of a file's path, without a plural's s."""
    return {word.removesuffix("s") for word in re.split(r"[_/.]", str(file.with_suffix("")))} - {"test", "tb"}


def nearest(file: str, count: int) -> list[str]:
    """Return at most ``count`` test files, the nearest to a file of the sources first, of equals the shortest."""
    files, found = importers()
    steps, reached = {module_name(Path(file)): 0}, [module_name(Path(file))]
    for module in reached:
        new = found[module] - steps.keys()
        steps |= dict.fromkeys(new, steps[module] + 1)
        reached += sorted(new)
    tests = [files[module] for module in reached if files[module].name.startswith("test_")]
    mine = words(Path(file))
    return [str(test) for test in sorted(tests, key=lambda test: (
        steps[module_name(test)] - WORD * len(mine & words(Path(test.name))), (ROOT / test).stat().st_size))][:count]
