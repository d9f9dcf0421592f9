# SPDX-License-Identifier: Apache-2.0
"""The causes of the array's waiting, layer by layer, worked out from when each operation ran.

It works on the operations of the estimator and of the machine's trace port alike. Every cycle of a program belongs to
one MatMul, and so to its layer. A MatMul has the cycles in which its vectors go into the array, and those that the
array waited before. The tail, after the last MatMul's last vector, belongs to none. A wait is followed back in time.
The MatMul started when the last of what it needed was there. While that was being done, the wait belongs to the unit
that did it; what that operation had waited for explains the time before, and so on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.cycles.interlock import FINISHED, ISSUED, STARTED, conflicts, track
from weft.cycles.jit import entry, kernel
from weft.cycles.program import MEMORIES, NO_MEMORY, DecodedProgram, passed_vectors
from weft.cycles.state import LOAD_WEIGHT, MAT_MUL, NONE, SLOTS, SYNC, TRACKED
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ISSUE_LATENCY, product_latency
from weft.hw.contract.units import UNIT_NAMES, Memory, depths

CAUSES = ("weights", "dram_read", "dram_write", "moves", "simd", "hazard", "cores", "issue")
"""The causes of waits.

``weights``: LoadWeight at work, or biases on their way into the columns; ``moves``: between accumulators and local
memory; ``cores``: other cores; ``hazard``: sums on their way through the array; ``issue``: not decoded yet. A MatMul
never waits for memory banks, because they serve it first."""
_CAUSE_OF_UNIT = {"load_weight": "weights", "mat_mul": "hazard", "simd": "simd", "move_out": "moves",
                  "move_in": "moves", "dram0_read": "dram_read", "dram1_read": "dram_read",
                  "dram0_write": "dram_write", "dram1_write": "dram_write", "dram_read": "dram_read",
                  "dram_write": "dram_write", "sync": "cores"}
ISSUE, WEIGHTS = CAUSES.index("issue"), CAUSES.index("weights")
NO_LAYER = -1


@dataclass(frozen=True)
class Waits:
    """The use of each layer's cycles.

    ``vectors`` [layers] through the array, ``waits`` [layers, CAUSES] in cycles, ``dram_bytes`` [layers, (DRAM0,
    DRAM1)]; ``tail`` in cycles. Vectors, waits and tail together are ``cycles``."""

    cycles: int
    vectors: np.ndarray
    waits: np.ndarray
    dram_bytes: np.ndarray
    tail: int


def analyse(program: DecodedProgram, operations: np.ndarray, cycles: int, layers: np.ndarray, arch: Arch) -> Waits:
    """Return the waits of a program.

    ``operations``: when each operation of ``program`` ran (``units.OPERATION``), all of them to the end. ``layers``
    [operations]: the layer that each belongs to, NO_LAYER for none; at least one layer."""
    work = program.work
    count = max(int(layers.max(initial=0)) + 1, 1)
    times = np.stack([operations[name] for name in ("issue_cycle", "start_cycle", "finish_cycle")], 1)
    causes = np.array([CAUSES.index(_CAUSE_OF_UNIT[name]) for name in UNIT_NAMES])
    room = [depths(arch, name) for name in UNIT_NAMES]
    limits = np.array([(depth.queue, depth.outstanding) for depth in room])
    waits = np.zeros((count + 1, len(CAUSES)), np.int64)  # the last row: no layer
    blockers, previous = _blockers(work, times)
    end = explain(work, times, blockers, previous, layers, causes, limits, product_latency(arch), waits)
    passed = passed_vectors(work)
    mat_mul = work["unit"] == MAT_MUL
    return Waits(cycles, _sum(layers, passed * mat_mul, count), waits[:count],
                 np.stack([_sum(layers, passed * arch.vector_bytes * _moves(work, port), count)
                           for port in (Memory.DRAM0, Memory.DRAM1)], 1), int(cycles - end))


def _sum(layers: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Return the sum of ``values`` for each of ``count`` layers."""
    known = layers != NO_LAYER
    return np.bincount(layers[known], values[known], count).astype(np.int64)


def _moves(work: np.ndarray, window: Memory) -> np.ndarray:
    """Tell which operations move data from or to a DRAM window."""
    moves: np.ndarray = (work["memory1"] == MEMORIES.index(window)) & (work["unit"] != SYNC)
    return moves


def _blockers(work: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each operation, the conflicting one that was done last, and the one before it in its unit.

    Each is NONE if there is none."""
    blockers, previous = (np.full(len(work), NONE) for _ in range(2))
    tracked = np.zeros((len(UNIT_NAMES), SLOTS), TRACKED)
    tracked["memory0"] = tracked["memory1"] = NO_MEMORY
    loop = np.zeros(1, TRACKED)
    loop["memory0"] = loop["memory1"] = NO_MEMORY
    find_blockers(work, times, tracked, loop, np.full((len(UNIT_NAMES), SLOTS), NONE),
                  np.zeros(len(UNIT_NAMES), np.int64), blockers, previous)
    return blockers, previous


@entry
def find_blockers(work, times, tracked, loop, numbers, counts, blockers, previous):
    """Fill ``blockers`` and ``previous`` for all operations.

    ``numbers`` [units, SLOTS]: each unit's newest operations; ``counts``: how many there were so far."""
    for index in range(len(work)):
        number = work[index].unit
        best = NONE
        for other in range(len(counts)):
            if other == number:
                continue
            hands_over = number == MAT_MUL and other == LOAD_WEIGHT
            for place in range(SLOTS):
                older = numbers[other, place]
                if older != NONE and (hands_over or conflicts(tracked[other, place], work[index])) and (
                        best == NONE or times[older, FINISHED] > times[best, FINISHED]):
                    best = older
        blockers[index] = best
        if counts[number]:
            previous[index] = numbers[number, (counts[number] - 1) % SLOTS]
        place = counts[number] % SLOTS
        track(tracked[number, place], loop[0], work[index])
        numbers[number, place] = index
        counts[number] += 1


@entry
def explain(work, times, blockers, previous, layers, causes, limits, latency, waits):
    """Fill ``waits``; return the cycle after the last vector that went into the array.

    A product takes ``latency`` cycles."""
    free = 0
    for index in range(len(work)):
        if work[index].unit != MAT_MUL:
            continue
        layer = layers[index]
        end = times[index, FINISHED] - latency + 1
        taken = work[index].size * work[index].rows + work[index].lag
        first = end - taken  # later than it could where biases enter for new weights
        loaded = times[blockers[index], FINISHED] if blockers[index] != NONE else 0
        begin = max(min(max(times[index, STARTED], loaded) + 1, first), free)
        waits[layer, WEIGHTS] += first - begin
        if begin > free:
            follow_back(times, blockers, previous, causes, limits, work, index, free, begin, waits[layer])
        free = end
    return free


@kernel
def follow_back(times, blockers, previous, causes, limits, work, index, free, until, waits):
    """Add the cycles from ``free`` to ``until``, in which operation ``index`` waited, to ``waits`` [causes].

    It goes back in time from ``until``: each stretch counts for the operation that was waited for last."""
    while until > free:
        last = blockers[index]
        before = previous[index]
        if before != NONE and work[index].unit != MAT_MUL and times[before, FINISHED] < until and (
                last == NONE or times[before, FINISHED] > times[last, FINISHED]):
            last = before
        if last == NONE or times[last, FINISHED] < times[index, ISSUED] + ISSUE_LATENCY:
            held = held_up(times, work, index, free)
            issued = free if held == NONE else min(times[held, ISSUED], until)
            waits[ISSUE] += until - issued
            until = issued
            if until == free:
                return
            last, index = room_maker(times, previous, limits, work, held)
        if last == NONE:  # ``index`` left the queue late: what did it wait for?
            if index == NONE:
                waits[ISSUE] += until - free
                return
            started = max(min(times[index, STARTED], until - 1), free)
            waits[ISSUE] += until - started
            until = started
        else:
            started = max(min(times[last, STARTED], until - 1), free)
            waits[causes[work[last].unit]] += until - started
            until, index = started, last


@kernel
def held_up(times, work, index, free):
    """Return the operation before which the decoder last stood still, from ``index`` back to cycle ``free``.

    Return NONE if it did not stand still."""
    while index > 0 and times[index, ISSUED] > free:
        if times[index, ISSUED] - times[index - 1, ISSUED] > work[index].instruction - work[index - 1].instruction:
            return index
        index -= 1
    return NONE


@kernel
def room_maker(times, previous, limits, work, held):
    """Return the operations whose progress made room for the held operation in its unit; NONE for the other.

    The first made room when it was done, the second when it left the queue."""
    queue, outstanding = limits[work[held].unit]
    left = done = held
    for _ in range(queue):
        left = previous[left] if left != NONE else NONE
    for _ in range(outstanding):
        done = previous[done] if done != NONE else NONE
    if done != NONE and times[done, FINISHED] >= times[left, STARTED]:
        return done, NONE
    return NONE, left
