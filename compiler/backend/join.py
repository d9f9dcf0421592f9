# SPDX-License-Identifier: Apache-2.0
"""The step that lets cores with the same program read their constants together, where that saves cycles."""

from __future__ import annotations

from weft.compiler.backend.encode import MachineCode, machine_code
from weft.compiler.cores import SPLIT
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch


def join_reads(request: Request, scheduled: Schedule, arch: Arch, code: MachineCode) -> MachineCode:
    """Return the code whose reads of DRAM1 may be joined, if an image a core then takes fewer cycles; else ``code``.

    Joined reads wait for the slowest core. That pays where constants are most of what a program reads."""
    if not arch.joins_reads or request.cores == SPLIT:
        return code
    from weft.cycles.system import cycles_an_image  # programs of one core need not wait for its import

    joined = machine_code(scheduled.table, scheduled.layers, arch, joins=True)
    return min(code, joined, key=lambda each: cycles_an_image([each.content] * arch.cores, arch))
