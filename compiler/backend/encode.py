# SPDX-License-Identifier: Apache-2.0
"""Encode LIR as instructions, and these as ``.tprog`` bytes.

A Configure is written only where a register's value changes, and a Repeat for repetitions, if the machine has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler import lir
from weft.compiler.backend.repeats import shortened
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register

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


def encode(operations: Iterable[lir.Operation], arch: Arch) -> tuple[list[Instruction], list[int]]:
    """Return instructions, and for each operation the index of its first one (with the Configures it needs).

    At the end every changed register gets its reset value again, so that programs can follow each other in any
    order."""
    encoder = _Encoder(arch)
    starts: list[int] = []
    for operation in operations:
        starts.append(len(encoder.instructions))
        encoder.EMIT[type(operation)](encoder, operation)
    encoder.restore()
    return encoder.instructions, starts


def machine_code(operations: Sequence[lir.Operation], layers: np.ndarray, arch: Arch) -> MachineCode:
    """Return the machine code of operations; ``layers`` [operations]: the number of each one's layer."""
    instructions, starts = encode(operations, arch)
    counts = np.diff([*starts, len(instructions)])
    isa, table = Isa(arch), np.array(instructions, np.uint64).reshape(-1, 5).T
    return MachineCode(assemble(shortened(table, isa) if arch.repeat_depth else table, isa), np.repeat(layers, counts))


class _Encoder:
    """The encoder: instructions so far, and the values that Configure registers have."""

    def __init__(self, arch: Arch) -> None:
        self.isa = Isa(arch)
        self.instructions: list[Instruction] = []
        self.reset = {register: spec.reset for register, spec in self.isa.registers.items()}
        self.values = dict(self.reset)

    def set(self, register: Register, value: int) -> None:
        """Add a Configure if the register has another value."""
        if self.values[register] != value:
            self.values[register] = value
            self.instructions.append(self.isa.configure(register, value))

    def _set_all(self, settings: lir.Settings) -> None:
        """Add the Configures that settings need."""
        for register, value in settings:
            self.set(register, value)

    def restore(self) -> None:
        """Add the Configures that bring all registers back to their reset values."""
        for register, value in self.reset.items():
            self.set(register, value)

    def _mat_mul_rows(self, rows: int, local_pitch: int, accumulator_pitch: int) -> None:
        """Add the Configures for the rows and pitches of a MatMul."""
        self.set(Register.MAT_MUL_ROWS, rows - 1)
        if rows > 1:
            self.set(Register.MAT_MUL_LOCAL_PITCH, local_pitch)
            self.set(Register.MAT_MUL_ACCUMULATOR_PITCH, accumulator_pitch)

    def _mat_mul(self, operation: lir.MatMul) -> None:
        """Add a MatMul and the Configures that it needs."""
        self._mat_mul_rows(operation.rows, operation.local_pitch, operation.accumulator_pitch)
        self._set_all(operation.settings)
        self.instructions.append(self.isa.mat_mul(
            operation.local.offset if operation.local else 0, operation.accumulator.offset, operation.size,
            accumulate=operation.accumulate, zeroes=operation.local is None, local_stride=operation.local_stride,
            accumulator_stride=operation.accumulator_stride))

    def _load_weight(self, operation: lir.LoadWeight) -> None:
        """Add a LoadWeight."""
        self.instructions.append(self.isa.load_weight(operation.local.offset, operation.size,
                                                      zero_bias=operation.zero_bias))

    def _data_move(self, operation: lir.DataMove) -> None:
        """Add a DataMove and the Configures that it needs."""
        self.set(Register.MOVE_ROWS, operation.rows - 1)
        if operation.rows > 1:
            self.set(Register.MOVE_LOCAL_PITCH, operation.local_pitch)
            self.set(Register.MOVE_FAR_PITCH, operation.far_pitch)
        self._set_all(operation.settings)
        flow = FLOWS[operation.far.memory, operation.to_local, operation.relu or operation.accumulate]
        self.instructions.append(self.isa.data_move(flow, operation.local.offset, operation.far.offset, operation.size,
                                                    local_stride=operation.local_stride,
                                                    far_stride=operation.far_stride))

    def _simd(self, operation: lir.Simd) -> None:
        """Add a SIMD instruction and the Configures that it needs."""
        self._set_all(operation.settings)
        sub = SimdSub(operation.opcode, operation.left, operation.right, operation.destination)
        self.instructions.append(self.isa.simd(
            sub, read=operation.read.offset if operation.read else None,
            write=operation.write.offset if operation.write else None,
            read_stride=operation.read_stride, write_stride=operation.write_stride, hold=operation.hold))

    def _simd_loop(self, operation: lir.SimdLoop) -> None:
        """Add the header of a SIMD loop and the Configures that its body needs."""
        self._set_all(operation.settings)  # a Configure must not come inside the body
        self.instructions.append(self.isa.simd_loop(operation.iterations, operation.body))

    def _load_lut(self, operation: lir.LoadLut) -> None:
        """Add a LoadLUT."""
        self.instructions.append(self.isa.load_lut(operation.local.offset, operation.table))

    def _load_scale(self, operation: lir.LoadScale) -> None:
        """Add a LoadScale."""
        self.instructions.append(self.isa.load_scale(operation.local.offset))

    def _load_activation_table(self, operation: lir.LoadActivationTable) -> None:
        """Add a LoadActivationTable."""
        self.instructions.append(self.isa.load_activation_table(operation.local.offset, operation.table))

    def _signal(self, operation: lir.Signal) -> None:
        """Add a Signal."""
        place = {"first": operation.far.offset, "size": operation.size, "dram1": operation.far.memory == DRAM1}
        if operation.wait:
            self.instructions.append(self.isa.wait(operation.counter, operation.above, **place))
        else:
            cores = [core for core in range(operation.above.bit_length()) if operation.above >> core & 1]
            self.instructions.append(self.isa.post(operation.counter, cores, **place))

    EMIT: dict[type, Callable[..., None]] = {
        lir.MatMul: _mat_mul, lir.LoadWeight: _load_weight, lir.DataMove: _data_move, lir.Simd: _simd,
        lir.SimdLoop: _simd_loop, lir.LoadLut: _load_lut, lir.LoadScale: _load_scale,
        lir.LoadActivationTable: _load_activation_table, lir.Signal: _signal,
    }


def assemble(table: np.ndarray, isa: Isa) -> bytes:
    """Return the bytes of a table of instructions, uint64 [5, words], as ``Isa.assemble`` makes them one by one."""
    opcode, flags, *operands = table
    columns = [column for values, width in zip(operands, isa.operand_widths, strict=True)
               for column in _bytes(values, width)]
    return np.stack([*columns, *_bytes(opcode << np.uint64(4) | flags, 8)], axis=1).tobytes()


def _bytes(values: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """Yield the little-endian byte columns of a field of ``width`` bits."""
    for low in range(0, width, 8):
        yield (values >> np.uint64(low)).astype(np.uint8)
