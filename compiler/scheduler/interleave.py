# SPDX-License-Identifier: Apache-2.0
"""Interleaving: sort operations by the cycle in which they would start on a machine with endless queues.

The machine takes instructions in order and its queues are short, so a program is fast when each instruction stands
where its unit gets to it. One forward pass gives every operation its start: its unit takes operations in the order in
which they were emitted, and an operation waits until those before it that it conflicts with are done, as the interlock
decides it (the whole range from an access's first to its last vector counts). Then operations are sorted by start.
Conflicting operations never change places, because the later one starts strictly later; so the program means the
same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address
from weft.cycles.jit import entry, kernel
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.timing import (
    ACCUMULATOR_READ_LATENCY,
    ISSUE_LATENCY,
    LOCAL_READ_LATENCY,
    array_latency,
    load_weight_cycles,
    move_out_latency,
)
from weft.hw.contract.units import Memory, clients, unit_names

SIMD_CYCLES = 2
"""The modelled cycles of a SIMD operation on one vector while MatMuls run: 1.4 to 2.7 in RTL.

MatMuls have priority at the banks of the accumulators."""

_MEMORIES = tuple(Memory)
_NUMBER = {memory.value: number for number, memory in enumerate(_MEMORIES)}
_COLUMNS = ("unit", "joined", "cycles", "latency", "read", "read_first", "read_last", "write", "write_first",
            "write_last")
_UNIT, _JOINED, _CYCLES, _LATENCY, _READ, _WRITE = (_COLUMNS.index(name) for name in (
    "unit", "joined", "cycles", "latency", "read", "write"))
_NONE = (-1, 0, 0)
SYNC = "sync"
"""The unit of posts and waits, which only machines of several cores have."""

Row = tuple[int, ...]


def interleave(operations: Sequence[lir.Operation], arch: Arch, paces: np.ndarray | None = None) -> np.ndarray:
    """Return the new order, as indices into ``operations``.

    ``paces`` [operations]: half cycles for a vector through the SIMD unit; None: SIMD_CYCLES for all."""
    return np.argsort(start_cycles(operations, arch, paces), kind="stable")


def start_cycles(operations: Sequence[lir.Operation], arch: Arch, paces: np.ndarray | None = None) -> np.ndarray:
    """Return [operations]: the cycle in which each would start; a SIMD loop starts as a whole."""
    return Timeline(operations, arch, paces).advance(len(operations))


class Timeline:
    """The pass over the operations of one core, which may stop between them and go on.

    ``done`` [operations]: when each ends, as far as the pass has come."""

    def __init__(self, operations: Sequence[lir.Operation], arch: Arch, paces: np.ndarray | None = None) -> None:
        names = unit_names(arch)
        self.units = {name: number for number, name in enumerate((*names, *({SYNC} - {*names})))}
        self.rows = rows = _Rows(arch, self.units).table(operations)
        if paces is not None:
            paced = np.array([isinstance(operation, lir.Simd) for operation in operations], bool)
            rows[paced, _CYCLES] = rows[paced, _CYCLES] * paces[paced] // (2 * SIMD_CYCLES)
        ends = [max(int(rows[rows[:, column] == memory, column + 2].max(initial=-1)) for column in (_READ, _WRITE)) + 1
                for memory in range(len(_MEMORIES))]
        self.bases, self.touches = np.cumsum([0, *ends]), _checked(self.units, arch)
        self.read_until, self.written_until = np.zeros((2, len(self.units), self.bases[-1]), np.int64)
        self.free = np.zeros(len(self.units) + 2, np.int64)
        self.free[-1] = -1
        self.starts, self.done = np.zeros((2, len(rows)), np.int64)
        self.first = 0

    def advance(self, end: int, least: int = 0) -> np.ndarray:
        """Go on to before operation ``end``, which must not be within a loop; return [operations] of starts so far.

        The next operation does not start before cycle ``least``."""
        part = slice(self.first, end)
        self.starts[part], self.done[part] = _starts(
            self.rows[part], least, self.bases, self.touches, self.units["mat_mul"], self.units["load_weight"],
            self.read_until, self.written_until, self.free)
        self.first = end
        return self.starts[:end]


def _checked(units: Mapping[str, int], arch: Arch) -> np.ndarray:
    """Return [memory, unit, writes]: whether the unit reads (0) or writes (1) the memory at all."""
    touched = np.zeros((len(_MEMORIES), len(units), 2), np.bool_)
    for number, memory in enumerate(_MEMORIES):
        for writes in (False, True):
            for name in clients(arch, memory, writes=writes):
                touched[number, units[name], int(writes)] = True
    touched[[_NUMBER[DRAM0], _NUMBER[DRAM1]], units[SYNC], 1] = True
    return touched


class _Rows:
    """The translation of operations into rows of integers: unit, times, what is read and what is written."""

    def __init__(self, arch: Arch, units: Mapping[str, int]) -> None:
        self.units = units
        self.arch = arch
        self.port = {window: "dram" if arch.shared_dram else window for window in (DRAM0, DRAM1)}
        self.array = LOCAL_READ_LATENCY + array_latency(arch)
        # Fixed-point programs keep the order that they had before machines came whose moves take longer.
        whole = arch.scheme.per_lane
        self.leave = move_out_latency(arch) + ISSUE_LATENCY if whole else ACCUMULATOR_READ_LATENCY
        self.enter = LOCAL_READ_LATENCY + (ISSUE_LATENCY if whole else 0)
        self.body = 0
        self.iterations = 1

    def table(self, operations: Sequence[lir.Operation]) -> np.ndarray:
        """Return [operations, _COLUMNS]."""
        rows = [self.ROW[type(operation)](self, operation) for operation in operations]
        return np.array(rows, np.int64).reshape(-1, len(_COLUMNS))

    @staticmethod
    def _range(address: Address, size: int, stride: int, rows: int = 1, pitch: int = 0) -> Row:
        """Return (memory, first vector, last vector) of a strided access."""
        return (_NUMBER[address.memory], address.offset,
                address.offset + (size - 1) * stride + (rows - 1) * pitch)

    def _mat_mul(self, entry: lir.MatMul) -> Row:
        """Return the row of a MatMul."""
        walks = entry.read_walks
        read = (_NUMBER[LOCAL], walks[0].base, walks[-1].last) if walks else _NONE
        write = self._range(entry.accumulator, entry.size, entry.accumulator_stride, entry.rows,
                            entry.accumulator_pitch)
        return self.units["mat_mul"], 0, entry.size * entry.rows, self.array, *read, *write

    def _load_weight(self, entry: lir.LoadWeight) -> Row:
        """Return the row of a LoadWeight."""
        read = self._range(entry.local, entry.size, 1)
        cycles = load_weight_cycles(self.arch, entry.size + entry.zero_bias)
        return self.units["load_weight"], 0, cycles, LOCAL_READ_LATENCY, *read, *_NONE

    def _data_move(self, entry: lir.DataMove) -> Row:
        """Return the row of a DataMove."""
        near = self._range(entry.local, entry.size, entry.local_stride, entry.rows, entry.local_pitch)
        far = self._range(entry.far, entry.size, entry.far_stride, entry.rows, entry.far_pitch)
        read, write = (far, near) if entry.to_local else (near, far)
        vectors = entry.size * entry.rows
        if entry.far.memory == ACCUMULATORS:
            unit, latency = ("move_out", self.leave) if entry.to_local else ("move_in", self.enter)
            return self.units[unit], 0, vectors, latency, *read, *write
        unit = f"{self.port[entry.far.memory]}_{'read' if entry.to_local else 'write'}"
        beats = math.ceil(vectors * self.arch.vector_beats)
        return self.units[unit], 0, beats, EXPECTED.read_latency, *read, *write

    def _signal(self, entry: lir.Signal) -> Row:
        """Return the row of a Signal, which holds its range against moves as a write would."""
        return (self.units[SYNC], 0, 1, ISSUE_LATENCY, *_NONE,
                *self._range(entry.far, entry.size, 1))

    def _simd(self, entry: lir.Simd) -> Row:
        """Return the row of a SIMD operation; in a loop it covers all iterations."""
        count, joined = (self.iterations, 1) if self.body else (1, 0)
        self.body = max(0, self.body - 1)
        read = _NONE if entry.read is None else self._range(entry.read, 1 if entry.hold else count, entry.read_stride)
        write = _NONE if entry.write is None else self._range(entry.write, count, entry.write_stride)
        return self.units["simd"], joined, count * SIMD_CYCLES, ACCUMULATOR_READ_LATENCY, *read, *write

    def _simd_loop(self, entry: lir.SimdLoop) -> Row:
        """Return the row of a SIMD loop's header, and remember the loop for its body."""
        self.body, self.iterations = entry.body, entry.iterations
        return self.units["simd"], 0, 1, ACCUMULATOR_READ_LATENCY, *_NONE, *_NONE

    def _load_lut(self, entry: lir.LoadLut) -> Row:
        """Return the row of a LoadLUT."""
        read = self._range(entry.local, entry.size, 1)
        return self.units["simd"], 0, entry.size, LOCAL_READ_LATENCY, *read, *_NONE

    def _load_scale(self, entry: lir.LoadScale) -> Row:
        """Return the row of a LoadScale."""
        read = self._range(entry.local, SCALE_VECTORS, 1)
        return self.units["move_out"], 0, SCALE_VECTORS + self.leave, LOCAL_READ_LATENCY, *read, *_NONE

    def _load_activation_table(self, entry: lir.LoadActivationTable) -> Row:
        """Return the row of a LoadActivationTable."""
        read = self._range(entry.local, TABLE_ENTRIES, 1)
        return self.units["move_out"], 0, TABLE_ENTRIES + self.leave, LOCAL_READ_LATENCY, *read, *_NONE

    ROW: dict[type, Callable[..., Row]] = {
        lir.MatMul: _mat_mul, lir.LoadWeight: _load_weight, lir.DataMove: _data_move, lir.Simd: _simd,
        lir.SimdLoop: _simd_loop, lir.LoadLut: _load_lut, lir.LoadScale: _load_scale,
        lir.LoadActivationTable: _load_activation_table, lir.Signal: _signal,
    }


@kernel
def _free_after(start, range_, writes, unit, touches, bases, read_until, written_until):  # type: ignore
    """Return the cycle from which ``unit`` may touch a range: after what it conflicts with, at least ``start``."""
    memory = range_[0]
    if memory < 0:
        return start
    for other in range(touches.shape[1]):
        if other == unit:
            continue
        for vector in range(bases[memory] + range_[1], bases[memory] + range_[2] + 1):
            if touches[memory, other, 1]:
                start = max(start, written_until[other, vector])
            if writes and touches[memory, other, 0]:
                start = max(start, read_until[other, vector])
    return start


@kernel
def _hold(range_, unit, bases, until, done):  # type: ignore
    """Note that ``unit`` is at work on a range until cycle ``done``."""
    if range_[0] >= 0:
        base = bases[range_[0]]
        until[unit, base + range_[1]:base + range_[2] + 1] = done


@entry
def _starts(rows, least, bases, touches, mat_mul, load_weight, read_until, written_until, free):  # type: ignore
    """Return the start and the end of every operation in cycles; the first starts at ``least`` or later.

    ``bases`` puts the memories one after the other in one array of vectors. A SIMD loop, header and body, starts as
    one. A MatMul starts after the loads of weights before it; such a load starts after the MatMuls before it have
    started, because these take over the weights as they start. ``read_until``, ``written_until`` [units, vectors] and
    ``free`` [units + 2] are kept from call to call; behind the units' numbers ``free`` has when weights are loaded, and
    when they were taken."""
    units = touches.shape[1]
    starts, ends = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    weights_ready, weights_taken, first = free[units], free[units + 1], 0
    while first < len(rows):
        end = first + 1
        while end < len(rows) and rows[end, _JOINED]:
            end += 1
        unit = rows[first, _UNIT]
        start = max(free[unit], least)
        least = 0
        if unit == mat_mul:
            start = max(start, weights_ready)
        if unit == load_weight:
            start = max(start, weights_taken + 1)
        for row in rows[first:end]:
            start = _free_after(start, row[_READ:_WRITE], False, unit, touches, bases, read_until, written_until)
            start = _free_after(start, row[_WRITE:], True, unit, touches, bases, read_until, written_until)
        free[unit] = start + rows[first:end, _CYCLES].sum()
        done = free[unit] + rows[end - 1, _LATENCY]
        for row in rows[first:end]:
            _hold(row[_READ:_WRITE], unit, bases, read_until, done)
            _hold(row[_WRITE:], unit, bases, written_until, done)
        starts[first:end], ends[first:end] = start, done
        if unit == mat_mul:
            weights_taken = start
        if unit == load_weight:
            weights_ready = done
        first = end
    free[units], free[units + 1] = weights_ready, weights_taken
    return starts, ends
