# SPDX-License-Identifier: Apache-2.0
"""References of the SIMD blocks in numpy: one operation, one lookup, and a whole sequence of operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode, simd_argument_count
from weft.hw.contract.numerics import DataType


def simd_reference(data_type: DataType, opcode: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the result of one operation but Lookup, on scalars of any shape.

    NoOp passes its left argument, which is then the input. Raise ValueError for Lookup."""
    def truth(condition: np.ndarray) -> np.ndarray:
        return np.where(condition, data_type.one, 0)

    match SimdOpcode(opcode):
        case SimdOpcode.NO_OP | SimdOpcode.MOVE:
            result = left
        case SimdOpcode.ZERO:
            result = np.zeros_like(left)
        case SimdOpcode.NOT:
            result = truth(left == 0)
        case SimdOpcode.AND:
            result = truth((left != 0) & (right != 0))
        case SimdOpcode.OR:
            result = truth((left != 0) | (right != 0))
        case SimdOpcode.INCREMENT:
            result = left + data_type.one
        case SimdOpcode.DECREMENT:
            result = left - data_type.one
        case SimdOpcode.ADD:
            result = left + right
        case SimdOpcode.SUBTRACT:
            result = left - right
        case SimdOpcode.MULTIPLY:
            result = data_type.multiply(left, right)
        case SimdOpcode.ABS:
            result = np.abs(left)
        case SimdOpcode.GREATER_THAN:
            result = truth(left > right)
        case SimdOpcode.GREATER_THAN_EQUAL:
            result = truth(left >= right)
        case SimdOpcode.MIN:
            result = np.minimum(left, right)
        case SimdOpcode.MAX:
            result = np.maximum(left, right)
        case SimdOpcode.LOOKUP:
            raise ValueError("Lookup needs tables: lookup_reference")
    return data_type.saturate(result)


class LookupReference:
    """The lookup tables of all lanes.

    ``first_key`` and ``spacing_log2`` [lane] describe the keys; ``values`` [table, entry, lane]."""

    def __init__(self, arch: Arch) -> None:
        self._number, self._depth = arch.number, arch.lut_depth
        self.first_key = np.zeros(arch.lane_count, np.int64)
        self.spacing_log2 = np.full(arch.lane_count, arch.number.width - 1)
        self.values = np.zeros((arch.lut_count, arch.lut_depth, arch.lane_count), np.int64)

    def load(self, table: int, vectors: np.ndarray) -> None:
        """Fill a table with ``vectors`` [lut_depth, lane]; table 0 is the key index."""
        if table:
            self.values[table - 1] = vectors
            return
        self.first_key = vectors[0].copy()
        step = vectors[1] - vectors[0]
        trailing_zeros = [(int(s) & -int(s)).bit_length() - 1 if s else self._number.width - 1 for s in step]
        self.spacing_log2 = np.array(trailing_zeros)

    def lookup(self, argument: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the difference [lane] of an argument [lane] to the nearest key, and the values [table, lane] there."""
        from_first = argument - self.first_key
        half = (1 << self.spacing_log2) >> 1
        index = np.clip((from_first + half) >> self.spacing_log2, 0, self._depth - 1)
        difference = self._number.saturate(from_first - (index << self.spacing_log2))
        return difference, self.values[:, index, np.arange(len(argument))]


@dataclass(frozen=True, kw_only=True)
class SimdOperation:
    """One plain SIMD, or an instruction of a loop's body. An address is None if there is no such access."""

    opcode: int = SimdOpcode.NO_OP
    left: int = 0
    right: int = 0
    destination: int = 0
    read: int | None = None
    write: int | None = None
    accumulate: bool = False
    hold: bool = False
    read_stride_log2: int = 0
    write_stride_log2: int = 0
    input_shift: int = 0
    output_shift: int = 0


@dataclass(frozen=True)
class SimdLoop:
    """A SIMDLoop with its body."""

    iterations: int
    body: Sequence[SimdOperation]


@dataclass(frozen=True)
class TableLoad:
    """A LoadLUT."""

    table: int
    base: int
    stride_log2: int = 0


SimdProgram = Sequence[SimdOperation | SimdLoop | TableLoad]


class SimdReference:
    """The sequential meaning of the SIMD unit, on accumulators and local memory, both [address, lane]."""

    def __init__(self, arch: Arch, accumulators: np.ndarray, local: np.ndarray) -> None:
        self._arch, self.local = arch, local
        self.accumulators = accumulators.copy()
        self.registers = np.zeros((arch.simd_registers_depth + 1, arch.lane_count), np.int64)  # 0 is the input
        self.tables = LookupReference(arch)

    def execute(self, program: SimdProgram) -> None:
        """Execute a program, instruction after instruction, on ``accumulators``, ``registers`` and ``tables``."""
        for item in program:
            if isinstance(item, SimdLoop):
                self._loop(item.iterations, item.body)
            elif isinstance(item, TableLoad):
                entries = np.arange(self._arch.lut_depth) << item.stride_log2
                self.tables.load(item.table, self.local[item.base + entries])
            else:
                self._run(item)

    def _run(self, operation: SimdOperation, iteration: int = 0) -> None:
        """Execute one operation in one iteration."""
        numbers, registers = self._arch.scheme, self.registers
        registers[0] = 0
        if operation.read is not None:
            address = operation.read + (0 if operation.hold else iteration << operation.read_stride_log2)
            registers[0] = numbers.requantize(self.accumulators[address], operation.output_shift)
        result = self._result(operation)
        if operation.write is not None:
            address = operation.write + (iteration << operation.write_stride_log2)
            value = numbers.rescale_input(result, operation.input_shift)
            if operation.accumulate:
                value = numbers.accumulate(self.accumulators[address], value)
            self.accumulators[address] = value

    def _result(self, operation: SimdOperation) -> np.ndarray:
        """Return the result of an operation, and write the destination registers."""
        arguments = simd_argument_count(SimdOpcode(operation.opcode))
        left = self.registers[operation.left if arguments else 0].copy()
        right = self.registers[operation.right].copy()
        if operation.opcode == SimdOpcode.LOOKUP:
            result, values = self.tables.lookup(left)
            first = operation.destination + 1
            self.registers[first:first + len(values)] = values
        else:
            result = simd_reference(self._arch.number, operation.opcode, left, right)
        if operation.destination and operation.opcode != SimdOpcode.NO_OP:
            self.registers[operation.destination] = result
        return result

    def _loop(self, iterations: int, body: Sequence[SimdOperation]) -> None:
        """Execute a loop; each iteration begins with the registers from before the loop, which also remain after it."""
        before = self.registers.copy()
        for iteration in range(iterations):
            self.registers = before.copy()
            for operation in body:
                self._run(operation, iteration)
        self.registers = before
