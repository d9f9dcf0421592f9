# SPDX-License-Identifier: Apache-2.0
"""A file -> a schedule. The dialect is found by core "0" and ``buffersize``, which only today's has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

from weft.schedule import from_older, from_today, older, today
from weft.schedule.model import Dialect, Schedule
from weft.schedule.records import WAY_OUT, converted
from weft.support.errors import WeftError, explain
from weft.support.strict_json import read_object

DRAM_KEY = "-1"
CORE_KEY = re.compile("0|[1-9][0-9]{0,4}")
MOST_VALUES = 2_000_000
"""The most values of a file: some fifteen seconds of reading and checking.

The published schedules have a hundred thousand."""
MOST_WORKLOADS = 100_000
"""The most workloads of all cores. The largest published schedule has some thousand."""

T = TypeVar("T")


def read_schedule(path: Path) -> Schedule:
    """Return the schedule in a file. Raises WeftError, which names core, workload, transfer and key."""
    values = read_object(path, "schedule file", "a JSON object of a mesh's schedule (docs/schedule-ir.md)", WAY_OUT,
                         MOST_VALUES)
    return schedule_of(values)


def schedule_of(values: dict[str, Any]) -> Schedule:
    """Return the schedule that a JSON object holds. Raises WeftError."""
    if dialect_of(values) == "today":
        return from_today.schedule_of(*_records(values, today.Top, today.Dram, today.Workload))
    return from_older.schedule_of(*_records(values, older.Top, older.Dram, older.Workload))


def dialect_of(values: dict[str, Any]) -> Dialect:
    """Return the dialect that a file's keys tell."""
    return "today" if "buffersize" in values or "0" in values else "older"


def _records(values: dict[str, Any], top: type[Any], dram: type[Any],
             workload: type[T]) -> tuple[Any, Any, dict[int, list[T]]]:
    """Return the typed records: of the top, of DRAM, and workloads by core."""
    cores = {key: entries for key, entries in values.items() if CORE_KEY.fullmatch(key)}
    rest = {key: value for key, value in values.items() if key not in cores and key != DRAM_KEY}
    head = converted(rest, top, "schedule")
    if DRAM_KEY not in values:
        raise WeftError(explain(f"schedule, key {DRAM_KEY}", "nothing", "an object with what goes into DRAM and comes "
                                "out of it", WAY_OUT))
    _check_cores(cores)
    return head, converted(values[DRAM_KEY], dram, "DRAM"), {
        int(key): [converted(entry, workload, _name(key, number, entry)) for number, entry in enumerate(entries)]
        for key, entries in cores.items()}


def _check_cores(cores: dict[str, Any]) -> None:
    """Raise WeftError where a core has no list of workloads, no core is there, or there are too many workloads."""
    for key, entries in cores.items():
        if not isinstance(entries, list):
            raise WeftError(explain(f"core {key}", type(entries).__name__, "a list of workloads", WAY_OUT))
    count = sum(map(len, cores.values()))
    if not 1 <= count <= MOST_WORKLOADS:
        raise WeftError(explain("schedule", f"{count} workloads on {len(cores)} cores",
                                f"1 to {MOST_WORKLOADS} workloads", WAY_OUT))


def _name(core: str, number: int, entry: Any) -> str:
    """Return a workload's name for messages: its number, else its place in the list."""
    found = entry.get("workload_id") if isinstance(entry, dict) else None
    return f"core {core}, workload {found if isinstance(found, int) else f'at place {number}'}"
