# SPDX-License-Identifier: Apache-2.0
"""The test files that stand nearest to a file of the sources, by their imports and by their names."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from weft.tb.bench.imports import ROOMS, ROOT, imports, module_name

WORD = 2
"""The imports on the way from a test to the file that a word in both of their names outweighs."""


@cache
def importers() -> tuple[dict[str, Path], dict[str, set[str]]]:
    """Return module -> file below the root, and module -> the modules that import it."""
    files = {module_name(path): path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    found: dict[str, set[str]] = defaultdict(set)
    for module, file in files.items():
        for name in imports(ROOT / file):
            found[name if name in files else name.rpartition(".")[0]].add(module)
    return files, found


def words(file: Path) -> set[str]:
    """Return the words of a file's path, without a plural's s."""
    return {word.removesuffix("s") for word in re.split(r"[_/.]", str(file.with_suffix("")))} - {"test", "tb"}


def nearest(file: str, count: int) -> list[str]:
    """Return at most ``count`` test files, the nearest to a file of the sources first, of equals the shortest."""
    files, found = importers()
    broken = module_name(ROOT / file)
    steps, reached = {broken: 0}, [broken]
    for module in reached:
        new = found[module] - steps.keys()
        steps |= dict.fromkeys(new, steps[module] + 1)
        reached += sorted(new)
    mine = words(Path(file))
    tests = sorted((module for module in reached if files[module].name.startswith("test_")), key=lambda module: (
        steps[module] - WORD * len(mine & words(Path(files[module].name))), (ROOT / files[module]).stat().st_size))
    return [str(files[module]) for module in tests[:count]]
