# SPDX-License-Identifier: Apache-2.0
"""Conditions under which an instruction is illegal: the hardware's statement of ``Cause``."""

from __future__ import annotations

from amaranth.hdl import Const, Mux

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import CAUSE_WIDTH, Cause
from weft.hw.contract.instructions import (
    COUNT_WIDTH,
    COUNTER_WIDTH,
    SUB_REGISTERS,
    TARGET_WIDTH,
    DataFlow,
    Opcode,
    SimdOpcode,
    flag_bit,
    operand_of,
    simd_argument_count,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register


def form_causes(arch: Arch) -> tuple[Cause, ...]:
    """Return the causes for which a machine can find an instruction illegal without its addresses."""
    repeat = (Cause.REPEAT,) if arch.repeat_depth else ()
    signal = (Cause.SIGNAL,) if arch.sync_counters else ()
    return (Cause.OPCODE, Cause.FLAGS, Cause.RESERVED_BITS, Cause.REGISTER, Cause.REGISTER_VALUE, Cause.SIMD_OPCODE,
            Cause.SIMD_REGISTER, Cause.LUT_TABLE, Cause.LOOP_BODY, *repeat, *signal)


def any_of(value, numbers):
    """Return whether ``value`` is one of ``numbers``."""
    result = Const(0, 1)
    for number in numbers:
        if number < 1 << len(value):
            result = result | (value == number)
    return result


def first_cause(faults: dict[Cause, object]):
    """Return the lowest cause whose condition holds, NONE if none does. ``faults``: cause -> condition."""
    result = Const(Cause.NONE, CAUSE_WIDTH)
    for cause in sorted(faults, reverse=True):
        result = Mux(faults[cause], Const(cause, CAUSE_WIDTH), result)
    return result


class InstructionView:
    """Named slices of a raw instruction."""

    def __init__(self, isa: Isa, raw) -> None:
        self.isa, self.raw = isa, raw
        self.opcode = raw[isa.opcode_offset:isa.opcode_offset + 4]
        self.flags = raw[isa.flags_offset:isa.flags_offset + 4]
        self.operands = [raw[offset:offset + width]
                         for offset, width in zip(isa.operand_offsets, isa.operand_widths, strict=True)]
        self.sub = self.field(Opcode.SIMD, "sub")[:isa.sub_width]
        width = isa.simd_register_width
        self.simd = {name: self.sub[index * width:(index + 1) * width] for index, name in enumerate(SUB_REGISTERS)}
        self.simd_opcode = self.sub[len(SUB_REGISTERS) * width:]

    def field(self, opcode: Opcode, name: str):
        """Return the operand in which a field of this opcode lies."""
        return self.operands[operand_of(opcode, name)]

    def flag(self, opcode: Opcode, name: str):
        """Return the bit of a flag of this opcode."""
        return self.flags[flag_bit(opcode, name)]

    def address(self, operand: int):
        """Return the address in an address operand."""
        return self.operands[operand][:self.isa.address_widths[operand]]

    def stride_log2(self, operand: int):
        """Return the log2 of the stride in an address operand."""
        width = self.isa.address_widths[operand]
        return self.operands[operand][width:width + self.isa.stride_widths[operand]]

    def opcode_is(self, opcode: Opcode):
        """Return whether the instruction has this opcode."""
        return self.opcode == opcode

    def flow_is(self, *flows: DataFlow):
        """Return whether the instruction is a DataMove with one of these flows."""
        return self.opcode_is(Opcode.DATA_MOVE) & any_of(self.flags, [int(flow) for flow in flows])


def form_faults(arch: Arch, view: InstructionView, in_loop) -> dict[Cause, object]:
    """Return all faults that show without addresses: cause -> condition. ``in_loop``: a loop body is expected."""
    isa = view.isa
    simd = view.opcode_is(Opcode.SIMD)
    register, body = (view.field(opcode, name) for opcode, name in (
        (Opcode.CONFIGURE, "register"), (Opcode.SIMD_LOOP, "body")))
    return {
        Cause.OPCODE: ~any_of(view.opcode, isa.opcodes()),
        Cause.FLAGS: _flags_fault(isa, view, in_loop),
        Cause.RESERVED_BITS: _reserved_fault(isa, view),
        Cause.REGISTER: view.opcode_is(Opcode.CONFIGURE) & ~any_of(register, isa.registers),
        Cause.REGISTER_VALUE: view.opcode_is(Opcode.CONFIGURE) & _value_fault(arch, isa, view),
        Cause.SIMD_OPCODE: simd & (view.simd_opcode > max(isa.simd_opcodes())),
        Cause.SIMD_REGISTER: simd & _simd_register_fault(arch, view),
        Cause.LUT_TABLE: _table_fault(arch, view),
        Cause.LOOP_BODY: (in_loop & ~simd) | (view.opcode_is(Opcode.SIMD_LOOP) & (body >= arch.simd_loop_depth)),
        **({Cause.REPEAT: view.opcode_is(Opcode.REPEAT)} if arch.repeat_depth else {}),  # a legal one is expanded
        **({Cause.SIGNAL: view.opcode_is(Opcode.SIGNAL) & _target_fault(arch, view)} if arch.sync_counters else {}),
    }


def _flags_fault(isa: Isa, view: InstructionView, in_loop):
    """Return whether the flags are illegal for the opcode; within a loop body SIMD may have any flags."""
    fault = Const(0, 1)
    for opcode in isa.opcodes():
        legal = any_of(view.flags, isa.legal_flags(opcode))
        if opcode is Opcode.SIMD:
            legal = in_loop | legal
        fault = fault | (view.opcode_is(opcode) & ~legal)
    return fault


def _reserved_fault(isa: Isa, view: InstructionView):
    """Return whether a bit is set that no field of the opcode uses."""
    fault = Const(0, 1)
    everything = (1 << 8 * isa.instruction_bytes) - 1
    for opcode in isa.opcodes():
        unnamed = everything & ~isa.used_mask(opcode)
        fault = fault | (view.opcode_is(opcode) & (view.raw & unnamed).any())
    return fault


def _value_fault(arch: Arch, isa: Isa, view: InstructionView):
    """Return whether a Configure's value is not allowed for its register."""
    number, value = view.field(Opcode.CONFIGURE, "register"), view.field(Opcode.CONFIGURE, "value")
    fault = Const(0, 1)
    for register, spec in isa.registers.items():
        if arch.scheme.fixed_shift is not None and register in (Register.INPUT_SHIFT, Register.OUTPUT_SHIFT):
            bad = value != arch.scheme.fixed_shift
        elif spec.maximum >= (1 << len(value)) - 1:
            continue
        else:
            bad = value > spec.maximum
        if register < 1 << len(number):
            fault = fault | ((number == register) & bad)
    return fault


def _table_fault(arch: Arch, view: InstructionView):
    """Return whether a LoadLUT or LoadActivationTable names a table that there is not."""
    fault = view.opcode_is(Opcode.LOAD_LUT) & (view.field(Opcode.LOAD_LUT, "table") > arch.lut_count)
    if arch.activation_tables:
        table = view.field(Opcode.LOAD_ACTIVATION_TABLE, "table")
        fault = fault | (view.opcode_is(Opcode.LOAD_ACTIVATION_TABLE)
                         & ((table == 0) | (table > arch.activation_tables)))
    return fault


def _target_fault(arch: Arch, view: InstructionView):
    """Return whether a Signal names a counter, a core or an amount that there is not."""
    target = view.field(Opcode.SIGNAL, "target")
    counter, above = target[:COUNTER_WIDTH], target[COUNTER_WIDTH:TARGET_WIDTH]
    most = Mux(view.flag(Opcode.SIGNAL, "wait"), above[COUNT_WIDTH:].any(), above[arch.cores:].any())
    return most | (counter >= arch.sync_counters)


def _simd_register_fault(arch: Arch, view: InstructionView):
    """Return whether a SIMD instruction uses a register that there is not."""
    most = arch.simd_registers_depth
    left, right, destination = (view.simd[name] for name in ("left", "right", "destination"))
    if arch.simd_registers_depth + 1 == 1 << len(left) and not arch.lut_count:
        return Const(0, 1)
    one = any_of(view.simd_opcode, [op for op in SimdOpcode if simd_argument_count(op) >= 1])
    two = any_of(view.simd_opcode, [op for op in SimdOpcode if simd_argument_count(op) == 2])
    fault = (one & (left > most)) | (two & (right > most)) | (destination > most)
    if arch.lut_count:
        fault = fault | ((view.simd_opcode == SimdOpcode.LOOKUP) & (destination + arch.lut_count > most))
    return fault
