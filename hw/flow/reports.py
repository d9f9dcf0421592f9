# SPDX-License-Identifier: Apache-2.0
"""Texts about a machine for a user or a driver: tables of its ISA, a C header, a summary for JSON.

All of it is generated from ``instructions.py``, ``registers.py``, ``csr.py`` and ``samples.py``; nothing here knows
a number of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from weft.hw.contract import csr
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import CAUSE_TEXTS, Cause
from weft.hw.contract.instructions import OPERATIONS, DataFlow, Field, Kind, Opcode, simd_argument_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.registers import Register
from weft.hw.contract.samples import HANDSHAKES
from weft.hw.contract.system import page_address

NARROW = 26
"""The characters that the last column of a table needs at least to stand beside the others."""


# -- text --------------------------------------------------------------------------------------------------------------
def isa_text(arch: Arch, width: int = 100) -> str:
    """Return the ISA and the register maps as plain tables, no line longer than ``width`` (60 or more)."""
    isa = Isa(arch)
    sections: list[tuple[str, tuple[str, ...], Sequence[Sequence[str]]]] = [
        (f"Instruction: {isa.instruction_bytes} bytes, little-endian", ("bits", "field", "holds"), _layout_rows(isa)),
        ("Operations", ("op", "name", "flags; operands"), _operation_rows(isa)),
        ("DataMove flags, read as one number", ("flags", "flow"),
         [(str(int(flow)), flow.name.lower().replace("_", " ")) for flow in DataFlow]),
        ("Configure registers", ("register", "name", "bits", "reset", "meaning"), _configure_rows(isa)),
        (f"SIMD operations: {_sub_layout(isa)}", ("op", "name", "sources"), _simd_rows(arch)),
        ("Control registers (s_axil)", ("offset", "name", "access", "meaning"), _control_rows()),
        ("Causes of an error", ("cause", "name", "meaning"),
         [(str(int(cause)), cause.name, CAUSE_TEXTS[cause]) for cause in Cause]),
    ]
    return "\n\n".join(_table(title, head, rows, width) for title, head, rows in sections) + "\n"


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    """Return a table as text; columns are as wide as they need.

    The last column wraps, or starts a line of its own if little room is left."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    indent = sum(widths) + 2 * len(widths)
    below = width - indent < NARROW
    if below:
        indent = widths[0] + 2
    out = textwrap.wrap(title, width)
    for line in lines:
        cells = "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=False))
        last = textwrap.wrap(line[-1], width - indent) or [""]
        out.append((cells if below else cells + "  " + last.pop(0)).rstrip())
        out += [(" " * indent + more).rstrip() for more in last]
    return "\n".join(out)


def _bits(offset: int, width: int) -> str:
    """Return bits as text: ``7:4``, or ``4`` for a single bit."""
    return f"{offset + width - 1}:{offset}" if width > 1 else str(offset)


def _layout_rows(isa: Isa) -> list[tuple[str, str, str]]:
    """Return the rows of the table of an instruction's layout."""
    rows = [(_bits(isa.opcode_offset, 4), "opcode", ""), (_bits(isa.flags_offset, 4), "flags", "")]
    rows.append((_bits(isa.operand_offsets[2], isa.operand_widths[2]), "operand 2",
                 f"size-1, or the SIMD sub-instruction ({isa.sub_width} bits)"))
    for operand in (1, 0):
        address, stride = isa.address_widths[operand], isa.stride_widths[operand]
        holds = f"address in {_bits(0, address)}" + (f", log2(stride) in {_bits(address, stride)}" if stride else "")
        rows.append((_bits(isa.operand_offsets[operand], isa.operand_widths[operand]), f"operand {operand}", holds))
    return rows


def _field_name(field: Field) -> str:
    """Return a field as text: its operand, its name, and -1 if it holds a size - 1."""
    suffix = {Kind.SIZE: "-1", Kind.SUB: "-instruction"}.get(field.kind, "")
    return f"{field.operand}: {field.name.replace('_', ' ')}{suffix}"


def _flags_text(opcode: Opcode) -> str:
    """Return the flags of an opcode as text."""
    if opcode is Opcode.DATA_MOVE:
        return "the flow"
    return ", ".join(f"bit {bit} {name}" for bit, name in enumerate(OPERATIONS[opcode].flags))


def _operation_rows(isa: Isa) -> list[tuple[str, str, str]]:
    """Return the rows of the table of operations."""
    rows = []
    for opcode in isa.opcodes():
        operation = OPERATIONS[opcode]
        parts = []
        if flags := _flags_text(opcode):
            parts.append(f"flags {flags}")
        if operation.fields:
            parts.append("operands " + ", ".join(map(_field_name, operation.fields)))
        rows.append((str(int(opcode)), operation.name, "; ".join(parts)))
    return rows


def _configure_rows(isa: Isa) -> list[tuple[str, ...]]:
    """Return the rows of the table of Configure registers."""
    return [(f"0x{int(register):02X}", register.name, str(spec.width), f"0x{spec.reset:X}", spec.meaning)
            for register, spec in isa.registers.items()]


def _sub_layout(isa: Isa) -> str:
    """Return the layout of the SIMD sub-instruction as text."""
    width, total = isa.simd_register_width, isa.sub_width
    names = ("destination", "right", "left")
    parts = [f"{name} {_bits(i * width, width)}" for i, name in enumerate(names)]
    return ", ".join([f"op {_bits(total - isa.simd_opcode_width, isa.simd_opcode_width)}", *reversed(parts)])


def _simd_rows(arch: Arch) -> list[tuple[str, str, str]]:
    """Return the rows of the table of SIMD operations."""
    sources = {0: "none", 1: "left", 2: "left, right"}
    return [(str(int(op)), op.name, sources[simd_argument_count(op)]) for op in Isa(arch).simd_opcodes()]


def _control_rows() -> list[tuple[str, str, str, str]]:
    """Return the rows of the table of control registers."""
    return [(f"0x{spec.offset:03X}", name, spec.access.value, spec.meaning)
            for name, spec in csr.CONTROL_REGISTERS.items()]


# -- summary -----------------------------------------------------------------------------------------------------------
def summary(arch: Arch) -> dict[str, Any]:
    """Return all that a driver or a script wants to know of a machine, ready for JSON."""
    isa, number = Isa(arch), arch.number
    fields = {f"operand{i}": {"offset": isa.operand_offsets[i], "width": isa.operand_widths[i]} for i in range(3)}
    fields |= {"flags": {"offset": isa.flags_offset, "width": 4}, "opcode": {"offset": isa.opcode_offset, "width": 4}}
    constants = csr.parameter_values(arch)
    return {
        "arch": arch.to_dict(),
        "derived": {
            "data_width": number.width,
            "binary_point": number.point,
            "scalar_bytes": number.scalar_bytes,
            "vector_bytes": arch.vector_bytes,
            "accumulator_width": arch.accumulator_bits,
            "dram0_bytes": arch.dram0_depth * arch.vector_bytes,
            "dram1_bytes": arch.dram1_depth * arch.vector_bytes,
            "local_bits": arch.local_depth * arch.array_size * number.width,
            "accumulator_bits": arch.accumulator_depth * arch.array_size * arch.accumulator_bits,
            "multipliers": arch.array_size**2,
        },
        "instruction": {
            "bytes": isa.instruction_bytes,
            "fields": fields,
            "address_widths": list(isa.address_widths),
            "stride_widths": list(isa.stride_widths),
            "size_width": isa.size_width,
            "simd_opcode_width": isa.simd_opcode_width,
            "simd_register_width": isa.simd_register_width,
        },
        "opcodes": {OPERATIONS[opcode].name: int(opcode) for opcode in isa.opcodes()},
        "simd_opcodes": {op.name: int(op) for op in isa.simd_opcodes()},
        "configure_registers": {
            register.name: {"number": int(register), "width": spec.width, "reset": spec.reset,
                            "maximum": spec.maximum, "meaning": spec.meaning}
            for register, spec in isa.registers.items()
        },
        "control_registers": {
            name: {"offset": spec.offset, "access": spec.access.value, "meaning": spec.meaning}
            | ({"value": constants[name]} if name in constants else {})
            for name, spec in csr.CONTROL_REGISTERS.items()
        },
        "causes": {cause.name: {"number": int(cause), "meaning": CAUSE_TEXTS[cause]} for cause in Cause},
    }


# -- C header ----------------------------------------------------------------------------------------------------------
Define = tuple[str, str, str]
"""A #define of the C header: its name without WEFT_, its value, a comment."""


def c_header(arch: Arch) -> str:
    """Return the ISA and the registers for a C driver (C99): constants, and ``weft_encode``.

    ``_SHIFT`` of an instruction field counts from bit 0 of the whole little-endian instruction; ``_MASK`` is the
    field's own, not shifted."""
    isa = Isa(arch)
    sections: list[tuple[str, list[Define]]] = [
        ("The machine", _machine_defines(arch)),
        ("Instruction layout", _layout_defines(isa)),
        ("Opcodes and flags", _opcode_defines(isa)),
        ("SIMD operations", [(f"SIMD_OP_{op.name}", str(int(op)), "") for op in isa.simd_opcodes()]),
        ("Configure registers", _configure_defines(Isa(arch))),
        ("Control registers, byte offsets", _control_defines(arch)),
        ("Causes of an error", [(f"CAUSE_{cause.name}", str(int(cause)), CAUSE_TEXTS[cause]) for cause in Cause]),
    ]
    if arch.cores > 1:
        sections.append(("Registers of several cores, byte offsets behind those of core 0", _system_defines()))
    body = "\n".join(f"\n/* {title} */\n" + "\n".join(map(_define, rows)) for title, rows in sections)
    return _HEADER.replace("@BODY@", body)


def _define(row: Define) -> str:
    """Return the line of a #define."""
    name, value, comment = row
    return f"#define WEFT_{name} {value}" + (f" /* {comment} */" if comment else "")


def _constant(value: int) -> str:
    """Return a number as a C constant."""
    return f"UINT64_C(0x{value:x})" if value >= 1 << 31 else str(value)


def _machine_defines(arch: Arch) -> list[Define]:
    """Return the defines of the architecture keys, and of sizes that follow from them."""
    rows: list[Define] = [("DATA_TYPE", f'"{arch.number.name}"', ""), ("MAC_ROUNDING", f'"{arch.mac_rounding}"', ""),
                          ("DRAM_PORTS", f'"{arch.dram_ports}"', "")]
    rows += [(key.upper(), _constant(value), "") for key, value in arch.to_dict().items() if isinstance(value, int)]
    derived = {"DATA_WIDTH": arch.number.width, "BINARY_POINT": arch.number.point,
               "SCALAR_BYTES": arch.number.scalar_bytes, "VECTOR_BYTES": arch.vector_bytes,
               "DRAM_OFFSET_BYTES": DRAM_OFFSET_BYTES}
    return rows + [(name, _constant(value), "") for name, value in derived.items()]


def _span(name: str, offset: int, width: int) -> list[Define]:
    """Return the defines of a field's shift, width and mask."""
    mask = f"UINT64_C(0x{(1 << width) - 1:x})"
    return [(f"{name}_SHIFT", str(offset), ""), (f"{name}_WIDTH", str(width), ""), (f"{name}_MASK", mask, "")]


def _layout_defines(isa: Isa) -> list[Define]:
    """Return the defines of an instruction's layout."""
    rows: list[Define] = [("INSTRUCTION_BYTES", str(isa.instruction_bytes), "")]
    for i in range(3):
        rows += _span(f"OPERAND{i}", isa.operand_offsets[i], isa.operand_widths[i])
    rows += _span("FLAGS", isa.flags_offset, 4) + _span("OPCODE", isa.opcode_offset, 4)
    for i in (0, 1):
        rows.append((f"ADDRESS{i}_WIDTH", str(isa.address_widths[i]), f"low bits of operand {i}"))
        rows.append((f"STRIDE{i}_WIDTH", str(isa.stride_widths[i]), "log2(stride), above the address"))
    width = isa.simd_register_width
    for i, name in enumerate(("SIMD_DESTINATION", "SIMD_RIGHT", "SIMD_LEFT")):
        rows += _span(name, i * width, width)
    return rows + _span("SIMD_OPCODE", 3 * width, isa.simd_opcode_width)



def _opcode_defines(isa: Isa) -> list[Define]:
    """Return the defines of opcodes, their flags, and DataMove's flows."""
    rows: list[Define] = []
    for opcode in isa.opcodes():
        name = opcode.name
        rows.append((f"OP_{name}", str(int(opcode)), OPERATIONS[opcode].name))
        flags = enumerate(OPERATIONS[opcode].flags)
        rows += [(f"{name}_FLAG_{flag.upper()}", str(1 << bit), "") for bit, flag in flags]
    return rows + [(f"FLOW_{flow.name}", str(int(flow)), "DataMove's flags") for flow in DataFlow]


def _configure_defines(isa: Isa) -> list[Define]:
    """Return the defines of Configure registers."""
    return [(f"CONFIG_{Register(register).name}", f"0x{int(register):02x}", spec.meaning)
            for register, spec in isa.registers.items()]


def _system_defines() -> list[Define]:
    page = page_address(csr.SYSTEM_PAGE)
    return [("CORE_PAGE_BYTES", f"0x{page_address(1):x}", "from a core's control registers to the next one's"),
            *((f"SYSTEM_{name}", f"0x{page + spec.offset:x}", f"{spec.access.value}: {spec.meaning}")
              for name, spec in csr.SYSTEM_REGISTERS.items())]


def _control_defines(arch: Arch) -> list[Define]:
    """Return the defines of control registers, their bits, and the values of constant ones."""
    rows: list[Define] = [(f"CSR_{name}", f"0x{spec.offset:03x}", f"{spec.access.value}: {spec.meaning}")
                          for name, spec in csr.CONTROL_REGISTERS.items()]
    rows += [(f"CONTROL_{bit.name}", f"{1 << bit}u", "") for bit in csr.Command]
    rows += [(f"STATUS_{bit.name}", f"{1 << bit}u", "") for bit in csr.Status]
    rows += [(f"SAMPLE_{name.upper()}", str(bit), "") for bit, name in enumerate(HANDSHAKES)]
    rows += [("SAMPLE_HANDSHAKES", str(len(HANDSHAKES)), "that a sample shows")]
    return rows + [(f"VALUE_{name}", f"0x{value:x}u", "what the register reads")
                   for name, value in csr.parameter_values(arch).items()]


_HEADER = """\
/* Generated by `weft verilog`: the instruction set and the registers of one machine. Do not edit. */
#ifndef WEFT_H
#define WEFT_H

#include <stdint.h>
@BODY@

/* Writes one instruction; operands as in the tables of `weft isa`. */
static inline void weft_encode(uint8_t out[WEFT_INSTRUCTION_BYTES], unsigned opcode, unsigned flags,
                               uint64_t operand0, uint64_t operand1, uint64_t operand2)
{
    const uint64_t operands[3] = {operand0, operand1, operand2};
    const unsigned shifts[3] = {WEFT_OPERAND0_SHIFT, WEFT_OPERAND1_SHIFT, WEFT_OPERAND2_SHIFT};
    const unsigned widths[3] = {WEFT_OPERAND0_WIDTH, WEFT_OPERAND1_WIDTH, WEFT_OPERAND2_WIDTH};
    for (unsigned i = 0; i < 3; i++)
        for (unsigned bit = 0; bit < widths[i]; bit += 8)
            out[(shifts[i] + bit) / 8] = (uint8_t)(operands[i] >> bit);
    out[WEFT_FLAGS_SHIFT / 8] = (uint8_t)(opcode << 4 | flags);
}

#endif
"""
