# SPDX-License-Identifier: Apache-2.0
"""The decoded instruction, which the decoder gives the interlock, and how a unit's operation is made of it."""

from __future__ import annotations

from amaranth.hdl import Mux, unsigned
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.units import unit_names
from weft.hw.parts.operations import (
    CACHE_WIDTH,
    SimdKind,
    load_fields,
    register_fields,
    shift_width,
    size_width,
    stride_log2_width,
    target_fields,
    turns_layout,
)


def operand_layout(arch: Arch, width: int) -> data.StructLayout:
    """Return the layout of an address operand: a walk, and the last address it reaches."""
    return data.StructLayout({
        "base": unsigned(width), "stride_log2": unsigned(stride_log2_width(arch)), "pitch": unsigned(width),
        "last": unsigned(width),
    })


def issue_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a decoded instruction.

    ``unit``: the unit that executes it, one-hot, so that each unit reads one bit. ``local0``, ``accumulators0``:
    operand 0 is a range of that memory. ``range1``: operand 1 is a range. ``in_loop``: it is a SIMD of a loop body;
    ``loop_last``: the last one. ``turns``: the order of LoadWeights and MatMuls, see :func:`turns_layout`.
    ``dram1``, if both windows share a port: a DRAM unit's operand 1 lies in DRAM1. ``target``: of a Signal."""
    isa = Isa(arch)
    return data.StructLayout({
        "unit": unit_choice(arch), "program_counter": unsigned(32),
        "operand0": operand_layout(arch, isa.address_widths[0]), "local0": 1, "accumulators0": 1,
        "operand1": operand_layout(arch, isa.address_widths[1]), "range1": 1,
        "in_loop": 1, "loop_last": 1,
        "size_m1": unsigned(size_width(arch)), "rows_m1": unsigned(arch.local_address_width),
        "flags": 4, "swap": 1, "turns": turns_layout(arch),
        "input_shift": shift_width(arch), "output_shift": shift_width(arch),
        "cache": CACHE_WIDTH, **({"dram1": 1} if arch.shared_dram else {}),
        "simd_kind": SimdKind, "sub": unsigned(isa.sub_width),
        "body_m1": unsigned(max(bits_to_count(arch.simd_loop_depth), 1)),
        "table": unsigned(bits_to_count(arch.lut_count + 1)),
        **load_fields(arch), **register_fields(arch), **target_fields(arch),
    })


def unit_choice(arch: Arch) -> data.StructLayout:
    """Return the layout of a choice among the units: one bit each, at most one of them set."""
    return data.StructLayout(dict.fromkeys(unit_names(arch), 1))


OPERANDS = ("operand0", "operand1")
SIMD_FIELDS = ("simd_kind", "sub", "body_m1", "table")
"""The fields of an issue that only SIMD's operations use."""
TILE_FIELDS = ("rows_m1", "swap", "turns", "cache")
"""The fields of an issue that only operations of units other than SIMD use; with a shared DRAM port also ``dram1``."""


def queued_layout(arch: Arch, units: tuple[str, ...]) -> data.StructLayout:
    """Return the layout of what a queue keeps of an issue: all that the operations of these units are made of."""
    issue, simd = issue_layout(arch), "simd" in units
    operand = ("base", "stride_log2") if simd else ("base", "stride_log2", "pitch")
    operands = {name: data.StructLayout({field: issue[name].shape[field].shape for field in operand})
                for name in OPERANDS}
    others = SIMD_FIELDS if simd else (*TILE_FIELDS, *(["dram1"] if arch.shared_dram else []))
    if not simd:
        others = (*others, *load_fields(arch), *register_fields(arch), *target_fields(arch))
    fields = dict.fromkeys(("size_m1", "flags", "input_shift", "output_shift", *others))
    return data.StructLayout({**operands, **{name: issue[name].shape for name in fields}})


def fill_queued(queued, issue) -> list:
    """Return statements that fill a :func:`queued_layout` from a decoded instruction.

    LoadWeight walks backwards, so its base is its last address."""
    walks = [queued[name][field].eq(issue[name][field])
             for name in OPERANDS for field in queued[name].shape().members if (name, field) != ("operand0", "base")]
    return [
        queued.operand0.base.eq(Mux(issue.unit.load_weight, issue.operand0.last, issue.operand0.base)), *walks,
        *(queued[name].eq(issue[name]) for name in queued.shape().members if name not in OPERANDS),
    ]
