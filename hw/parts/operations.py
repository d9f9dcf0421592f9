"""Macro-operations: what the decoder hands to the queue of each unit. Here are only their layouts.

A *walk* visits rows outer, vectors inner: row r, vector k is base + r x pitch + k x 2**stride_log2."""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register
from weft.hw.contract.units import depths

CACHE_WIDTH = 4


def shift_width(arch: Arch) -> int:
    """Return the bits of an input or output shift, 0 where the number scheme has none."""
    table = register_table(arch)
    return table[Register.INPUT_SHIFT].width if Register.INPUT_SHIFT in table else 0


TAP_FIELDS = {"tap_origin": Register.TAP_ORIGIN, "tap_dropped": Register.TAP_DROPPED}
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


def tile(arch: Arch, **walks: int) -> dict[str, object]:
    """Return the fields of an operation over rows of vectors: sizes, and a walk for each name -> address width."""
    return {
        "size_m1": unsigned(size_width(arch)),
        "rows_m1": unsigned(arch.local_address_width),
        **{name: walk_layout(arch, width) for name, width in walks.items()},
    }


def turns_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the counts by which LoadWeight and MatMul take turns, each modulo its width.

    ``loads``: the LoadWeights before an operation. A MatMul that swaps waits until so many are done; those that are
    not done are outstanding, which bounds the width. ``swaps``: the MatMuls before it that swap. A LoadWeight waits
    for all of them; as the LoadWeights before it did so too, at most one is missing, and one bit is enough."""
    return data.StructLayout({"loads": bits_to_count(depths(arch, "load_weight").outstanding + 1), "swaps": 1})


def load_weight_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the load_weight unit's operations.

    ``local.base`` is the last address, visited first; the stride is walked downwards. ``swaps``:
    :func:`turns_layout`."""
    return data.StructLayout({
        **tile(arch, local=arch.local_address_width), "zeroes": 1, "zero_bias": 1,
        "swaps": turns_layout(arch)["swaps"].shape,
    })


def mat_mul_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the mat_mul unit's operations.

    ``swap``: weights were loaded since the last MatMul; the first vector swaps them in. ``loads``:
    :func:`turns_layout`."""
    return data.StructLayout({
        **tile(arch, local=arch.local_address_width, accumulator=arch.accumulator_address_width),
        "accumulate": 1, "zeroes": 1, "swap": 1, "input_shift": shift_width(arch),
        "loads": turns_layout(arch)["loads"].shape,
        **register_fields(arch, "mat_mul"),
    })


def move_out_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the move_out unit's operations: accumulators to local memory.

    ``load_scale``: read each lane's scales from local memory instead; ``load_table``: read table
    ``activation_table``."""
    return data.StructLayout({
        **tile(arch, local=arch.local_address_width, accumulator=arch.accumulator_address_width),
        "relu": 1, "output_shift": shift_width(arch),
        **load_fields(arch), **register_fields(arch, "move_out"),
    })


def move_in_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the move_in unit's operations: local memory to accumulators."""
    return data.StructLayout({
        **tile(arch, local=arch.local_address_width, accumulator=arch.accumulator_address_width),
        "accumulate": 1, "input_shift": shift_width(arch), **register_fields(arch, "move_in"),
    })


def window_width(arch: Arch) -> int:
    """Return the bits of a DRAM window's place: in blocks of 64 KiB, which begin below 2**axi_address_width."""
    return max(arch.axi_address_width - bits_to_count(DRAM_OFFSET_BYTES), 1)


def dram_place(arch: Arch) -> dict[str, int]:
    """Return the fields that say where a DRAM operand lies: name -> width.

    ``window`` counts blocks of 64 KiB, ``cache`` is AxCACHE; ``dram1``, if both windows share a port: it is in
    DRAM1."""
    return {"window": window_width(arch), "cache": CACHE_WIDTH, **({"dram1": 1} if arch.shared_dram else {})}


def dram_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a DRAM unit's operations: DRAM to local memory or back."""
    return data.StructLayout({
        **tile(arch, local=arch.local_address_width, dram=arch.dram_address_width), **dram_place(arch),
    })


class SimdKind(enum.Enum, shape=2):
    """The kinds of the SIMD unit's operations.

    INSTRUCTION: one plain SIMD. LOOP: the next ``body_m1`` + 1 operations, all of them INSTRUCTIONs, are its body.
    LOAD_LUT: fill ``table`` from local memory."""

    INSTRUCTION = 0
    LOOP = 1
    LOAD_LUT = 2


def simd_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the SIMD unit's operations; which fields count depends on ``kind``."""
    isa = Isa(arch)
    return data.StructLayout({
        "kind": SimdKind,
        "read": 1, "write": 1, "accumulate": 1, "hold": 1,
        "write_address": unsigned(arch.accumulator_address_width),
        "write_stride_log2": unsigned(stride_log2_width(arch)),
        "read_address": unsigned(arch.accumulator_address_width),
        "read_stride_log2": unsigned(stride_log2_width(arch)),
        "opcode": unsigned(5),
        "left": unsigned(isa.simd_register_width),
        "right": unsigned(isa.simd_register_width),
        "destination": unsigned(isa.simd_register_width),
        "input_shift": shift_width(arch), "output_shift": shift_width(arch),
        "iterations_m1": unsigned(arch.accumulator_address_width),
        "body_m1": unsigned(max(bits_to_count(arch.simd_loop_depth), 1)),
        "table": unsigned(bits_to_count(arch.lut_count + 1)),
        "local_base": unsigned(arch.local_address_width),
        "local_stride_log2": unsigned(stride_log2_width(arch)),
    })
