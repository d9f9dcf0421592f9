# SPDX-License-Identifier: Apache-2.0
"""The words at the end of a run on what did not run, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


def line(reports: Iterable[Any]) -> str:
    """Return how many tests were skipped for each reason, the most frequent one first. ``reports``: of pytest."""
    reasons = Counter(_reason(report.longrepr) for report in reports)
    told = "; ".join(f"{count}, {reason}" for reason, count in reasons.most_common())
    return f"did not run: {told or 'nothing of this selection'}"


def _reason(told: Any) -> str:
    """Return why a test was skipped; ``told``: (file, line, words) of pytest."""
    words = str(told[-1] if isinstance(told, tuple) else told)
    while words.lower().startswith("skipped: "):
        words = words[len("skipped: "):]
    return words
