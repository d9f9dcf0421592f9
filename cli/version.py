# SPDX-License-Identifier: Apache-2.0
"""The version of weft, as ``weft --version`` prints it."""

from __future__ import annotations

from weft.support.packages import version


def said_version() -> str:
    """Return the line that ``weft --version`` prints."""
    return f"weft {version()}"
