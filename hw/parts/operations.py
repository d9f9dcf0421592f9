# SPDX-License-Identifier: Apache-2.0
"""Macro-operations: what the decoder hands to the queue of each unit. Here are only their layouts.

A *walk* visits rows outer, vectors inner: row r, vector k is base + r x pitch + k x 2**stride_log2."""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import TARGET_WIDTH, Opcode
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register
from weft.hw.contract.units import depths

CACHE_WIDTH = 4


def shift_width(arch: Arch) -> int:
    """Return the bits of an input or output shift, 0 where the number scheme has none."""
    table = register_table(arch)
    return table[Register.INPUT_SHIFT].width if Register.INPUT_SHIFT in table else 0


TAP_FIELDS = {"tap_origin": Register.TAP_ORIGIN, "tap_dropped": Register.TAP_DROPPED, "tap_rows": Register.TAP_ROWS,
              "tap_pitch": Register.TAP_PITCH}
"""The fields of a MatMul's operation that make it depthwise."""


def field_registers(arch: Arch, *units: str) -> dict[str, Register]:
    """Return the fields that hold a Configure register in operations of some units, or of all: name -> register."""
    table, by_unit = register_table(arch), arch.scheme.register_fields
    named = [*((field, register) for unit in units or by_unit for field, register in by_unit[unit].items()),
             *(TAP_FIELDS.items() if not units or "mat_mul" in units else ())]
    return {field: register for field, register in named if register in table}


def register_fields(arch: Arch, *units: str) -> dict[str, object]:
    """Return the fields of :func:`field_registers` with their shapes: name -> shape."""
    specs = {name: register_table(arch)[register] for name, register in field_registers(arch, *units).items()}
    return {name: signed(spec.width) if spec.signed else unsigned(spec.width) for name, spec in specs.items()}


LOAD_FIELDS = {Opcode.LOAD_SCALE: "load_scale", Opcode.LOAD_ACTIVATION_TABLE: "load_table"}
"""The fields of a move-out's operation that tell that it loads quantization parameters, and which."""


def load_fields(arch: Arch) -> dict[str, int]:
    """Return the fields of ``LOAD_FIELDS`` that this machine has: name -> width."""
    return dict.fromkeys((LOAD_FIELDS[opcode] for opcode in arch.parameter_loads), 1)


def target_fields(arch: Arch) -> dict[str, int]:
    """Return the fields of a Signal's operation that hold its target: name -> width."""
    return {"target": TARGET_WIDTH} if arch.sync_counters else {}


def stride_log2_width(arch: Arch) -> int:
    """Return the bits of any stride_log2 field: those of the wider operand's."""
    return max(bits_to_count(arch.stride0_depth), bits_to_count(arch.stride1_depth), 1)


def walk_layout(arch: Arch, address_width: int) -> data.StructLayout:
    """Return the layout of a walk over addresses of so many bits."""
    return data.StructLayout({
        "base": unsigned(address_width),
        "stride_log2": unsigned(stride_log2_width(arch)),
        "pitch": unsigned(address_width),
    })


def size_width(arch: Arch) -> int:
    """Return the bits of size_m1.

    A legal operation is no longer than an on-chip memory, or fills the weight column with zeros."""
    return max(arch.local_address_width, arch.accumulator_address_width, bits_to_count(arch.array_size + 1))


def turns_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the counts by which LoadWeight and MatMul take turns, each modulo its width.

    ``loads``: the LoadWeights before an operation. A MatMul that swaps waits until so many are done; those that are
    not done are outstanding, which bounds the width. ``swaps``: the MatMuls before it that swap. A LoadWeight waits
    for all of them; as the LoadWeights before it did so too, at most one is missing, and one bit is enough."""
    return data.StructLayout({"loads": bits_to_count(depths(arch, "load_weight").outstanding + 1), "swaps": 1})


def window_width(arch: Arch) -> int:
    """Return the bits of a DRAM window's place: in blocks of 64 KiB, which begin below 2**axi_address_width."""
    return max(arch.axi_address_width - bits_to_count(DRAM_OFFSET_BYTES), 1)


def dram_place(arch: Arch) -> dict[str, int]:
    """Return the fields that say where a DRAM operand lies: name -> width.

    ``window`` counts blocks of 64 KiB, ``cache`` is AxCACHE; ``dram1``, if both windows share a port: it is in
    DRAM1."""
    return {"window": window_width(arch), "cache": CACHE_WIDTH, **({"dram1": 1} if arch.shared_dram else {})}


class SimdKind(enum.Enum, shape=2):
    """The kinds of the SIMD unit's operations.

    INSTRUCTION: one plain SIMD. LOOP: the next ``body_m1`` + 1 operations, all of them INSTRUCTIONs, are its body.
    LOAD_LUT: fill ``table`` from local memory."""

    INSTRUCTION = 0
    LOOP = 1
    LOAD_LUT = 2
