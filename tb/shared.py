# SPDX-License-Identifier: Apache-2.0
"""Material that the project does not ship: the folder ../shared, with published vectors and models."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "shared"
VECTORS = "vectors"
"""The outside oracle: programs of the original tools, and what the original hardware answered."""

opened: set[str] = set()
"""What the running test has asked for and found; emptied before each test."""


def shared(path: str) -> Path:
    """Return the file or folder ../shared/``path``; skip the calling test, saying so, if it is absent."""
    found = ROOT / path
    if not found.exists():
        pytest.skip("skipped: needs ../shared")
    opened.add(path)
    return found


def published(paths: set[str]) -> bool:
    """Return whether published vectors are among these."""
    return any(Path(path).parts[0] == VECTORS for path in paths)


def oracle_line(ran: int) -> str:
    """Return the line that says whether the outside oracle was asked: ``ran`` tests opened published vectors."""
    if ran:
        return f"outside oracle: {ran} published-vector tests ran"
    if (ROOT / VECTORS).exists():
        return "outside oracle: did not run (no test of this selection reads the published vectors)"
    return "outside oracle: did not run (published vectors are not beside this checkout)"
