# SPDX-License-Identifier: Apache-2.0
"""Encode LIR as instructions, and these as ``.tprog`` bytes.

A Configure is written only where a register's value changes, and a Repeat for repetitions, if the machine has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.compiler import lir
from weft.compiler.backend.repeats import shortened
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1
from weft.compiler.lir_table import MEMORY_NUMBERS, LirTable
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdSub, flag_bit
from weft.hw.contract.isa import Isa
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import MODIFIABLE, Register

FLOWS: dict[tuple[str, bool, bool], DataFlow] = {
    (DRAM0, True, False): DataFlow.DRAM0_TO_LOCAL,
    (DRAM0, False, False): DataFlow.LOCAL_TO_DRAM0,
    (DRAM1, True, False): DataFlow.DRAM1_TO_LOCAL,
    (DRAM1, False, False): DataFlow.LOCAL_TO_DRAM1,
    (ACCUMULATORS, True, False): DataFlow.ACCUMULATOR_TO_LOCAL,
    (ACCUMULATORS, True, True): DataFlow.ACCUMULATOR_TO_LOCAL_RELU,
    (ACCUMULATORS, False, False): DataFlow.LOCAL_TO_ACCUMULATOR,
    (ACCUMULATORS, False, True): DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE,
}
"""(far memory, to local, relu or accumulate) -> the DataMove's data flow."""


@dataclass(frozen=True)
class MachineCode:
    """The bytes of a ``.tprog``; ``layers`` [instructions, Repeats expanded]: the number of each one's layer."""

    content: bytes
    layers: np.ndarray

    def text(self) -> str:
        """Return the size as text."""
        return f"{len(self.content)} bytes\n"


def encode(table: LirTable, arch: Arch, joins: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return instructions and, for each operation, the index of its first one (with the Configures it needs).

    ``joins``: reads of DRAM1 may be joined with other cores'. The instructions are uint64 [5,
    instructions]: opcode, flags, operands 0, 1, 2. At the end every changed register gets its reset value again, so
    that programs can follow each other in any order."""
    isa = Isa(arch)
    instructions = np.empty((5, table.count), np.uint64)
    for kind, encoded in ENCODED.items():
        numbers, entry = table.of_kind(kind)
        for row, values in zip(instructions, encoded(isa, entry), strict=True):
            row[numbers] = values
    before, configures = _configures(_needs(table, arch, joins), isa)
    places = np.concatenate([before, np.arange(table.count)])
    order = np.argsort(places, kind="stable")  # Configures come before the operation that needs them
    starts = np.arange(table.count) + np.searchsorted(before, np.arange(table.count))
    return np.concatenate([configures, instructions], axis=1)[:, order], starts


def machine_code(table: LirTable, layers: np.ndarray, arch: Arch, joins: bool = False) -> MachineCode:
    """Return the machine code of operations; ``layers`` [operations]: the number of each one's layer.

    ``joins``: as :func:`encode` has it."""
    instructions, starts = encode(table, arch, joins)
    counts = np.diff([*starts, instructions.shape[1]])
    isa = Isa(arch)
    words = shortened(instructions, isa) if arch.repeat_depth else instructions
    return MachineCode(isa.assemble_words(words), np.repeat(layers, counts))


# -- the values of registers -------------------------------------------------------------------------------------------
class _Need(NamedTuple):
    """Register values that operations need: arrays of the ``operation``, the ``register`` and its ``value``."""

    operation: np.ndarray
    register: np.ndarray
    value: np.ndarray


def _needs(table: LirTable, arch: Arch, joins: bool) -> _Need:
    """Return the register values that all operations need, in program order, and behind them the values after reset."""
    needs = [*_of_walks(table), *_of_settings(table)]
    if joins and table.count:
        needs.append(_Need(np.array([0]), np.array([int(Register.DRAM1_CACHE)]), np.array([MODIFIABLE])))
    needs.append(_restored(table.count, arch))
    together = [np.concatenate(column) for column in zip(*needs, strict=True)]
    order = np.argsort(together[0], kind="stable")
    return _Need(*(column[order] for column in together))


def _of_walks(table: LirTable) -> Iterator[_Need]:
    """Yield the register values of the operations' rows and pitches; a single row has no pitch."""
    for kind, walks in WALKS.items():
        numbers, entry = table.of_kind(kind)
        for register, name in walks.items():
            values = getattr(entry, name)
            there = np.ones(len(numbers), bool) if name == ROWS else entry.rows > 1
            yield _Need(numbers[there], np.full(int(there.sum()), int(register)), (values - (name == ROWS))[there])


def _of_settings(table: LirTable) -> Iterator[_Need]:
    """Yield the register values in the operations' settings.

    Instructions in a loop's body need none: the loop's header has the same settings."""
    for kind in (lir.MatMul, lir.DataMove, lir.Simd, lir.SimdLoop):
        numbers, entry = table.of_kind(kind)
        for place in range(max(map(len, table.settings), default=0)):
            has = np.array([len(settings) > place for settings in table.settings], bool)[entry.settings]
            given = [settings[place] if len(settings) > place else (0, 0) for settings in table.settings]
            yield _Need(numbers[has], *np.array(given, np.int64).reshape(-1, 2)[entry.settings[has]].T)


def _restored(count: int, arch: Arch) -> _Need:
    """Return the values of all registers after reset, as if an operation behind ``count`` others needed them."""
    registers = register_table(arch)
    reset = np.array([spec.reset for spec in registers.values()], np.int64)
    return _Need(np.full(len(reset), count), np.array([*registers], np.int64), reset)


def _configures(needs: _Need, isa: Isa) -> tuple[np.ndarray, np.ndarray]:
    """Return where Configures are needed, and these as uint64 [5, Configures]: where a register's value changes."""
    by_register = np.argsort(needs.register, kind="stable")
    numbers, value = needs.register[by_register], needs.value[by_register]
    first = np.diff(numbers, prepend=-1) != 0
    reset = np.zeros(int(numbers.max()) + 1, np.int64)
    for register, spec in isa.registers.items():
        reset[register] = spec.reset
    before = np.where(first, reset[numbers], np.roll(value, 1))
    kept = np.sort(by_register[before != value])
    words = np.zeros((5, len(kept)), np.uint64)
    for number in np.unique(needs.register[kept]).tolist():
        own = needs.register[kept] == number
        code = isa.configure(Register(number), needs.value[kept][own])
        words[:, own] = np.array(np.broadcast_arrays(*code), np.uint64)
    return needs.operation[kept], words


ROWS = "rows"
WALKS: dict[type, dict[Register, str]] = {
    lir.MatMul: {Register.MAT_MUL_ROWS: ROWS, Register.MAT_MUL_LOCAL_PITCH: "local_pitch",
                 Register.MAT_MUL_ACCUMULATOR_PITCH: "accumulator_pitch"},
    lir.DataMove: {Register.MOVE_ROWS: ROWS, Register.MOVE_LOCAL_PITCH: "local_pitch",
                   Register.MOVE_FAR_PITCH: "far_pitch"},
}
"""The registers of rows and pitches, and the fields of operations that they hold."""


# -- instructions ------------------------------------------------------------------------------------------------------
def _mat_mul(isa: Isa, entry: Any) -> Instruction:
    """Return MatMuls."""
    return isa.mat_mul(entry.local.offset, entry.accumulator.offset, entry.size, accumulate=entry.accumulate,
                       zeroes=(entry.local.memory < 0).astype(np.int64), local_stride=entry.local_stride,
                       accumulator_stride=entry.accumulator_stride)


def _load_weight(isa: Isa, entry: Any) -> Instruction:
    """Return LoadWeights."""
    return isa.load_weight(entry.local.offset, entry.size, zero_bias=entry.zero_bias)


def _data_move(isa: Isa, entry: Any) -> Instruction:
    """Return DataMoves."""
    flows = np.zeros((len(MEMORY_NUMBERS), 2, 2), np.int64)
    for (memory, *flags), flow in FLOWS.items():
        flows[MEMORY_NUMBERS[memory], *map(int, flags)] = flow
    flow = flows[entry.far.memory, entry.to_local, entry.relu | entry.accumulate]
    return isa.data_move(flow, entry.local.offset, entry.far.offset, entry.size, local_stride=entry.local_stride,
                         far_stride=entry.far_stride)


def _simd(isa: Isa, entry: Any) -> Instruction:
    """Return SIMD instructions."""
    sub = SimdSub(entry.opcode, entry.left, entry.right, entry.destination)
    code = isa.simd(sub, read=entry.read.offset, write=entry.write.offset, read_stride=entry.read_stride,
                    write_stride=entry.write_stride, hold=entry.hold)
    absent = sum((address.memory < 0) << flag_bit(Opcode.SIMD, name)
                 for name, address in (("read", entry.read), ("write", entry.write)))
    return code._replace(flags=code.flags - absent)


def _simd_loop(isa: Isa, entry: Any) -> Instruction:
    """Return the headers of SIMD loops."""
    return isa.simd_loop(entry.iterations, entry.body)


def _load_lut(isa: Isa, entry: Any) -> Instruction:
    """Return LoadLUTs."""
    return isa.load_lut(entry.local.offset, entry.table)


def _load_scale(isa: Isa, entry: Any) -> Instruction:
    """Return LoadScales."""
    return isa.load_scale(entry.local.offset)


def _load_activation_table(isa: Isa, entry: Any) -> Instruction:
    """Return LoadActivationTables."""
    return isa.load_activation_table(entry.local.offset, entry.table)


def _signal(isa: Isa, entry: Any) -> Instruction:
    """Return posts and waits, which are few and made one by one."""
    rows = zip(entry.wait.tolist(), entry.counter.tolist(), entry.above.tolist(), entry.far.offset.tolist(),
               entry.size.tolist(), (entry.far.memory == MEMORY_NUMBERS[DRAM1]).tolist(), strict=True)
    found = [isa.wait(counter, above, first, size, dram1=dram1) if wait else
             isa.post(counter, lir.posted_to(above), first, size, dram1=dram1)
             for wait, counter, above, first, size, dram1 in rows]
    return Instruction(*np.array(found, np.uint64).reshape(-1, 5).T)


ENCODED: dict[type, Callable[[Isa, Any], Instruction]] = {
    lir.MatMul: _mat_mul, lir.LoadWeight: _load_weight, lir.DataMove: _data_move, lir.Simd: _simd,
    lir.SimdLoop: _simd_loop, lir.LoadLut: _load_lut, lir.LoadScale: _load_scale,
    lir.LoadActivationTable: _load_activation_table, lir.Signal: _signal,
}
