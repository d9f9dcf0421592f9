# SPDX-License-Identifier: Apache-2.0
"""Every file of code says its licence in its first line, below a line that names its interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TAG = "SPDX-License-Identifier: Apache-2.0"
CODE = {".py", ".sh", ".sv", ".cpp", ".c", ".h", ".js", ".css"}
TOPS = sorted(path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")
              and path.name not in ("weft", "build", "dist") and path.suffix != ".egg-info")


def states_its_licence(text: str) -> bool:
    lines = [line for line in text.splitlines()[:2] if not line.startswith("#!")]
    return bool(lines) and TAG in lines[0]


@pytest.mark.parametrize("top", TOPS, ids=lambda top: top.name)
def test_every_file_of_code_states_its_licence(top: Path) -> None:
    files = [path for path in top.rglob("*") if path.suffix in CODE and path.is_file()
             and path.parent.name != "library"]
    assert [str(path.relative_to(ROOT)) for path in files if not states_its_licence(path.read_text())] == []


def test_a_file_without_one_is_seen() -> None:
    assert not states_its_licence('"""A docstring."""\n') and not states_its_licence("")
    assert states_its_licence(f"#!/bin/sh\n# {TAG}\n")
