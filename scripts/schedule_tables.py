# SPDX-License-Identifier: Apache-2.0
"""The table of docs/schedule-ir.md: every key of both dialects."""

from __future__ import annotations

from collections.abc import Callable

from tables import table

from weft.schedule.keys import RECORDS, keys_of, meaning


def schedule_keys() -> str:
    """Return a row for each key of each record."""
    rows = []
    for record, kinds in RECORDS.items():
        now, before = keys_of(kinds.today), keys_of(kinds.older)
        for key in sorted({*now, *before}):
            unit, text = meaning(record, key)
            rows.append((f"`{record}`", f"`{key}`", unit, _has(now, key), _has(before, key), text))
    return table(("in", "key", "unit", "today", "older", "meaning"), rows)


def _has(keys: dict[str, bool], key: str) -> str:
    return "" if key not in keys else "yes" if keys[key] else "may"


TABLES: dict[str, Callable[[], str]] = {"schedule_keys": schedule_keys}
