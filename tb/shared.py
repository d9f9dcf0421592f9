"""Material that the project does not ship: the folder ../shared, with published vectors and models."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "shared"


def shared(path: str) -> Path:
    """The file or folder ../shared/``path``; the calling test is skipped, saying so, when it is absent."""
    found = ROOT / path
    if not found.exists():
        pytest.skip("skipped: needs ../shared")
    return found
