# SPDX-License-Identifier: Apache-2.0
"""Instructions as text: a line of assembly for each, which names the fields that its opcode has."""

from __future__ import annotations

from weft.hw.contract.instructions import (
    COUNTER_WIDTH,
    OPERATIONS,
    DataFlow,
    Field,
    Instruction,
    Kind,
    Opcode,
    SimdOpcode,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register


def instruction_text(isa: Isa, instruction: Instruction) -> str:
    """Return one line of assembly, such as ``MatMul accumulate local=3 accumulator=0:2 size=49``.

    ``:2`` is the stride. An illegal opcode gives its raw numbers."""
    if instruction.opcode not in list(Opcode):
        return f"illegal opcode={instruction.opcode} flags={instruction.flags} operands={instruction.operands}"
    opcode = Opcode(instruction.opcode)
    operation = OPERATIONS[opcode]
    words = [operation.name, *_flag_words(opcode, instruction.flags)]
    words += [_field_text(isa, field, instruction) for field in operation.fields]
    return " ".join(words)


def _flag_words(opcode: Opcode, flags: int) -> list[str]:
    """Return the words of assembly for an instruction's flags."""
    if opcode is Opcode.DATA_MOVE:
        known = {int(flow): flow.name.lower() for flow in DataFlow}
        return [known.get(flags, f"flow={flags}")]
    names = OPERATIONS[opcode].flags
    return [names[bit] if bit < len(names) else f"flag{bit}" for bit in range(4) if flags >> bit & 1]


def _field_text(isa: Isa, field: Field, instruction: Instruction) -> str:
    """Return the assembly of a field of an instruction, such as ``local=3:2``."""
    raw = instruction.operands[field.operand]
    if field.kind is Kind.ADDRESS:
        address, stride = isa.address(field.operand, raw)
        return f"{field.name}={address}" + (f":{stride}" if stride > 1 else "")
    if field.kind is Kind.SIZE:
        return f"{field.name}={raw + 1}"
    if field.kind is Kind.TARGET:
        counter, above = raw & (1 << COUNTER_WIDTH) - 1, raw >> COUNTER_WIDTH
        cores = "+".join(str(core) for core in range(above.bit_length()) if above >> core & 1) or "none"
        return f"counter={counter} " + (f"amount={above}" if instruction.flag("wait") else f"cores={cores}")
    if field.kind is Kind.SUB:
        opcode, left, right, destination = isa.unpack_sub(raw)
        name = SimdOpcode(opcode).name.lower() if opcode in list(SimdOpcode) else f"opcode{opcode}"
        return f"{name} left={left} right={right} destination={destination}"
    if field.name == "register" and raw in list(Register):
        return f"register={Register(raw).name.lower()}"
    return f"{field.name}={raw}"
