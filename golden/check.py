# SPDX-License-Identifier: Apache-2.0
"""Check whether an instruction is legal, and stop the machine if it is not. Of several causes the lowest counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.golden.decode import (
    Configure,
    DataMove,
    DecodedInstruction,
    Decoder,
    Depthwise,
    LoadActivationTable,
    LoadLut,
    LoadScale,
    LoadWeight,
    MatMul,
    NoOp,
    Repeat,
    Signal,
    Simd,
    SimdLoop,
)
from weft.hw.contract.causes import CAUSE_TEXTS, WAYS_OUT, Cause
from weft.hw.contract.instructions import COUNT_WIDTH, Instruction, Opcode, SimdOpcode, simd_argument_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.register_table import illegal_register_value
from weft.hw.contract.registers import Register
from weft.hw.contract.walk import Walk
from weft.support.errors import WeftError, explain


class MachineStop(WeftError):
    """The error that the machine refused an instruction, before any effect.

    ``instruction`` is its text; ``core``: of which core's program it is, None if there is one core."""

    def __init__(self, cause: Cause, program_counter: int, instruction: str, allowed: str,
                 core: int | None = None) -> None:
        whose = "" if core is None else f"core {core}, "
        super().__init__(explain(f"{whose}instruction {program_counter} ({instruction})", f"{CAUSE_TEXTS[cause]} "
                                 f"({cause.name})", allowed, WAYS_OUT[cause]))
        self.cause = cause
        self.program_counter = program_counter
        self.instruction = instruction
        self.allowed = allowed
        self.core = core

    def of_core(self, core: int) -> MachineStop:
        """Return this stop with the number of the ``core`` that it happened on, for machines of several cores."""
        return MachineStop(self.cause, self.program_counter, self.instruction, self.allowed, core)


RANGE_CAUSES = {"local": Cause.LOCAL_RANGE, "accumulator": Cause.ACCUMULATOR_RANGE,
                "dram0": Cause.DRAM0_RANGE, "dram1": Cause.DRAM1_RANGE}


class Checker:
    """The check of single instructions on one machine."""

    def __init__(self, isa: Isa, decoder: Decoder) -> None:
        self.isa, self.arch = isa, isa.arch
        self.decoder = decoder
        self.depths = {memory: getattr(isa.arch, f"{memory}_depth") for memory in RANGE_CAUSES}
        self.legal_flags = {int(opcode): isa.legal_flags(opcode) for opcode in isa.opcodes()}
        self.reserved = {int(opcode): self._reserved_bits(opcode) for opcode in isa.opcodes()}

    def _reserved_bits(self, opcode: Opcode) -> tuple[int, ...]:
        """Return, for each operand, the bits that must be zero."""
        isa = self.isa
        unused = ~isa.used_mask(opcode)
        return tuple(unused >> offset & ((1 << width) - 1)
                     for offset, width in zip(isa.operand_offsets, isa.operand_widths, strict=True))

    def check(self, instruction: Instruction, iterations: int | None = None) -> DecodedInstruction | Cause:
        """Return the decoded instruction if it is legal, else the cause.

        ``iterations``: of the loop whose body it belongs to, None outside of one."""
        opcode, flags = instruction.opcode, self.legal_flags.get(instruction.opcode)
        if flags is None:
            return Cause.OPCODE
        in_body = iterations is not None
        if instruction.flags not in flags and not (in_body and opcode == Opcode.SIMD):
            return Cause.FLAGS
        bits0, bits1, bits2 = self.reserved[opcode]
        if bits0 & instruction.operand0 or bits1 & instruction.operand1 or bits2 & instruction.operand2:
            return Cause.RESERVED_BITS
        operation = self.decoder.decode(instruction)
        if isinstance(operation, Simd):
            causes = self.simd(operation, iterations or 1)
        else:
            causes = CHECK[type(operation)](self, operation) + ([Cause.LOOP_BODY] if in_body else [])
        return min(causes) if causes else operation

    # -- one function per instruction: every cause that applies ----------------------------------------------------
    def no_op(self, operation: NoOp) -> list[Cause]:
        """Return the causes against a NoOp: none."""
        return []

    def walk(self, memory: str, walk: Walk | None) -> list[Cause]:
        """Return the cause if a walk leaves its memory."""
        return [RANGE_CAUSES[memory]] if walk is not None and walk.last >= self.depths[memory] else []

    def mat_mul(self, operation: MatMul | Depthwise) -> list[Cause]:
        """Return the causes against a MatMul."""
        return self.walk("local", operation.local) + self.walk("accumulator", operation.accumulator)

    def depthwise(self, operation: Depthwise) -> list[Cause]:
        """Return the causes against a depthwise MatMul: each of its rows of taps has a walk of its own."""
        met = [self.walk("local", operation.met(row)) for row in operation.rows]
        return sum(met, self.mat_mul(operation))

    def data_move(self, operation: DataMove) -> list[Cause]:
        """Return the causes against a DataMove."""
        return self.walk("local", operation.local) + self.walk(operation.flow.far_memory, operation.far)

    def load_weight(self, operation: LoadWeight) -> list[Cause]:
        """Return the causes against a LoadWeight."""
        return self.walk("local", operation.local)

    def simd(self, operation: Simd, iterations: int) -> list[Cause]:
        """Return the causes against a SIMD instruction; addresses count up to the last of ``iterations``."""
        causes = []
        for address, stride in ((operation.read, operation.read_stride), (operation.write, operation.write_stride)):
            if address is not None:
                causes += self.walk("accumulator", Walk(address, iterations, stride))
        if operation.opcode not in SIMD_OPCODES:
            causes.append(Cause.SIMD_OPCODE)
        elif self._highest_register(operation) > self.arch.simd_registers_depth:
            causes.append(Cause.SIMD_REGISTER)
        return causes

    def _highest_register(self, operation: Simd) -> int:
        """Return the highest register that a SIMD instruction reads or writes."""
        opcode = SIMD_OPCODES[operation.opcode]
        read = (operation.left, operation.right)[:simd_argument_count(opcode)]
        written = operation.destination + (self.arch.lut_count if opcode is SimdOpcode.LOOKUP else 0)
        return max(written, *read, 0)

    def load_lut(self, operation: LoadLut) -> list[Cause]:
        """Return the causes against a LoadLUT."""
        table = [Cause.LUT_TABLE] if operation.table > self.arch.lut_count else []
        return self.walk("local", operation.local) + table

    def load_scale(self, operation: LoadScale) -> list[Cause]:
        """Return the causes against a LoadScale."""
        return self.walk("local", operation.local)

    def load_activation_table(self, operation: LoadActivationTable) -> list[Cause]:
        """Return the causes against a LoadActivationTable."""
        table = [] if 1 <= operation.table <= self.arch.activation_tables else [Cause.LUT_TABLE]
        return self.walk("local", operation.local) + table

    def simd_loop(self, operation: SimdLoop) -> list[Cause]:
        """Return the causes against a SIMD loop's header."""
        return [Cause.LOOP_BODY] if operation.body > self.arch.simd_loop_depth else []

    def repeat(self, operation: Repeat) -> list[Cause]:
        """Return the cause against a Repeat that cannot be expanded."""
        return [Cause.REPEAT]

    def signal(self, operation: Signal) -> list[Cause]:
        """Return the causes against a Signal."""
        most = (1 << COUNT_WIDTH if operation.waits else 1 << self.arch.cores) - 1
        beyond = operation.counter >= self.arch.sync_counters or operation.above > most
        return self.walk(operation.memory, operation.far) + ([Cause.SIGNAL] if beyond else [])

    def configure(self, operation: Configure) -> list[Cause]:
        """Return the causes against a Configure."""
        if operation.register not in self.isa.registers:
            return [Cause.REGISTER]
        illegal = illegal_register_value(self.arch, Register(operation.register), operation.value)
        return [Cause.REGISTER_VALUE] if illegal else []

    # -- texts -----------------------------------------------------------------------------------------------------
    def allowed(self, cause: Cause) -> str:
        """Return in words what this machine allows where it reports ``cause``."""
        arch = self.arch
        for memory, range_cause in RANGE_CAUSES.items():
            if cause is range_cause:
                return f"{memory} addresses 0..{self.depths[memory] - 1}, strides and rows included"
        return {
            Cause.OPCODE: ", ".join(opcode.name for opcode in self.isa.opcodes()),
            Cause.FLAGS: "the flags of the instruction table; hold only in a loop body",
            Cause.RESERVED_BITS: "zero in every bit that no field names",
            Cause.REGISTER: ", ".join(f"0x{register:02X}" for register in self.isa.registers),
            Cause.REGISTER_VALUE: "values up to the register's maximum" + (
                "" if arch.scheme.fixed_shift is None else f"; shifts of {arch.scheme.fixed_shift} only"),
            Cause.SIMD_OPCODE: f"SIMD operations 0..{int(max(self.isa.simd_opcodes()))}",
            Cause.SIMD_REGISTER: f"SIMD registers up to {arch.simd_registers_depth}",
            Cause.LUT_TABLE: f"tables 0..{arch.lut_count}" + (
                f", 1..{arch.activation_tables} of LoadActivationTable" if arch.activation_tables else ""),
            Cause.REPEAT: f"a distance up to {arch.repeat_depth}, and not before the first instruction since reset",
            Cause.SIGNAL: f"counters below {arch.sync_counters}, cores below {arch.cores}, amounts up to "
                          f"{(1 << COUNT_WIDTH) - 1}",
            Cause.LOOP_BODY: f"a body of at most {arch.simd_loop_depth} SIMD instructions",
        }[cause]


SIMD_OPCODES = {int(opcode): opcode for opcode in SimdOpcode}

CHECK: dict[type, Callable[[Checker, Any], list[Cause]]] = {
    NoOp: Checker.no_op,
    MatMul: Checker.mat_mul,
    Depthwise: Checker.depthwise,
    DataMove: Checker.data_move,
    LoadWeight: Checker.load_weight,
    LoadLut: Checker.load_lut,
    SimdLoop: Checker.simd_loop,
    LoadScale: Checker.load_scale,
    LoadActivationTable: Checker.load_activation_table,
    Repeat: Checker.repeat,
    Signal: Checker.signal,
    Configure: Checker.configure,
}
