"""The tables of docs/ that say what a machine is: its parameters, instructions, registers, units and latencies."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tables import table

from weft.hw.contract import timing
from weft.hw.contract.arch import LIMITS, POWERS_OF_TWO, Arch, presets
from weft.hw.contract.errors import WeftError, explain
from weft.hw.contract.instructions import OPERATIONS, DataFlow, Kind, Opcode, SimdOpcode, simd_argument_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import UNITS
from weft.hw.flow.reports import summary

EXAMPLE = "pynq"
"""The machine whose widths the tables show."""

MEANINGS = {
    "data_type": "type of every scalar in local memory and DRAM: `FP<width>BP<point>`, width 4..32, or `INT8`",
    "array_size": "lanes: rows and columns of the array, scalars in a vector",
    "dram0_depth": "window of DRAM0: tensors between layers",
    "dram1_depth": "window of DRAM1: constants, and odd channel tiles of tensors",
    "local_depth": "local memory",
    "accumulator_depth": "accumulators",
    "simd_registers_depth": "registers of the SIMD unit, for each lane",
    "stride0_depth": "strides of operand 0: 1, 2, 4, ... so many of them",
    "stride1_depth": "strides of operand 1",
    "number_of_threads": "instruction streams; only one exists",
    "thread_queue_depth": "instructions that the fetch queue holds",
    "mac_rounding": "`once`: exact sums, rounded as they leave the accumulators; `every_step`: as the original machine",
    "accumulator_width": "bits of an accumulator; default twice the data type's, with `every_step` the data type's, "
                         "with `INT8` 32",
    "lut_count": "value tables of the SIMD unit; 0 leaves Lookup out",
    "lut_depth": "entries of each value table",
    "simd_loop_depth": "longest body of a SIMDLoop; 0 leaves the loop out",
    "local_banks": "interleaved banks of local memory",
    "accumulator_banks": "interleaved banks of the accumulators",
    "axi_data_width": "bits of each DRAM port",
    "axi_max_burst": "longest burst, in beats",
    "axi_address_width": "bits of a byte address",
    "stream_width": "bits of the instruction stream",
    "sample_block_size": "performance samples between two `TLAST`",
    "register_slices": "1 cuts the handshakes between blocks: a faster clock for some cycles of latency",
    "dram_ports": "`separate`: an AXI port for each DRAM window; `shared`: one for both, for less logic",
    "deep_queues": "1 lets each unit have 4 operations outstanding, not 2 (MatMul and SIMD 8, not 4)",
    "sampler": "0 leaves performance samples out: `m_axis_sample` stays silent",
    "dsp_packing": "`none`, or the DSP block of a Xilinx chip that makes two products of `INT8`: `DSP48E1` (7 series), "
                   "`DSP48E2` (UltraScale)",
    "decoder_multipliers": "0 makes the decoder's two products, rows x pitch, of look-up tables: two DSP blocks less",
    "leave_tables": "tables of 256 bytes for DataMoves out of the accumulators, with `INT8`; 0 leaves them out",
    "weight_rows": "2 lets LoadWeight take two rows a cycle where they replace the whole column",
}
"""What each architecture key says."""


@cache
def example() -> dict[str, Any]:
    """All numbers of the example machine."""
    return summary(Arch.load(EXAMPLE))


def parameters() -> str:
    fields = {field.name: field for field in dataclasses.fields(Arch)}
    if set(fields) != set(MEANINGS):
        wrong = ", ".join(sorted(set(fields) ^ set(MEANINGS)))
        raise WeftError(explain("MEANINGS of scripts/contract_tables.py", wrong,
                                "one line for each key of Arch", "say what the key means there"))
    return table(("key", "default", "allowed", "meaning"),
                 [(f"`{name}`", default_of(field), allowed_of(name), MEANINGS[name]) for name, field in fields.items()])


def default_of(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "none: must be given"
    return "see right" if field.default is None else f"`{field.default}`"


def allowed_of(name: str) -> str:
    if name not in LIMITS:
        return "see right"
    low, high = LIMITS[name]
    return f"{low}..{high}" + (", a power of two" if name in POWERS_OF_TWO else "")


def preset_table() -> str:
    machines = {name: Arch.load(path) for name, path in presets().items()}
    keys = [field.name for field in dataclasses.fields(Arch)
            if len({getattr(arch, field.name) for arch in machines.values()}) > 1]
    rows = [[f"`{key}`", *(getattr(arch, key) for arch in machines.values())] for key in keys]
    rows.append(["bytes of an instruction", *(Isa(arch).instruction_bytes for arch in machines.values())])
    return table(("", *(f"`{name}`" for name in machines)), rows)


def layout() -> str:
    isa = Isa(Arch.load(EXAMPLE))
    rows = [(name, f"{place['offset'] + place['width'] - 1}:{place['offset']}")
            for name, place in example()["instruction"]["fields"].items()]
    holds = {f"operand{number}": f"address {isa.address_widths[number]} bits, log2(stride) above it"
             for number in (0, 1)} | {"operand2": f"size - 1, or the SIMD sub-instruction ({isa.sub_width} bits)"}
    return table(("field", "bits", "holds"), [(name, bits, holds.get(name, "")) for name, bits in reversed(rows)])


def operations() -> str:
    rows = []
    for opcode in Opcode:
        operation, operands = OPERATIONS[opcode], ["", "", ""]
        for field in operation.fields:
            operands[field.operand] = field.name.replace("_", " ") + (" - 1" if field.kind is Kind.SIZE else "")
        flags = ", ".join(f"{bit} {name.replace('_', ' ')}" for bit, name in enumerate(operation.flags))
        rows.append((int(opcode), operation.name, "the flow" if opcode is Opcode.DATA_MOVE else flags, *operands))
    return table(("op", "name", "flags by bit", "operand 0", "operand 1", "operand 2"), rows)


def flows() -> str:
    return table(("flags", "flow"), [(int(flow), flow.name.lower().replace("_", " ")) for flow in DataFlow])


def simd() -> str:
    sources = {0: "none", 1: "left", 2: "left, right"}
    return table(("op", "name", "sources"), [(int(op), op.name, sources[simd_argument_count(op)]) for op in SimdOpcode])


def configure() -> str:
    return table(("register", "name", "bits", "reset", "meaning"), [
        (f"0x{spec['number']:02X}", f"`{name}`", spec["width"], f"0x{spec['reset']:X}", spec["meaning"])
        for name, spec in example()["configure_registers"].items()])


def control() -> str:
    return table(("offset", "name", "access", "meaning"), [
        (f"0x{spec['offset']:03X}", f"`{name}`", spec["access"], spec["meaning"])
        for name, spec in example()["control_registers"].items()])


def causes() -> str:
    return table(("cause", "name", "meaning"), [(spec["number"], f"`{name}`", spec["meaning"])
                                                for name, spec in example()["causes"].items()])


def units() -> str:
    def ranges(unit: str, writes: bool) -> str:
        return ", ".join(access.memory.value for access in UNITS[unit].accesses if access.writes is writes)

    return table(("unit", "reads", "writes"), [(f"`{name}`", ranges(name, False), ranges(name, True))
                                               for name in UNITS])


def cycles() -> str:
    """Every constant of timing.py with the text below it."""
    assert timing.__file__ is not None
    body, rows = ast.parse(Path(timing.__file__).read_text()).body, []
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value, text = getattr(timing, name), ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(str(below.value.value).split())
            if isinstance(value, int):
                rows.append((f"`{name}`", value, text))
    return table(("name", "value", "meaning"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "parameters": parameters, "presets": preset_table, "layout": layout, "operations": operations, "flows": flows,
    "simd": simd, "configure": configure, "control": control, "causes": causes, "units": units, "cycles": cycles,
}
