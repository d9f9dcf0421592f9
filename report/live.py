# SPDX-License-Identifier: Apache-2.0
"""Memory over time: how many vectors of each memory will still be read, and the traffic of the DRAMs."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.cycles.jit import entry, kernel
from weft.cycles.program import MEMORIES
from weft.hw.contract.units import UNIT_NAMES, Memory, dram_units
from weft.report.operations import Ran

SAMPLES = 600
"""The number of instants of a program that are shown."""


def memory_over_time(ran: Ran) -> dict[str, Any]:
    """Return the use of memories at SAMPLES instants of a program.

    ``cycle`` [SAMPLES]; ``live``: memory -> vectors [SAMPLES] that will still be read; ``capacity``: vectors of each
    memory, of the DRAMs those that the program uses; ``traffic``: DRAM unit -> bytes per cycle [SAMPLES], from an
    instant to the next."""
    step = max(ran.cycles, 1) / SAMPLES
    live, capacity = {}, {}
    for memory in Memory:
        live[memory.value], capacity[memory.value] = _live(ran, memory, step)
    arch = ran.model.arch
    capacity |= {Memory.LOCAL.value: arch.local_depth, Memory.ACCUMULATORS.value: arch.accumulator_depth}
    return {"cycle": [round(index * step) for index in range(SAMPLES)], "live": live, "capacity": capacity,
            "traffic": {unit: _rate(ran, unit, step) for unit in dram_units(arch)}}


def _live(ran: Ran, memory: Memory, step: float) -> tuple[list[int], int]:
    """Return the live vectors of a memory at each instant, and the depth that the program uses."""
    number, work = MEMORIES.index(memory), ran.work
    depth = max([0, *(int(work[f"last{operand}"][work[f"memory{operand}"] == number].max(initial=-1)) + 1
                      for operand in (0, 1))])
    outputs = ran.model.outputs if memory is Memory.DRAM0 else ()
    depth = max([depth, *(port.base + port.size for port in outputs)])
    kept: np.ndarray = np.zeros(depth, bool)
    for port in outputs:
        kept[port.base:port.base + port.size] = True
    changes = np.zeros(SAMPLES + 1, np.int64)
    begins, ends = ran.spans
    count_live(np.ascontiguousarray(work), begins, ends, number, kept, float(ran.cycles), step, changes)
    return np.cumsum(changes[:SAMPLES]).tolist(), depth


@entry
def count_live(work, begins, ends, memory, kept, cycles, step, changes):
    """Add to ``changes`` [instants + 1] where values become live and dead.

    A value lives from its write (values there at first: from 0) to its last read. ``kept`` [vectors]: read once more
    after the program."""
    written, read = np.zeros(len(kept), np.int64), np.full(len(kept), -1, np.int64)
    for index in range(len(work)):
        operation = work[index]
        if ends[index] < 0:
            continue
        for operand in range(2):
            of = operation.memory0 if operand == 0 else operation.memory1
            if of != memory:
                continue
            writes = (operation.writes0 if operand == 0 else operation.writes1) and not operation.accumulate
            base = operation.base0 if operand == 0 else operation.base1
            stride = operation.stride0 if operand == 0 else operation.stride1
            pitch = operation.pitch0 if operand == 0 else operation.pitch1
            for row in range(operation.rows):
                for vector in range(operation.size):
                    address = base + row * pitch + vector * stride
                    if writes:
                        close(written[address], read[address], step, changes)
                        written[address], read[address] = begins[index], -1
                    else:
                        read[address] = ends[index]
    for address in range(len(kept)):
        close(written[address], cycles if kept[address] else read[address], step, changes)


@kernel
def close(written, read, step, changes):
    """Add a value that lived from cycle ``written`` to cycle ``read`` to ``changes``."""
    if read >= 0:
        changes[min(int(np.ceil(written / step)), len(changes) - 1)] += 1
        changes[min(int(read / step) + 1, len(changes) - 1)] -= 1


def _rate(ran: Ran, unit: str, step: float) -> list[float]:
    """Return the bytes per cycle between instants; each operation's bytes are spread evenly over its time."""
    of_unit = (ran.work["unit"] == UNIT_NAMES.index(unit)) & (ran.spans[1] >= 0)
    begins, ends = (column[of_unit] for column in ran.spans)
    moved = (ran.work["size"].astype(np.int64) * ran.work["rows"])[of_unit] * ran.model.arch.vector_bytes
    total = np.cumsum(moved)
    times = np.stack([begins, ends], 1).ravel()
    sums = np.stack([total - moved, total], 1).ravel()
    instants = np.arange(SAMPLES + 1) * step
    through = np.interp(instants, times, sums) if len(times) else np.zeros(SAMPLES + 1)
    return [float(f"{rate:.4g}") for rate in np.diff(through) / step]
