# SPDX-License-Identifier: Apache-2.0
"""The digest of the tool itself: what another compiler or estimator makes is another result."""

from __future__ import annotations

from functools import lru_cache

from weft.support.sources import sources_digest


@lru_cache(1)
def tool_digest() -> str:
    """Return a digest of the sources that make a program and count its cycles."""
    return sources_digest("weft.compiler", "weft.cycles", "weft.tmodel", "weft.hw.contract")
