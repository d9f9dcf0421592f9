# SPDX-License-Identifier: Apache-2.0
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
from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.instructions import OPERATIONS, DataFlow, Kind, Opcode, SimdOpcode, simd_argument_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.keys import Key
from weft.hw.contract.presets import presets
from weft.hw.contract.units import UNITS
from weft.hw.flow.reports import summary

EXAMPLE = "pynq"
"""The machine whose widths the tables show."""

@cache
def example() -> dict[str, Any]:
    """Return all numbers of the example machine."""
    return summary(Arch.load(EXAMPLE))


def parameters() -> str:
    """Return the table of architecture keys."""
    return table(("key", "default", "allowed", "what depends on it", "meaning"),
                 [(f"`{row.name}`", default_of(row), allowed_of(row), row.affects.name.lower(), row.meaning)
                  for row in KEYS.values()])


def default_of(row: Key) -> str:
    """Return a key's default as text."""
    if row.default is dataclasses.MISSING:
        return "none: must be given"
    return "see right" if row.default is None else f"`{row.default}`"


def allowed_of(row: Key) -> str:
    """Return a key's allowed values as text."""
    if row.low is None:
        return "see right"
    return f"{row.low}..{row.high}" + (", a power of two" if row.power_of_two else "")


def preset_table() -> str:
    """Return the table of presets."""
    machines = {name: Arch.load(path) for name, path in presets().items()}
    keys = [name for name in KEYS if len({getattr(arch, name) for arch in machines.values()}) > 1]
    rows = [[f"`{key}`", *(getattr(arch, key) for arch in machines.values())] for key in keys]
    rows.append(["bytes of an instruction", *(Isa(arch).instruction_bytes for arch in machines.values())])
    return table(("", *(f"`{name}`" for name in machines)), rows)


def layout() -> str:
    """Return the table of an instruction's layout."""
    isa = Isa(Arch.load(EXAMPLE))
    rows = [(name, f"{place['offset'] + place['width'] - 1}:{place['offset']}")
            for name, place in example()["instruction"]["fields"].items()]
    holds = {f"operand{number}": f"address {isa.address_widths[number]} bits, log2(stride) above it"
             for number in (0, 1)} | {"operand2": f"size - 1, or the SIMD sub-instruction ({isa.sub_width} bits)"}
    return table(("field", "bits", "holds"), [(name, bits, holds.get(name, "")) for name, bits in reversed(rows)])


def operations() -> str:
    """Return the table of operations."""
    rows = []
    for opcode in Opcode:
        operation, operands = OPERATIONS[opcode], ["", "", ""]
        for field in operation.fields:
            operands[field.operand] = field.name.replace("_", " ") + (" - 1" if field.kind is Kind.SIZE else "")
        flags = ", ".join(f"{bit} {name.replace('_', ' ')}" for bit, name in enumerate(operation.flags))
        rows.append((int(opcode), operation.name, "the flow" if opcode is Opcode.DATA_MOVE else flags, *operands))
    return table(("op", "name", "flags by bit", "operand 0", "operand 1", "operand 2"), rows)


def flows() -> str:
    """Return the table of DataMove's flows."""
    return table(("flags", "flow"), [(int(flow), flow.name.lower().replace("_", " ")) for flow in DataFlow])


def simd() -> str:
    """Return the table of SIMD operations."""
    sources = {0: "none", 1: "left", 2: "left, right"}
    return table(("op", "name", "sources"), [(int(op), op.name, sources[simd_argument_count(op)]) for op in SimdOpcode])


def configure() -> str:
    """Return the table of Configure registers."""
    return table(("register", "name", "bits", "reset", "meaning"), [
        (f"0x{spec['number']:02X}", f"`{name}`", spec["width"], f"0x{spec['reset']:X}", spec["meaning"])
        for name, spec in example()["configure_registers"].items()])


def control() -> str:
    """Return the table of control registers."""
    return table(("offset", "name", "access", "meaning"), [
        (f"0x{spec['offset']:03X}", f"`{name}`", spec["access"], spec["meaning"])
        for name, spec in example()["control_registers"].items()])


def causes() -> str:
    """Return the table of causes of an error."""
    return table(("cause", "name", "meaning"), [(spec["number"], f"`{name}`", spec["meaning"])
                                                for name, spec in example()["causes"].items()])


def units() -> str:
    """Return the table of units."""
    def ranges(unit: str, writes: bool) -> str:
        return ", ".join(access.memory.value for access in UNITS[unit].accesses if access.writes is writes)

    return table(("unit", "reads", "writes"), [(f"`{name}`", ranges(name, False), ranges(name, True))
                                               for name in UNITS])


def cycles() -> str:
    """Return the table of timing.py: every constant with the text below it."""
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
