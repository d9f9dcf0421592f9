"""Where results that can be made again are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """$WEFT_CACHE, or build/cache in a checkout, or ~/.cache/weft when installed."""
    if chosen := os.environ.get("WEFT_CACHE"):
        return Path(chosen)
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").exists() or (project / ".git").exists():
        return project / "build" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft"
