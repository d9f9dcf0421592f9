# SPDX-License-Identifier: Apache-2.0
"""Several cores that start together and share memory ports: every cycle of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.cycles.jit import entry
from weft.cycles.machine import machine_record
from weft.cycles.origin import begin
from weft.cycles.ports import new_ports, step_port
from weft.cycles.program import read_program
from weft.cycles.replay import (
    PIECE_CYCLES,
    STUCK_CYCLES,
    Estimate,
    estimate_of,
    refuse_endless,
    step_core,
    stuck,
)
from weft.cycles.state import NONE, STATE, new_state
from weft.cycles.sync import deliver_posts
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram
from weft.hw.contract.timing import program_burst

WORK, DRAINS, REPEATS, INSTRUCTIONS = range(4)
"""The columns of ``bounds`` [cores + 1, 4]: where a core's part of a shared array begins.

The column INSTRUCTIONS has the number of the core's instructions."""


@dataclass(frozen=True)
class PortUse:
    """Beats that a memory port carried, programs too; each is a cycle of its direction."""

    read_beats: int
    write_beats: int


@dataclass(frozen=True)
class SystemEstimate:
    """The estimate of each program, with times from when its core accepted the first instruction, and of each port."""

    cores: tuple[Estimate, ...]
    ports: tuple[PortUse, ...]

    @property
    def cycles(self) -> int:
        """The cycles of the core that takes longest."""
        return max(each.cycles for each in self.cores)


def estimate_system(programs: Sequence[bytes], arch: Arch, dram: IdealDram = EXPECTED,
                    progress: Callable[[int, int], None] | None = None) -> SystemEstimate:
    """Return when every operation of legal programs runs, one program a core from core 0 on; the others rest.

    ``progress(operations done, all)`` is called now and then. Raise IsaError for a program that is truncated,
    EstimateError for one that ends within a SIMD loop or is endless."""
    assert arch.cores > 1 and 0 < len(programs) <= arch.cores
    read = [read_program(program, arch) for program in programs]
    for each in read:
        refuse_endless(each)
    machine = machine_record(arch, dram)
    states = np.zeros(arch.cores, STATE)
    for core in range(arch.cores):
        states[core] = new_state(arch, int(machine["writer_vectors"]))
        _join(states[core], machine, arch, len(programs[core]) if core < len(programs) else 0)
    bounds = np.zeros((len(read) + 1, 4), np.int64)
    for core, each in enumerate(read):
        bounds[core + 1] = bounds[core] + (len(each.work), len(each.drains), len(each.repeats), 0)
        bounds[core, INSTRUCTIONS] = each.instructions
    work, drains, repeats = (np.concatenate([getattr(each, name) for each in read])
                             for name in ("work", "drains", "repeats"))
    times = np.full((len(work), 3), NONE)
    ports, clock = new_ports(arch, len(programs)), np.array([0, 0, 0, PIECE_CYCLES], np.int64)
    while not replay_system(states, ports, machine, work, drains, repeats, bounds, times, clock):
        if clock[0] - clock[2] > STUCK_CYCLES:
            raise stuck()
        if progress:
            progress(int(clock[1]), len(work))
    own = np.split(times, bounds[1:-1, WORK])
    return SystemEstimate(tuple(estimate_of(arch, each, state["control"], mine, {})
                                for each, state, mine in zip(read, states, own, strict=False)),
                          tuple(PortUse(int(port["read_beats"]), int(port["write_beats"])) for port in ports))


def cycles_an_image(programs: Sequence[bytes], arch: Arch, dram: IdealDram = EXPECTED) -> int:
    """Return the average cycles an image, rounded up, if all cores start together, each with its own program."""
    return -(-estimate_system(programs, arch, dram).cycles // len(programs))


def _join(state: np.void, machine: np.void, arch: Arch, program_bytes: int) -> None:
    """Put a memory port behind a core, and its program there."""
    beat = arch.stream_width // 8
    state["paced"], state["control"]["beats"] = 1, 0
    program = state["program"]
    program["last_beat"] = (program_bytes - 1) // beat if program_bytes else -1
    program["max_burst"] = program_burst(arch)
    begin(program, machine)


@entry
def replay_system(states, ports, machine, work, drains, repeats, bounds, times, clock):
    """Step some cycles and fill ``times`` [operations, (issue, start, finish)]; tell whether all programs ended.

    ``bounds`` says which part of the arrays is a core's; ``clock``: see ``replay``."""
    now, until = clock[0], clock[0] + clock[3]
    cores = len(bounds) - 1
    left = True
    while now < until and left:
        for number in range(len(ports)):
            step_port(ports[number], states, machine, now)
        finished, left = 0, False
        for core in range(cores):
            first, last = bounds[core], bounds[core + 1]
            state = states[core]
            begin_work, end_work = first[WORK], last[WORK]
            step_core(state, machine, work[begin_work:end_work], drains[first[DRAINS]:last[DRAINS]],
                      repeats[first[REPEATS]:last[REPEATS]], times[begin_work:end_work], now)
            finished += state.control.finished
            left = left or (state.control.finished < end_work - begin_work
                            or state.control.instruction < first[INSTRUCTIONS])
        if machine.sync_counters:
            deliver_posts(states, cores)
        if finished != clock[1]:
            clock[1], clock[2] = finished, now
        now += 1
    clock[0] = now
    return not left
