# SPDX-License-Identifier: Apache-2.0
"""An editor finds every module of ours on a plain clone: nothing installed, no import hooks."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = (*sorted(link.name for link in (ROOT / "weft").iterdir() if link.is_symlink()), "scripts")
AT_ONCE = 300
"""Names that one process asks for: jedi drops parsed files from its cache, and fails, beyond some 600 of them."""
RESOLVE = r"""
import json, sys, jedi
root, names = sys.argv[1], json.load(sys.stdin)
project = jedi.Project(root, sys_path=[root], smart_sys_path=False)
lines = ["from {0} import {2}".format(*name.rpartition(".")) if "." in name else "import " + name for name in names]
script = jedi.Script("\n".join(lines), project=project)
for number, (name, line) in enumerate(zip(names, lines), start=1):
    found = script.goto(number, len(line), follow_imports=True)
    if not any(str(each.module_path).startswith(root) for each in found):
        print(name)
"""
"""Prints the names that jedi does not find below the folder, which is all that it may look at."""


def names_imported() -> set[str]:
    """``module.name`` of all that our sources import from ``weft``, and modules imported whole."""
    found = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "weft"}


def unresolved(names: set[str]) -> list[str]:
    """Of these, what an editor does not find; asked in a process that has no path of ours."""
    done = subprocess.run([sys.executable, "-c", RESOLVE, str(ROOT)], input=json.dumps(sorted(names)), cwd="/",
                          env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.wide
def test_every_import_is_found() -> None:
    names = names_imported()
    ordered = sorted(names)
    assert len(ordered) > 300
    assert [name for first in range(0, len(ordered), AT_ONCE)
            for name in unresolved(set(ordered[first:first + AT_ONCE]))] == []


def test_what_is_not_there_is_not_found() -> None:
    missing = {"weft.hw.nothing", "weft.hw.contract.arch.Nothing"}
    assert unresolved(missing | {"weft.hw.contract.arch.Arch"}) == sorted(missing)
