# SPDX-License-Identifier: Apache-2.0
"""Tables and numbers in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NUMBER = re.compile(r"[+-]?\d[\d ]*(\.\d+)?( %|%)?")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown; columns of numbers alone are aligned to the right."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    rules = ["---:" if _numbers(column) else "---" for column in zip(*cells, strict=True)] or ["---"] * len(head)
    return "".join("| " + " | ".join(line) + " |\n" for line in (map(str, head), rules, *cells))


def _numbers(column: Sequence[str]) -> bool:
    """Return whether a column has numbers, and nothing else but empty cells."""
    found = [cell for cell in column if cell]
    return bool(found) and all(NUMBER.fullmatch(cell) for cell in found)


def number(value: int | None) -> str:
    """Return a number as text, with thousands apart; nothing for None."""
    return "" if value is None else f"{value:,}".replace(",", " ")
