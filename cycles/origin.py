# SPDX-License-Identifier: Apache-2.0
"""The state of a board's memory when a program starts, and where the program lies in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.cycles.board_dram import next_burst
from weft.cycles.jit import entry
from weft.cycles.litedram import step_dram
from weft.cycles.litedram_state import controller_record, new_dram
from weft.cycles.machine import machine_record
from weft.cycles.program import MEMORIES
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, LiteDram
from weft.hw.contract.timing import program_burst
from weft.hw.contract.units import Memory


@dataclass(frozen=True)
class Origin:
    """The state of a board's memory when a program starts.

    ``program_address``: the machine's address of the program's first byte. ``windows``: where DRAM0 and DRAM1 begin,
    beyond the offsets in the program. ``rested``: cycles from reset until the program is first asked for, in which
    nobody else asks for anything. ``memory``: what differs from that, by field of DRAM (``read_time``,
    ``bank.3.row``)."""

    program_address: int = 0
    windows: tuple[int, int] = (0, 0)
    rested: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)


RESET = Origin()
"""The state after reset: all banks are closed, and refresh has just begun to count."""


def apart(arch: Arch) -> Origin:
    """Return an origin with whole DRAM windows one behind another, then the program.

    It is for programs of which nobody knows how much of the windows they need."""
    first, second = (depth * arch.vector_bytes for depth in (arch.dram0_depth, arch.dram1_depth))
    return Origin(first + second, (0, first))


def join_board(state: np.void, arch: Arch, dram: LiteDram, origin: Origin, work: np.ndarray,
               program_bytes: int) -> None:
    """Put a board's memory behind the machine's ports, and the program into it. ``work``: its operations."""
    for memory, start in zip((Memory.DRAM0, Memory.DRAM1), origin.windows, strict=True):
        work["window"][work["memory1"] == MEMORIES.index(memory)] += start
    windows = 1 if arch.shared_dram else 2
    widths = [1, *[arch.axi_data_width // 8] * windows, arch.stream_width // 8]
    state["paced"] = 1
    state["controller"] = controller_record(dram, len(widths))
    state["dram"] = new_dram(dram, widths)
    rest(state["dram"], state["controller"], origin.rested)
    for name, value in origin.memory.items():
        *path, last = name.split(".")
        place = state["dram"]
        for step in path:
            place = place[int(step) if step.isdigit() else step]
        place[last] = value
    beat = arch.stream_width // 8
    program = state["program"]
    program["beat"] = origin.program_address // beat
    program["last_beat"] = (origin.program_address + program_bytes - 1) // beat
    program["max_burst"] = program_burst(arch)
    state["control"]["beats"] = 0
    begin(program, machine_record(arch, EXPECTED))


@entry
def rest(dram, controller, cycles):
    """Step a memory that nobody asks for anything, up to cycle 0: it refreshes."""
    for now in range(-cycles, 0):
        step_dram(dram, controller, now)
    dram.use[:] = 0


@entry
def begin(program, machine):
    """Offer the program's first burst."""
    next_burst(program, machine)
