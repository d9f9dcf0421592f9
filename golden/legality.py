# SPDX-License-Identifier: Apache-2.0
"""Find where a machine would stop in a program, without running it: all instructions are checked at once.

An array finds the first illegal instruction; ``check.py``, which the machine itself asks, says why. What is legal only
depends on earlier instructions: Configure registers, and the SIMD loop whose body an instruction belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.golden.check import Checker, MachineStop
from weft.golden.decode import Decoder
from weft.hw.contract.arch import Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import (
    COUNT_WIDTH,
    COUNTER_WIDTH,
    DataFlow,
    Instruction,
    Opcode,
    SimdOpcode,
    flag_bit,
    simd_argument_count,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.register_table import tap_span
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.walk import Walk

DRAM_WALK = np.dtype([(name, "i8") for name in ("instruction", "flow", "window", "base", "stride", "size", "rows",
                                                "pitch")])
"""The record of a DataMove's side in DRAM: instruction, DataFlow, first block of its window, and the walk."""
SIGNAL = np.dtype([(name, "i8") for name in ("instruction", "waits", "dram1", "window", "first", "last", "counter",
                                             "above")])
"""The record of a Signal: instruction, flags, first block of its window, its range there, and its counter.
``above`` has the cores of a post, a bit each, or the amount of a wait."""
OPCODES = 16
SIMD_OPCODES = 32
PROGRAM_COUNTERS = 1 << 32


def first_stop(program: bytes, arch: Arch) -> MachineStop | None:
    """Return the stop of a machine after reset, with its cause and program counter; None if the program is legal.

    Raise IsaError if the program is truncated. It takes some 1 us an instruction."""
    isa = Isa(arch)
    table = isa.split(program)
    illegal = np.flatnonzero(_Table(isa, table).illegal())
    return _stop(isa, table, int(illegal[0])) if len(illegal) else None


def dram_moves(program: bytes, arch: Arch) -> np.ndarray:
    """Return int64 [3, moves]: DataFlow, first and last address of each DataMove from or to a DRAM.

    The ``program`` is legal; its Repeats are expanded. Addresses count vectors of the move's window."""
    isa = Isa(arch)
    return _Table(isa, isa.split(program)).dram_moves()


def dram_walks(program: bytes, arch: Arch) -> np.ndarray:
    """Return a record DRAM_WALK for each DataMove from or to a DRAM in a legal program, [moves], in order.

    Repeats are expanded."""
    isa = Isa(arch)
    return _Table(isa, isa.split(program)).dram_walks()


def signals(program: bytes, arch: Arch) -> np.ndarray:
    """Return a record SIGNAL for each Signal of a legal program, [signals], in order; Repeats are expanded."""
    isa = Isa(arch)
    return _Table(isa, isa.split(program)).signals()


def _stop(isa: Isa, table: np.ndarray, index: int) -> MachineStop:
    """Return the stop at instruction ``index``.

    The machine's own checker finds its cause, in the state after the earlier instructions."""
    before = _Table(isa, table[:, :index + 1])
    registers = {register: int(before.register(register)[index]) for register in isa.registers}
    counter = before.register(Register.PROGRAM_COUNTER)[index]
    sets = np.flatnonzero(before.sets(Register.PROGRAM_COUNTER)[:index])
    counter = int(counter) + index - int(sets[-1]) - 1 if len(sets) else index
    iterations = int(before.iterations[index]) if before.in_body[index] else None
    instruction = Instruction(*table[:, index].tolist())
    checker = Checker(isa, Decoder(isa, registers))
    cause = checker.check(instruction, iterations)
    assert isinstance(cause, Cause), "the two checks disagree"
    return MachineStop(cause, counter % PROGRAM_COUNTERS, instruction_text(isa, instruction), checker.allowed(cause))


class _Table:
    """Columns of a program, [instructions] each. An entry is right if all instructions before are legal."""

    def __init__(self, isa: Isa, table: np.ndarray) -> None:
        self.isa, self.arch = isa, isa.arch
        self.opcode, self.flags, *self.operands = table.astype(np.int64)
        self.count = len(self.opcode)
        self.in_body, self.iterations = self._loops()

    def _loops(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which instructions belong to the body of a loop, and the iterations of the newest loop."""
        headers = np.flatnonzero(self.opcode == Opcode.SIMD_LOOP)
        ends = np.minimum(headers + 1 + self.operands[1][headers] + 1, self.count)
        inside = np.zeros(self.count + 2, np.int64)
        np.add.at(inside, headers + 1, 1)
        np.add.at(inside, np.maximum(ends, headers + 1), -1)
        newest = self._newest(self.opcode == Opcode.SIMD_LOOP)
        before = np.concatenate([[-1], newest])[:self.count]  # the header itself belongs to the loop before, if to any
        return np.cumsum(inside)[:self.count] > 0, np.where(before < 0, 1, self.operands[0][before] + 1)

    def _newest(self, sets: np.ndarray) -> np.ndarray:
        """Return the index of the last true element so far, -1 if there is none."""
        return np.maximum.accumulate(np.where(sets, np.arange(self.count), -1)) if self.count else np.arange(0)

    def sets(self, register: Register) -> np.ndarray:
        """Return bool [instructions]: which are Configures of ``register``."""
        return (self.opcode == Opcode.CONFIGURE) & (self.operands[0] == register)

    def register(self, register: Register) -> np.ndarray:
        """Return the value of a register at each instruction, a Configure of it included."""
        newest = self._newest(self.sets(register))
        return np.where(newest < 0, self.isa.registers[register].reset, self.operands[1][newest])

    # -- what may not be -------------------------------------------------------------------------------------------
    def illegal(self) -> np.ndarray:
        """Return bool [instructions]: which are illegal."""
        found = self._forms() | (self.in_body & (self.opcode != Opcode.SIMD)) | (self.opcode == Opcode.REPEAT)
        for check in (self._spans, self._simd, self._configure, self._tables, self._signals):
            found |= check()
        return found

    def _forms(self) -> np.ndarray:
        """Return bool [instructions]: which have an illegal opcode, illegal flags, or bits set that no field has."""
        flags = np.zeros((OPCODES, 16), bool)
        used: np.ndarray = np.zeros((OPCODES, 3), np.int64)
        for opcode in self.isa.opcodes():
            flags[opcode, list(self.isa.legal_flags(opcode))] = True
            for operand, (offset, width) in enumerate(zip(self.isa.operand_offsets, self.isa.operand_widths,
                                                          strict=True)):
                used[opcode, operand] = self.isa.used_mask(opcode) >> offset & (1 << width) - 1
        legal = flags[self.opcode, self.flags] | (self.in_body & (self.opcode == Opcode.SIMD))
        reserved = [values & ~used[self.opcode, operand] != 0 for operand, values in enumerate(self.operands)]
        return ~legal | np.logical_or.reduce(reserved)

    def _flag(self, opcode: Opcode, name: str) -> np.ndarray:
        """Return which instructions set a flag; this is only meaningful for those with that opcode."""
        return self.flags >> flag_bit(opcode, name) & 1 == 1

    def _address(self, operand: int) -> tuple[Any, Any]:
        """Return address and stride in an operand of each instruction."""
        address, log2 = self.isa.address_widths[operand], self.isa.stride_widths[operand]
        raw = self.operands[operand]
        return raw & (1 << address) - 1, 1 << (raw >> address & (1 << log2) - 1)

    def _last(self, operand: int, size: Any, rows: Any = 1, pitch: Any = 0) -> Any:
        """Return the highest address of each instruction's walk."""
        base, stride = self._address(operand)
        return Walk(base, size, stride, rows, pitch).last

    def _spans(self) -> np.ndarray:
        """Return bool [instructions]: which have a range that leaves its memory.

        SIMD instructions and Signals are checked elsewhere, and are False here."""
        opcode, flags, arch = self.opcode, self.flags, self.arch
        mat_mul, move, load = (opcode == code for code in (Opcode.MAT_MUL, Opcode.DATA_MOVE, Opcode.LOAD_WEIGHT))
        size = np.where(load, self.operands[1], self.operands[2]) + 1
        for table, vectors in ((Opcode.LOAD_LUT, arch.lut_depth), (Opcode.LOAD_SCALE, SCALE_VECTORS),
                               (Opcode.LOAD_ACTIVATION_TABLE, TABLE_ENTRIES)):
            size = np.where(opcode == table, vectors, size)
        rows = np.where(mat_mul, self.register(Register.MAT_MUL_ROWS), self.register(Register.MOVE_ROWS)) + 1
        rows = np.where(mat_mul | move, rows, 1)
        near = np.where(mat_mul, self.register(Register.MAT_MUL_LOCAL_PITCH), self.register(Register.MOVE_LOCAL_PITCH))
        far = np.where(mat_mul, self.register(Register.MAT_MUL_ACCUMULATOR_PITCH),
                       self.register(Register.MOVE_FAR_PITCH))
        local = ((mat_mul & ~self._flag(Opcode.MAT_MUL, "zeroes")) | move
                 | (load & ~self._flag(Opcode.LOAD_WEIGHT, "zeroes")) | (opcode == Opcode.LOAD_LUT)
                 | (opcode == Opcode.LOAD_SCALE) | (opcode == Opcode.LOAD_ACTIVATION_TABLE))
        beyond = np.where(mat_mul, self._tap_reach(), 0)
        depth: np.ndarray = np.full(16, arch.accumulator_depth, np.int64)
        for flow in DataFlow:
            depth[flow] = getattr(arch, f"{flow.far_memory}_depth")
        far_depth = np.where(move, depth[flags], arch.accumulator_depth)
        return ((local & (self._last(0, size, rows, near) + beyond >= arch.local_depth))
                | ((mat_mul | move) & (self._last(1, size, rows, far) >= far_depth)))

    def _tap_reach(self) -> Any:
        """Return by how many vectors a depthwise MatMul's last row of taps that counts lies behind the first one.

        It is 0 for instructions without taps."""
        if self.arch.kernel_rows < 2:
            return 0
        rows, pitch = self.register(Register.TAP_ROWS), self.register(Register.TAP_PITCH)
        return np.where(self.register(Register.TAP_ORIGIN) > 0, tap_span(rows) * pitch, 0)

    def dram_walks(self) -> np.ndarray:
        """Return a record DRAM_WALK for each DataMove from or to a DRAM, [moves], in the program's order."""
        there = np.flatnonzero((self.opcode == Opcode.DATA_MOVE) & (self.flags <= DataFlow.LOCAL_TO_DRAM1))
        found = np.zeros(len(there), DRAM_WALK)
        first = np.isin(self.flags, [flow for flow in DataFlow if flow.far_memory == "dram0"])
        window = np.where(first, self.register(Register.DRAM0_OFFSET), self.register(Register.DRAM1_OFFSET))
        base, stride = self._address(1)
        for name, values in (("instruction", np.arange(self.count)), ("flow", self.flags), ("window", window),
                             ("base", base), ("stride", stride), ("size", self.operands[2] + 1),
                             ("rows", self.register(Register.MOVE_ROWS) + 1),
                             ("pitch", self.register(Register.MOVE_FAR_PITCH))):
            found[name] = values[there]
        return found

    def signals(self) -> np.ndarray:
        """Return a record SIGNAL for each Signal, [signals], in the program's order."""
        there = np.flatnonzero(self.opcode == Opcode.SIGNAL)
        found = np.zeros(len(there), SIGNAL)
        dram1 = self._flag(Opcode.SIGNAL, "dram1")
        window = np.where(dram1, self.register(Register.DRAM1_OFFSET), self.register(Register.DRAM0_OFFSET))
        for name, values in (("instruction", np.arange(self.count)), ("waits", self._flag(Opcode.SIGNAL, "wait")),
                             ("dram1", dram1), ("window", window), ("first", self._address(1)[0]),
                             ("last", self._signal_last()),
                             ("counter", self.operands[0] & (1 << COUNTER_WIDTH) - 1),
                             ("above", self.operands[0] >> COUNTER_WIDTH)):
            found[name] = values[there]
        return found

    def _signal_last(self) -> Any:
        """Return the last address of a Signal's range, which is as many strides long as its size says."""
        base, stride = self._address(1)
        return base + (self.operands[2] + 1) * stride - 1

    def dram_moves(self) -> np.ndarray:
        """Return int64 [3, moves]: DataFlow, first and last address of each DataMove from or to a DRAM."""
        rows, pitch = self.register(Register.MOVE_ROWS) + 1, self.register(Register.MOVE_FAR_PITCH)
        last = self._last(1, self.operands[2] + 1, rows, pitch)
        there = (self.opcode == Opcode.DATA_MOVE) & (self.flags <= DataFlow.LOCAL_TO_DRAM1)
        return np.stack([self.flags, self._address(1)[0], last])[:, there]

    def _simd(self) -> np.ndarray:
        """Return bool [instructions]: which are SIMD instructions with an illegal address, operation or register.

        The address of a loop's last iteration counts."""
        simd, depth = self.opcode == Opcode.SIMD, self.arch.accumulator_depth
        iterations = np.where(self.in_body, self.iterations, 1)
        read = self._last(1, np.where(self._flag(Opcode.SIMD, "hold"), 1, iterations))
        beyond = ((self._flag(Opcode.SIMD, "write") & (self._last(0, iterations) >= depth))
                  | (self._flag(Opcode.SIMD, "read") & (read >= depth)))
        sub: Any = self.operands[2]  # unpack_sub computes elementwise too
        opcode, left, right, destination = self.isa.unpack_sub(sub)
        arguments: np.ndarray = np.full(SIMD_OPCODES, -1, np.int64)
        for code in SimdOpcode:
            arguments[code] = simd_argument_count(code)
        count = arguments[opcode]
        written = destination + np.where(opcode == SimdOpcode.LOOKUP, self.arch.lut_count, 0)
        registers = np.maximum.reduce([written, np.where(count > 0, left, 0), np.where(count > 1, right, 0)])
        return simd & (beyond | (count < 0) | (registers > self.arch.simd_registers_depth))

    def _configure(self) -> np.ndarray:
        """Return bool [instructions]: which configure an unknown register, or give a register an illegal value."""
        register, value = self.operands[:2]
        low: np.ndarray = np.zeros(max(Register) + 1, np.int64)
        high: np.ndarray = np.full(max(Register) + 1, -1, np.int64)
        for known, spec in self.isa.registers.items():
            high[known] = spec.maximum
            if self.arch.scheme.fixed_shift is not None and known in (Register.INPUT_SHIFT, Register.OUTPUT_SHIFT):
                low[known] = high[known] = self.arch.scheme.fixed_shift
        number = np.minimum(register, max(Register))
        legal = (register <= max(Register)) & (value >= low[number]) & (value <= high[number])
        return (self.opcode == Opcode.CONFIGURE) & ~legal

    def _signals(self) -> np.ndarray:
        """Return bool [instructions]: which are Signals with an operand that the machine cannot have.

        That is a range that leaves its DRAM, a counter or a core that the machine lacks, or too large an amount."""
        depth = np.where(self._flag(Opcode.SIGNAL, "dram1"), self.arch.dram1_depth, self.arch.dram0_depth)
        counter, above = self.operands[0] & (1 << COUNTER_WIDTH) - 1, self.operands[0] >> COUNTER_WIDTH
        most = np.where(self._flag(Opcode.SIGNAL, "wait"), (1 << COUNT_WIDTH) - 1, (1 << self.arch.cores) - 1)
        return (self.opcode == Opcode.SIGNAL) & ((self._signal_last() >= depth)
                                                 | (counter >= self.arch.sync_counters) | (above > most))

    def _tables(self) -> np.ndarray:
        """Return bool [instructions]: which name a table that the machine lacks, or too long a body of a loop."""
        too_far = (self.opcode == Opcode.LOAD_LUT) & (self.operands[1] > self.arch.lut_count)
        too_far |= (self.opcode == Opcode.LOAD_ACTIVATION_TABLE) & ((self.operands[1] < 1)
                                                               | (self.operands[1] > self.arch.activation_tables))
        return too_far | ((self.opcode == Opcode.SIMD_LOOP) & (self.operands[1] + 1 > self.arch.simd_loop_depth))
