# SPDX-License-Identifier: Apache-2.0
"""Decode raw instructions: addresses and sizes. Nothing is checked here, see ``check.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from weft.hw.contract.instructions import COUNTER_WIDTH, DataFlow, Instruction, Opcode, operand_of
from weft.hw.contract.isa import Isa
from weft.hw.contract.register_table import counted_rows
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.walk import Walk


class NoOp(NamedTuple):
    """A decoded NoOp."""

    pass


class MatMul(NamedTuple):
    """A decoded MatMul: walks through local memory and accumulators."""

    local: Walk | None
    """The walk through local memory; None: the input is zero."""
    accumulator: Walk
    accumulate: bool


class Depthwise(NamedTuple):
    """A decoded MatMul of a depthwise pass, in which each lane keeps to itself."""

    local: Walk | None
    """The walk through local memory that the first row of taps that counts takes; None: the input is zero."""
    accumulator: Walk
    accumulate: bool
    origin: int
    """The tap, counted from 0, that meets the vector itself."""
    dropped: int
    """The results at the end of each row that are not written."""
    rows: tuple[int, ...] = (0,)
    """The rows of taps that count, ascending."""
    pitch: int = 0
    """Vectors from what a row of taps meets to what the next one meets."""

    def met(self, row: int) -> Walk | None:
        """Return the walk of a row of taps that counts."""
        return self.local and self.local.moved((row - self.rows[0]) * self.pitch)


class DataMove(NamedTuple):
    """A decoded DataMove: walks through local memory and the far memory."""

    flow: DataFlow
    local: Walk
    far: Walk


class LoadWeight(NamedTuple):
    """A decoded LoadWeight of ``size`` vectors, and of a zero bias row with ``zero_bias``."""

    local: Walk | None
    """The walk through local memory; None: zero vectors."""
    size: int
    zero_bias: bool


class Simd(NamedTuple):
    """A decoded SIMD instruction.

    Addresses are those of iteration 0, None without an access; strides lead from iteration to iteration."""

    read: int | None
    write: int | None
    accumulate: bool
    read_stride: int
    write_stride: int
    opcode: int
    left: int
    right: int
    destination: int


class LoadLut(NamedTuple):
    """A decoded LoadLUT into ``table`` (0: the keys)."""

    local: Walk
    table: int


class LoadScale(NamedTuple):
    """A decoded LoadScale."""

    local: Walk


class LoadActivationTable(NamedTuple):
    """A decoded LoadActivationTable into ``table``, counted from 1."""

    local: Walk
    table: int


class SimdLoop(NamedTuple):
    """A decoded SIMD loop's header: ``body`` instructions run ``iterations`` times."""

    iterations: int
    body: int


class Repeat(NamedTuple):
    """A Repeat that the machine cannot expand; legal ones are expanded before they are decoded."""


class Signal(NamedTuple):
    """A decoded Signal: a post, or with ``waits`` a wait, ordered with accesses to the range ``far`` of a DRAM."""

    waits: bool
    dram1: bool
    counter: int
    above: int
    """The cores of a post, a bit each, or the amount of a wait."""
    far: Walk

    @property
    def memory(self) -> str:
        """The name of the memory that the range is in."""
        return "dram1" if self.dram1 else "dram0"


class Configure(NamedTuple):
    """A decoded Configure."""

    register: int
    value: int


DecodedInstruction = (NoOp | MatMul | Depthwise | DataMove | LoadWeight | Simd | LoadLut | LoadScale
                      | LoadActivationTable
                      | SimdLoop | Repeat | Signal | Configure)


class Decoder:
    """The decoder of one machine; it uses the Configure registers as they are at the time of the call."""

    def __init__(self, isa: Isa, registers: Mapping[Register, int]) -> None:
        self.isa = isa
        self.registers = registers
        self._subs: dict[int, tuple[int, int, int, int]] = {}

    def decode(self, instruction: Instruction) -> DecodedInstruction:
        """Return an instruction decoded.

        Its opcode, flags and reserved bits must be legal; addresses and numbers need not be."""
        return DECODE[instruction.opcode](self, instruction)

    def walk(self, instruction: Instruction, field: str, size: int, rows: int = 1, pitch: int = 0) -> Walk:
        """Return the walk from the address in ``field``: ``size`` vectors along its stride, in ``rows`` rows."""
        operand = operand_of(instruction.opcode, field)
        address, stride = self.isa.address(operand, instruction.operands[operand])
        return Walk(address, size, stride, rows, pitch)

    def mat_mul(self, instruction: Instruction) -> MatMul | Depthwise:
        """Return a MatMul decoded, as Depthwise if the registers say so."""
        size, rows = instruction.raw("size") + 1, self.registers[Register.MAT_MUL_ROWS] + 1
        local = None if instruction.flag("zeroes") else self.walk(
            instruction, "local", size, rows, self.registers[Register.MAT_MUL_LOCAL_PITCH])
        accumulator = self.walk(instruction, "accumulator", size, rows,
                                self.registers[Register.MAT_MUL_ACCUMULATOR_PITCH])
        plain = MatMul(local, accumulator, instruction.flag("accumulate"))
        origin = self.registers.get(Register.TAP_ORIGIN, 0)
        if not origin:
            return plain
        return Depthwise(*plain, origin - 1, self.registers[Register.TAP_DROPPED],
                         counted_rows(self.registers.get(Register.TAP_ROWS, 1)),
                         self.registers.get(Register.TAP_PITCH, 0))

    def data_move(self, instruction: Instruction) -> DataMove:
        """Return a DataMove decoded."""
        size, rows = instruction.raw("size") + 1, self.registers[Register.MOVE_ROWS] + 1
        return DataMove(DataFlow(instruction.flags),
                        self.walk(instruction, "local", size, rows, self.registers[Register.MOVE_LOCAL_PITCH]),
                        self.walk(instruction, "far", size, rows, self.registers[Register.MOVE_FAR_PITCH]))

    def load_weight(self, instruction: Instruction) -> LoadWeight:
        """Return a LoadWeight decoded."""
        size = instruction.raw("size") + 1
        local = None if instruction.flag("zeroes") else self.walk(instruction, "local", size)
        return LoadWeight(local, size, instruction.flag("zero_bias"))

    def simd(self, instruction: Instruction) -> Simd:
        """Return a SIMD instruction decoded."""
        read, write = self.walk(instruction, "read_address", 1), self.walk(instruction, "write_address", 1)
        return Simd(read.base if instruction.flag("read") else None, write.base if instruction.flag("write") else None,
                    instruction.flag("accumulate"), 0 if instruction.flag("hold") else read.stride, write.stride,
                    *self._sub(instruction.raw("sub")))

    def _sub(self, raw: int) -> tuple[int, int, int, int]:
        """Return a sub-instruction unpacked, from a cache, because programs use few different ones."""
        if raw not in self._subs:
            self._subs[raw] = self.isa.unpack_sub(raw)
        return self._subs[raw]

    def load_lut(self, instruction: Instruction) -> LoadLut:
        """Return a LoadLUT decoded."""
        return LoadLut(self.walk(instruction, "local", self.isa.arch.lut_depth), instruction.raw("table"))

    def load_scale(self, instruction: Instruction) -> LoadScale:
        """Return a LoadScale decoded."""
        return LoadScale(self.walk(instruction, "local", SCALE_VECTORS))

    def load_activation_table(self, instruction: Instruction) -> LoadActivationTable:
        """Return a LoadActivationTable decoded."""
        return LoadActivationTable(self.walk(instruction, "local", TABLE_ENTRIES), instruction.raw("table"))

    def simd_loop(self, instruction: Instruction) -> SimdLoop:
        """Return a SIMD loop's header decoded."""
        return SimdLoop(instruction.raw("iterations") + 1, instruction.raw("body") + 1)

    def signal(self, instruction: Instruction) -> Signal:
        """Return a Signal decoded."""
        target, strides = instruction.raw("target"), self.walk(instruction, "range", instruction.raw("size") + 1)
        return Signal(instruction.flag("wait"), instruction.flag("dram1"), target & (1 << COUNTER_WIDTH) - 1,
                      target >> COUNTER_WIDTH, Walk(strides.base, strides.size * strides.stride))

    def configure(self, instruction: Instruction) -> Configure:
        """Return a Configure decoded."""
        return Configure(instruction.raw("register"), instruction.raw("value"))


DECODE: dict[int, Callable[[Decoder, Instruction], DecodedInstruction]] = {
    Opcode.NO_OP: lambda decoder, instruction: NoOp(),
    Opcode.MAT_MUL: Decoder.mat_mul,
    Opcode.DATA_MOVE: Decoder.data_move,
    Opcode.LOAD_WEIGHT: Decoder.load_weight,
    Opcode.SIMD: Decoder.simd,
    Opcode.LOAD_LUT: Decoder.load_lut,
    Opcode.SIMD_LOOP: Decoder.simd_loop,
    Opcode.LOAD_SCALE: Decoder.load_scale,
    Opcode.LOAD_ACTIVATION_TABLE: Decoder.load_activation_table,
    Opcode.REPEAT: lambda decoder, instruction: Repeat(),
    Opcode.SIGNAL: Decoder.signal,
    Opcode.CONFIGURE: Decoder.configure,
}
