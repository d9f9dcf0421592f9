"""Which version of weft this is."""

from __future__ import annotations

from weft.support.packages import version


def said_version() -> str:
    """Return the line that ``weft --version`` prints."""
    return f"weft {version()}"
