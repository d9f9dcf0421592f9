# SPDX-License-Identifier: Apache-2.0
"""The operations of every unit: each field's shape, and where it comes from.

A unit's queue keeps what the decoder gave (``queued``: flags, operands, sizes, registers). A field of the unit's
operation is one of these, or a part of one. So a new field is one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Value, unsigned
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import MOVE_ACCUMULATE_BIT, OPERATIONS, RELU_BIT, SUB_REGISTERS, Opcode, flag_bit
from weft.hw.contract.isa import Isa
from weft.hw.contract.numerics import bits_to_count
from weft.hw.parts.operations import (
    SimdKind,
    dram_place,
    load_fields,
    register_fields,
    shift_width,
    size_width,
    stride_log2_width,
    target_fields,
    turns_layout,
    walk_layout,
)

Source = Callable[[Any, Any], list]
"""A function that returns statements that set a field, given the field and what the queue kept."""


@dataclass(frozen=True)
class OperationField:
    """A field of an operation: its shape, and its source. Without one, whoever hands the operation over sets it."""

    shape: Any
    source: Source | None


# -- sources -----------------------------------------------------------------------------------------------------------
def kept(*path: str) -> Source:
    """Return the source that is a field of what is queued, such as ``size_m1``, or ``turns``, ``loads``."""
    def fill(field: Any, queued: Any) -> list:
        for name in path:
            queued = queued[name]
        return [field.eq(queued)]
    return fill


def flag(opcode: Opcode, name: str) -> Source:
    """Return the source that is a flag of an instruction."""
    return bit(flag_bit(opcode, name))


def bit(number: int) -> Source:
    """Return the source that is a bit of an instruction's flags."""
    return lambda field, queued: [field.eq(queued.flags[number])]


def walk(operand: int) -> Source:
    """Return the source of a walk over rows: base, stride and pitch of an operand."""
    def fill(field: Any, queued: Any) -> list:
        given = queued[f"operand{operand}"]
        return [field[name].eq(given[name]) for name in ("base", "stride_log2", "pitch")]
    return fill


def column(operand: int) -> Source:
    """Return the source of a walk along one row: base and stride of an operand."""
    def fill(field: Any, queued: Any) -> list:
        given = queued[f"operand{operand}"]
        return [field[name].eq(given[name]) for name in ("base", "stride_log2")]
    return fill


def sub(index: int, width: int) -> Source:
    """Return the source that is a register of a SIMD sub-instruction; behind the last one lies the opcode."""
    return lambda field, queued: [field.eq(queued.sub[index * width:index * width + len(Value.cast(field))])]


def constant(value: int) -> Source:
    """Return the source that is always ``value``."""
    return lambda field, queued: [field.eq(value)]


# -- operations --------------------------------------------------------------------------------------------------------
def operation_fields(arch: Arch, unit: str) -> dict[str, OperationField]:
    """Return the fields of a unit's operation, from the lowest bits up."""
    rows = _ROWS["dram" if unit.startswith("dram") else unit](arch)
    return {name: OperationField(shape, source) for name, shape, source in rows}


def operation_layout(arch: Arch, unit: str) -> data.StructLayout:
    """Return the layout of a unit's operation."""
    return data.StructLayout({name: field.shape for name, field in operation_fields(arch, unit).items()})


def fill_operation(arch: Arch, unit: str, operation: Any, queued: Any) -> list:
    """Return statements that set a unit's operation from what its queue kept."""
    fields = operation_fields(arch, unit)
    return [statement for name, field in fields.items() if field.source is not None
            for statement in field.source(operation[name], queued)]


def _sizes(arch: Arch, rows: Source) -> list:
    """Return the rows of the sizes; ``rows``: the source of ``rows_m1``."""
    return [("size_m1", unsigned(size_width(arch)), kept("size_m1")),
            ("rows_m1", unsigned(arch.local_address_width), rows)]


def _walks(arch: Arch, far: str, far_width: int) -> list:
    """Return the rows of the sizes and of two walks: over local memory, and over the memory ``far``."""
    return [*_sizes(arch, kept("rows_m1")),
            ("local", walk_layout(arch, arch.local_address_width), walk(0)),
            (far, walk_layout(arch, far_width), walk(1))]


def _registers(arch: Arch, unit: str) -> list:
    """Return the rows of fields that hold a Configure register as it was when the instruction was decoded."""
    return [(name, shape, kept(name)) for name, shape in register_fields(arch, unit).items()]


def _load_weight(arch: Arch) -> list:
    """Return the rows of the load_weight unit's operations.

    ``local.base`` is the last address, visited first; the stride is walked downwards. ``swaps``:
    :func:`turns_layout`."""
    return [*_sizes(arch, constant(0)), ("local", walk_layout(arch, arch.local_address_width), column(0)),
            ("zeroes", 1, flag(Opcode.LOAD_WEIGHT, "zeroes")), ("zero_bias", 1, flag(Opcode.LOAD_WEIGHT, "zero_bias")),
            ("swaps", turns_layout(arch)["swaps"].shape, kept("turns", "swaps"))]


def _mat_mul(arch: Arch) -> list:
    """Return the rows of the mat_mul unit's operations.

    ``swap``: weights were loaded since the last MatMul; the first vector swaps them in. ``loads``:
    :func:`turns_layout`."""
    return [*_walks(arch, "accumulator", arch.accumulator_address_width),
            ("accumulate", 1, flag(Opcode.MAT_MUL, "accumulate")), ("zeroes", 1, flag(Opcode.MAT_MUL, "zeroes")),
            ("swap", 1, kept("swap")), ("input_shift", shift_width(arch), kept("input_shift")),
            ("loads", turns_layout(arch)["loads"].shape, kept("turns", "loads")), *_registers(arch, "mat_mul")]


def _move_out(arch: Arch) -> list:
    """Return the rows of the move_out unit's operations: accumulators to local memory.

    ``load_scale``: read each lane's scales from local memory instead; ``load_table``: read table
    ``activation_table``."""
    return [*_walks(arch, "accumulator", arch.accumulator_address_width), ("relu", 1, bit(RELU_BIT)),
            ("output_shift", shift_width(arch), kept("output_shift")),
            *((name, width, kept(name)) for name, width in load_fields(arch).items()), *_registers(arch, "move_out")]


def _move_in(arch: Arch) -> list:
    """Return the rows of the move_in unit's operations: local memory to accumulators."""
    return [*_walks(arch, "accumulator", arch.accumulator_address_width),
            ("accumulate", 1, bit(MOVE_ACCUMULATE_BIT)), ("input_shift", shift_width(arch), kept("input_shift")),
            *_registers(arch, "move_in")]


def _dram(arch: Arch) -> list:
    """Return the rows of a DRAM unit's operations: DRAM to local memory or back.

    The interlock sets ``window``, which stands still while operations wait."""
    place = ((name, width, None if name == "window" else kept(name)) for name, width in dram_place(arch).items())
    return [*_walks(arch, "dram", arch.dram_address_width), *place]


def _simd(arch: Arch) -> list:
    """Return the rows of the SIMD unit's operations; which fields count depends on ``kind``."""
    registers, address, stride = Isa(arch).simd_register_width, arch.accumulator_address_width, stride_log2_width(arch)
    named = {name: (name, unsigned(registers), sub(index, registers)) for index, name in enumerate(SUB_REGISTERS)}
    return [
        ("kind", SimdKind, kept("simd_kind")),
        *((name, 1, flag(Opcode.SIMD, name)) for name in OPERATIONS[Opcode.SIMD].flags),
        ("write_address", unsigned(address), kept("operand0", "base")),
        ("write_stride_log2", unsigned(stride), kept("operand0", "stride_log2")),
        ("read_address", unsigned(address), kept("operand1", "base")),
        ("read_stride_log2", unsigned(stride), kept("operand1", "stride_log2")),
        ("opcode", unsigned(5), sub(len(SUB_REGISTERS), registers)),
        *(named[name] for name in ("left", "right", "destination")),
        ("input_shift", shift_width(arch), kept("input_shift")),
        ("output_shift", shift_width(arch), kept("output_shift")),
        ("iterations_m1", unsigned(address), kept("size_m1")),
        ("body_m1", unsigned(max(bits_to_count(arch.simd_loop_depth), 1)), kept("body_m1")),
        ("table", unsigned(bits_to_count(arch.lut_count + 1)), kept("table")),
        ("local_base", unsigned(arch.local_address_width), kept("operand0", "base")),
        ("local_stride_log2", unsigned(stride), kept("operand0", "stride_log2")),
    ]


def _sync(arch: Arch) -> list:
    """Return the rows of the sync unit's operations."""
    return [("wait", 1, flag(Opcode.SIGNAL, "wait")),
            *((name, unsigned(width), kept(name)) for name, width in target_fields(arch).items())]


_ROWS: dict[str, Callable[[Arch], list]] = {
    "load_weight": _load_weight, "mat_mul": _mat_mul, "simd": _simd, "move_out": _move_out, "move_in": _move_in,
    "dram": _dram, "sync": _sync,
}
