# SPDX-License-Identifier: Apache-2.0
"""The rooms of the project, and which modules its files import."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("support", "hw", "golden", "cycles", "simulate", "tmodel", "runtime", "compiler", "report", "cli", "boards",
         "explore", "schedule", "tb")
"""Folders of the project that are links in the package ``weft``."""


def module_name(path: Path) -> str:
    """Return the module of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["weft", *(part for part in parts if part != "__init__")])


def imports(path: Path) -> set[str]:
    """Return our own modules that a file names in its import statements, those inside functions too.

    A name that a package's ``__init__.py`` has is returned as if it were a module of the package."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            inside = ROOT.joinpath(*module.split(".")[1:])
            found |= {f"{module}.{alias.name}" if inside.is_dir() else module for alias in node.names}
    return {module for module in found if module.split(".")[0] == "weft"}
