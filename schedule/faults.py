# SPDX-License-Identifier: Apache-2.0
"""The faults that a check finds in a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from weft.schedule.model import DRAM, Schedule, WorkloadId
from weft.schedule.records import WAY_OUT
from weft.support.errors import explain


@dataclass(frozen=True)
class Fault:
    """``rule`` that is broken, and where: by core and workload, transfer, key, as far as these are known."""

    rule: str
    found: str
    allowed: str
    workload: WorkloadId | None = None
    layer: str | None = None
    transfer: int | None = None
    key: str | None = None

    @property
    def place(self) -> str:
        """The place of the fault, in words."""
        core = None
        if self.workload:
            core = "DRAM" if self.workload.core == DRAM else str(self.workload)
        parts = (core, self.layer and f"layer {self.layer}",
                 None if self.transfer is None else f"transfer {self.transfer}", self.key and f"key {self.key}")
        return ", ".join(filter(None, parts)) or "schedule"

    def text(self) -> str:
        """Return one line: what, found, allowed, way out."""
        return explain(self.place, self.found, self.allowed, WAY_OUT)

    def object(self) -> dict[str, Any]:
        """Return the fault for ``--json``; unknown parts of its place are null."""
        return {"rule": self.rule, "core": self.workload and self.workload.core,
                "workload": self.workload and self.workload.number, "layer": self.layer, "transfer": self.transfer,
                "key": self.key, "found": self.found, "allowed": self.allowed}


Rule = Callable[[Schedule], Iterator[Fault]]
"""A rule of schedules: it yields the faults of the parts that break it."""
