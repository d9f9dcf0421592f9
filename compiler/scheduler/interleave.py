# SPDX-License-Identifier: Apache-2.0
"""Interleaving: sort operations by the cycle in which they would start on a machine with endless queues.

The machine takes instructions in order and its queues are short, so a program is fast when each instruction stands
where its unit gets to it. One forward pass gives every operation its start. A unit takes operations in the order in
which they were emitted; moves within the machine also fill gaps that their unit has before (``starts.py``). An
operation waits until those before it that it conflicts with are done, as the interlock decides it: the whole range from
an access's first to its last vector counts. Then operations are sorted by start.
Conflicting operations never change places, because the later one starts strictly later; so the program means the
same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1
from weft.compiler.lir_table import MEMORY_NUMBERS, LirTable
from weft.compiler.scheduler.starts import CHAINED, COLUMNS, CYCLES, GAPS, READ, WRITE, start_all
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.instructions import KEY_ENTRIES
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
"""The modelled cycles of a SIMD operation that reads or writes a vector while MatMuls run: 1.4 to 2.7 in RTL.

MatMuls have priority at the banks of the accumulators. An operation on registers alone takes one cycle."""

_MEMORIES = tuple(Memory)
_NONE = (-1, 0, 0)
SYNC = "sync"
"""The unit of posts and waits, which only machines of several cores have."""

Row = tuple[Any, ...]
"""A value, or an array of one for each operation, for each of COLUMNS."""


class Paces(NamedTuple):
    """The assumed speed of units, [operations]: half cycles for a vector through the SIMD unit, and for a beat.

    None for one of them: SIMD_CYCLES, or a cycle."""

    simd: np.ndarray | None = None
    fetch: np.ndarray | None = None


USUAL = Paces()


def interleave(table: LirTable, arch: Arch, paces: Paces = USUAL) -> np.ndarray:
    """Return the new order of a program's operations, as indices."""
    return np.argsort(start_cycles(table, arch, paces), kind="stable")


def start_cycles(table: LirTable, arch: Arch, paces: Paces = USUAL) -> np.ndarray:
    """Return [operations]: the cycle in which each would start; a SIMD loop starts as a whole."""
    return Timeline(table, arch, paces).advance(table.count)


class Timeline:
    """A timeline works out when each operation of one core would start and end, on a machine with endless queues.

    It takes the operations in order. It can stop between two of them and go on later, so that cores that wait for each
    other take turns. ``starts`` and ``done`` [operations] are cycles, 0 for operations that it has not reached."""

    def __init__(self, table: LirTable, arch: Arch, paces: Paces = USUAL) -> None:
        names = unit_names(arch)
        self.units = {name: number for number, name in enumerate((*names, *({SYNC} - {*names})))}
        self.rows = rows = _paced(_Rows(arch, self.units).table(table), table, paces)
        ends = [max(int(rows[rows[:, column] == memory, column + 2].max(initial=-1)) for column in (READ, WRITE)) + 1
                for memory in range(len(_MEMORIES))]
        self.bases, self.touches = np.cumsum([0, *ends]), _checked(self.units, arch)
        self.gaps = np.zeros((len(self.units), GAPS, 2), np.int64)
        self.read_until, self.written_until = np.zeros((2, len(self.units), self.bases[-1]), np.int64)
        self.free = np.zeros(len(self.units) + 2, np.int64)
        self.free[-1] = -1
        self.starts, self.done = np.zeros((2, table.count), np.int64)
        self.first = 0

    def advance(self, end: int, least: int = 0) -> np.ndarray:
        """Work out all operations before number ``end``, which must not be within a loop; return their start cycles.

        The result is int64 [end]. The first operation that is worked out now does not start before cycle ``least``."""
        part = slice(self.first, end)
        start_all(self.rows[part], least, self.bases, self.touches, self.units["mat_mul"], self.units["load_weight"],
                  self.read_until, self.written_until, self.free, self.gaps, self.starts[part], self.done[part])
        self.first = end
        return self.starts[:end]


def _paced(rows: np.ndarray, table: LirTable, paces: Paces) -> np.ndarray:
    """Return rows with the cycles that units take at these paces."""
    if paces.simd is not None:
        paced = table.numbers[lir.Simd]
        rows[paced, CYCLES] = np.floor(rows[paced, CYCLES] * paces.simd[paced] / (2 * SIMD_CYCLES))
    if paces.fetch is not None:
        numbers, move = table.of_kind(lir.DataMove)
        paced = numbers[move.far.memory != MEMORY_NUMBERS[ACCUMULATORS]]
        rows[paced, CYCLES] = np.floor(rows[paced, CYCLES] * paces.fetch[paced] / 2)
    return rows


def _checked(units: Mapping[str, int], arch: Arch) -> np.ndarray:
    """Return [memory, unit, writes]: whether the unit reads (0) or writes (1) the memory at all."""
    touched = np.zeros((len(_MEMORIES), len(units), 2), np.bool_)
    for number, memory in enumerate(_MEMORIES):
        for writes in (False, True):
            for name in clients(arch, memory, writes=writes):
                touched[number, units[name], int(writes)] = True
    return touched


class _Rows:
    """The translation of operations into rows of integers: unit, times, what is read and what is written."""

    def __init__(self, arch: Arch, units: Mapping[str, int]) -> None:
        self.units = units
        self.arch = arch
        self.array = LOCAL_READ_LATENCY + array_latency(arch)
        # Fixed-point programs keep the order that they had before machines came whose moves take longer.
        whole = arch.scheme.per_lane
        self.leave = move_out_latency(arch) + ISSUE_LATENCY if whole else ACCUMULATOR_READ_LATENCY
        self.enter = LOCAL_READ_LATENCY + (ISSUE_LATENCY if whole else 0)

    def table(self, table: LirTable) -> np.ndarray:
        """Return the rows of all operations, int64 [operations, columns], with the columns that COLUMNS names."""
        rows = np.empty((table.count, len(COLUMNS)), np.int64)
        for kind, fill in self.ROW.items():
            numbers, entry = table.of_kind(kind)
            for column, values in enumerate(fill(self, entry, table)):
                rows[numbers, column] = values
        return rows

    @staticmethod
    def _range(address: Any, size: Any, stride: Any, rows: Any = 1, pitch: Any = 0) -> Row:
        """Return (memory, first vector, last vector) of a strided access, _NONE where there is no address."""
        there = address.memory >= 0
        last = address.offset + (size - 1) * stride + (rows - 1) * pitch
        return address.memory, np.where(there, address.offset, 0), np.where(there, last, 0)

    def _mat_mul(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of MatMuls, which read from their first row of taps that counts to the last one."""
        moves = table.tap_moves()
        reads = np.array([bool(own) for own in moves], bool)[entry.settings] & (entry.local.memory >= 0)
        behind = np.array([own[-1] if own else 0 for own in moves], np.int64)[entry.settings]
        memory, first, last = self._range(entry.local, entry.size, entry.local_stride, entry.rows, entry.local_pitch)
        read = (np.where(reads, found, none) for found, none in zip((memory, first, last + behind), _NONE, strict=True))
        write = self._range(entry.accumulator, entry.size, entry.accumulator_stride, entry.rows,
                            entry.accumulator_pitch)
        return self.units["mat_mul"], 0, 0, entry.size * entry.rows, self.array, *read, *write

    def _load_weight(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of LoadWeights."""
        read = self._range(entry.local, entry.size, 1)
        sizes, places = np.unique(entry.size + entry.zero_bias, return_inverse=True)
        cycles = np.array([load_weight_cycles(self.arch, size) for size in sizes.tolist()], np.int64)
        return self.units["load_weight"], 0, 0, cycles[places], LOCAL_READ_LATENCY, *read, *_NONE

    def _data_move(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of DataMoves."""
        near = self._range(entry.local, entry.size, entry.local_stride, entry.rows, entry.local_pitch)
        far = self._range(entry.far, entry.size, entry.far_stride, entry.rows, entry.far_pitch)
        inward, vectors = entry.to_local != 0, entry.size * entry.rows
        read = (np.where(inward, *both) for both in zip(far, near, strict=True))
        write = (np.where(inward, *both) for both in zip(near, far, strict=True))
        inside = entry.far.memory == MEMORY_NUMBERS[ACCUMULATORS]
        cycles = np.where(inside, vectors, np.ceil(vectors * self.arch.vector_beats).astype(np.int64))
        latency = np.where(inside, np.where(inward, self.leave, self.enter), EXPECTED.read_latency)
        # On INT8 machines a move out of the accumulators needs the scales before it.
        fills = inside & ~(inward & self.arch.scheme.per_lane)
        joined = CHAINED * table.scaled_moves[table.numbers[lir.DataMove]]
        return self._mover()[entry.far.memory, entry.to_local], joined, fills, cycles, latency, *read, *write

    def _mover(self) -> np.ndarray:
        """Return the unit of a DataMove, int64 [far memory, to local]."""
        units = np.zeros((len(_MEMORIES), 2), np.int64)
        units[MEMORY_NUMBERS[ACCUMULATORS]] = self.units["move_in"], self.units["move_out"]
        for window in (DRAM0, DRAM1):
            port = "dram" if self.arch.shared_dram else window
            units[MEMORY_NUMBERS[window]] = self.units[f"{port}_write"], self.units[f"{port}_read"]
        return units

    def _signal(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of Signals, which hold their range against moves as writes would."""
        return self.units[SYNC], 0, 0, 1, ISSUE_LATENCY, *_NONE, *self._range(entry.far, entry.size, 1)

    def _simd(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of SIMD operations; in a loop one covers all iterations."""
        inside, count = table.loops()
        read = self._range(entry.read, np.where(entry.hold, 1, count), entry.read_stride)
        write = self._range(entry.write, count, entry.write_stride)
        cycles = count * np.where((read[0] >= 0) | (write[0] >= 0), SIMD_CYCLES, 1)
        return self.units["simd"], inside, 0, cycles, ACCUMULATOR_READ_LATENCY, *read, *write

    def _simd_loop(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of SIMD loops' headers."""
        return self.units["simd"], 0, 0, 1, ACCUMULATOR_READ_LATENCY, *_NONE, *_NONE

    def _load_lut(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of LoadLUTs."""
        read = self._range(entry.local, entry.size, 1)
        size = np.where(entry.table == 0, KEY_ENTRIES, entry.size)
        return self.units["simd"], 0, 0, size, LOCAL_READ_LATENCY, *read, *_NONE

    def _load_scale(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of LoadScales, which fill gaps together with the moves right behind them."""
        read = self._range(entry.local, SCALE_VECTORS, 1)
        fills = np.append(table.scaled_moves, False)[table.numbers[lir.LoadScale] + 1]
        return self.units["move_out"], 0, fills, SCALE_VECTORS + self.leave, LOCAL_READ_LATENCY, *read, *_NONE

    def _load_activation_table(self, entry: Any, table: LirTable) -> Row:
        """Return the rows of LoadActivationTables."""
        read = self._range(entry.local, TABLE_ENTRIES, 1)
        return self.units["move_out"], 0, 0, TABLE_ENTRIES + self.leave, LOCAL_READ_LATENCY, *read, *_NONE

    ROW: dict[type, Callable[..., Row]] = {
        lir.MatMul: _mat_mul, lir.LoadWeight: _load_weight, lir.DataMove: _data_move, lir.Simd: _simd,
        lir.SimdLoop: _simd_loop, lir.LoadLut: _load_lut, lir.LoadScale: _load_scale,
        lir.LoadActivationTable: _load_activation_table, lir.Signal: _signal,
    }
