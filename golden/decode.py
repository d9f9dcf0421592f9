"""From raw instructions to operations with addresses: what each instruction names, before anything is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from weft.hw.contract.isa import DataFlow, Instruction, Isa, Opcode, Register


class Span(NamedTuple):
    """Vectors of one memory: row r holds base + r * pitch + k * stride for k in 0..size-1."""

    base: int
    stride: int
    size: int
    rows: int = 1
    pitch: int = 0

    @property
    def last(self) -> int:
        """The highest address."""
        return self.base + (self.size - 1) * self.stride + (self.rows - 1) * self.pitch

    def slices(self) -> Iterator[slice]:
        """One slice a row; no address comes twice in it, since strides are 1 or more."""
        length = (self.size - 1) * self.stride + 1
        for row in range(self.rows):
            start = self.base + row * self.pitch
            yield slice(start, start + length, self.stride)


class NoOp(NamedTuple):
    pass


class MatMul(NamedTuple):
    local: Span | None
    """None: the input is zero."""
    accumulator: Span
    accumulate: bool


class DataMove(NamedTuple):
    flow: DataFlow
    local: Span
    far: Span


class LoadWeight(NamedTuple):
    local: Span | None
    """None: zero vectors."""
    size: int
    zero_bias: bool


class Simd(NamedTuple):
    """Addresses are those of iteration 0, None where there is no access; strides lead from iteration to iteration."""

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
    local: Span
    table: int


class SimdLoop(NamedTuple):
    iterations: int
    body: int


class Configure(NamedTuple):
    register: int
    value: int


Operation = NoOp | MatMul | DataMove | LoadWeight | Simd | LoadLut | SimdLoop | Configure


class Decoder:
    """Decodes for one machine, with its Configure registers as they are at the time of the call."""

    def __init__(self, isa: Isa, registers: Mapping[Register, int]) -> None:
        self.isa = isa
        self.registers = registers
        self._subs: dict[int, tuple[int, int, int, int]] = {}

    def decode(self, instruction: Instruction) -> Operation:
        """The opcode, flags and reserved bits must be legal; addresses and numbers need not be."""
        return DECODE[Opcode(instruction.opcode)](self, instruction)

    def span(self, operand: int, raw: int, size: int) -> Span:
        address, stride = self.isa.address(operand, raw)
        return Span(address, stride, size)

    def rows(self, operand: int, raw: int, size: int, rows: Register, pitch: Register) -> Span:
        address, stride = self.isa.address(operand, raw)
        return Span(address, stride, size, self.registers[rows] + 1, self.registers[pitch])

    def mat_mul(self, instruction: Instruction) -> MatMul:
        size, rows = instruction.operand2 + 1, Register.MAT_MUL_ROWS
        zeroes = instruction.flags & 2
        local = None if zeroes else self.rows(0, instruction.operand0, size, rows, Register.MAT_MUL_LOCAL_PITCH)
        accumulator = self.rows(1, instruction.operand1, size, rows, Register.MAT_MUL_ACCUMULATOR_PITCH)
        return MatMul(local, accumulator, bool(instruction.flags & 1))

    def data_move(self, instruction: Instruction) -> DataMove:
        size, rows = instruction.operand2 + 1, Register.MOVE_ROWS
        return DataMove(DataFlow(instruction.flags),
                        self.rows(0, instruction.operand0, size, rows, Register.MOVE_LOCAL_PITCH),
                        self.rows(1, instruction.operand1, size, rows, Register.MOVE_FAR_PITCH))

    def load_weight(self, instruction: Instruction) -> LoadWeight:
        size = instruction.operand1 + 1
        zeroes, zero_bias = instruction.flags & 1, instruction.flags & 2
        return LoadWeight(None if zeroes else self.span(0, instruction.operand0, size), size, bool(zero_bias))

    def simd(self, instruction: Instruction) -> Simd:
        flags = instruction.flags
        write, write_stride = self.isa.address(0, instruction.operand0)
        read, read_stride = self.isa.address(1, instruction.operand1)
        return Simd(read if flags & 1 else None, write if flags & 2 else None, bool(flags & 4),
                    0 if flags & 8 else read_stride, write_stride, *self._sub(instruction.operand2))

    def _sub(self, raw: int) -> tuple[int, int, int, int]:
        """Programs use few different sub-instructions, so each is unpacked once."""
        if raw not in self._subs:
            self._subs[raw] = self.isa.unpack_sub(raw)
        return self._subs[raw]

    def load_lut(self, instruction: Instruction) -> LoadLut:
        return LoadLut(self.span(0, instruction.operand0, self.isa.arch.lut_depth), instruction.operand1)

    def simd_loop(self, instruction: Instruction) -> SimdLoop:
        return SimdLoop(instruction.operand0 + 1, instruction.operand1 + 1)

    def configure(self, instruction: Instruction) -> Configure:
        return Configure(instruction.operand0, instruction.operand1)


DECODE: dict[Opcode, Callable[[Decoder, Instruction], Operation]] = {
    Opcode.NO_OP: lambda decoder, instruction: NoOp(),
    Opcode.MAT_MUL: Decoder.mat_mul,
    Opcode.DATA_MOVE: Decoder.data_move,
    Opcode.LOAD_WEIGHT: Decoder.load_weight,
    Opcode.SIMD: Decoder.simd,
    Opcode.LOAD_LUT: Decoder.load_lut,
    Opcode.SIMD_LOOP: Decoder.simd_loop,
    Opcode.CONFIGURE: Decoder.configure,
}

