# SPDX-License-Identifier: Apache-2.0
"""Models of the two ECP5 blocks that yosys has none of, in the modes that our synthesis asks for and in no other.

They follow the manufacturer's usage guides (memory: FPGA-TN-02204, DSP: FPGA-TN-02205). ``unmodelled`` says whether a
netlist asks for more than they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def _pins(name: str, bits: int) -> str:
    return ", ".join(f"{name}{bit}" for bit in reversed(range(bits)))


MULTIPLIER = f"""
module MULT18X18D(input {_pins("A", 18)}, {_pins("B", 18)}, {_pins("C", 18)}, CLK0, CE0, CE1, RST0,
                  SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, output {_pins("P", 36)});
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTB_CLK = "NONE", REG_OUTPUT_CLK = "NONE", GSR = "ENABLED";
  parameter REG_INPUTA_CE = "CE0", REG_INPUTB_CE = "CE0", REG_OUTPUT_CE = "CE0";
  wire signed [18:0] left = {{SIGNEDA & A17, {_pins("A", 18)}}}, right = {{SIGNEDB & B17, {_pins("B", 18)}}};
  reg signed [18:0] a = 0, b = 0;
  reg signed [35:0] p = 0;
  wire signed [35:0] product = (REG_INPUTA_CLK == "CLK0" ? a : left) * (REG_INPUTB_CLK == "CLK0" ? b : right);
  assign {{{_pins("P", 36)}}} = REG_OUTPUT_CLK == "CLK0" ? p : product;
  always @(posedge CLK0) begin
    if (REG_INPUTA_CE == "CE0" ? CE0 : CE1) a <= left;
    if (REG_INPUTB_CE == "CE0" ? CE0 : CE1) b <= right;
    if (REG_OUTPUT_CE == "CE0" ? CE0 : CE1) p <= product;
  end
endmodule
"""
"""A model of the multiplier: 18 x 18 bits, each signed or not, with registers of inputs and output or without any.

Nothing resets. The third input is that of other modes."""


def _memory_ports(side: str) -> str:
    return (f"input {_pins(f'DI{side}', 18)}, {_pins(f'AD{side}', 14)}, CE{side}, OCE{side}, CLK{side}, WE{side}, "
            f"RST{side}, {_pins(f'CS{side}', 3)}, output {_pins(f'DO{side}', 18)}")


def _memory_port(side: str) -> str:
    """Return the Verilog of one port: it reads the old word where it writes.

    The lowest two address bits enable the bytes of 9 bits."""
    return f"""
  wire [13:0] address_{side} = {{{_pins(f"AD{side}", 14)}}};
  wire [17:0] data_{side} = {{{_pins(f"DI{side}", 18)}}};
  reg [17:0] row_{side} = 0;
  assign {{{_pins(f"DO{side}", 18)}}} = row_{side};
  always @(posedge CLK{side}) if (CE{side}) begin
    row_{side} <= words[address_{side}[13:4]];
    if (WE{side} & address_{side}[0]) words[address_{side}[13:4]][8:0] <= data_{side}[8:0];
    if (WE{side} & address_{side}[1]) words[address_{side}[13:4]][17:9] <= data_{side}[17:9];
  end"""


MEMORY = f"""
module DP16KD({_memory_ports("A")}, {_memory_ports("B")});
  parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18, REGMODE_A = "NOREG", REGMODE_B = "NOREG", RESETMODE = "SYNC";
  parameter ASYNC_RESET_RELEASE = "SYNC", CSDECODE_A = "0b000", CSDECODE_B = "0b000", GSR = "ENABLED";
  parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL", CLKAMUX = "CLKA", CLKBMUX = "CLKB";
  parameter {", ".join(f"INITVAL_{k:02X} = 320'b0" for k in range(64))};
  reg [17:0] words[1023:0];
  integer k;
  initial for (k = 0; k < 1024; k = k + 1) words[k] = 0;
{_memory_port("A")}
{_memory_port("B")}
endmodule
"""
"""A model of the memory: 1024 words of 18 bits, zeros at power-up, two ports without output registers.

A word that one port writes while the other reads it comes out old; the silicon promises nothing there."""

MODELS = MULTIPLIER + MEMORY

_MODES: dict[str, dict[str, tuple[str, ...]]] = {
    "MULT18X18D": dict.fromkeys(("REG_INPUTA_CLK", "REG_INPUTB_CLK", "REG_OUTPUT_CLK"), ("CLK0", "NONE")),
    "DP16KD": {"DATA_WIDTH_A": (f"{18:032b}",), "DATA_WIDTH_B": (f"{18:032b}",), "REGMODE_A": ("NOREG",),
               "REGMODE_B": ("NOREG",), "CLKAMUX": ("CLKA",), "CLKBMUX": ("CLKB",), "CSDECODE_A": ("0b000",),
               "CSDECODE_B": ("0b000",), "WRITEMODE_A": ("READBEFOREWRITE",), "WRITEMODE_B": ("READBEFOREWRITE",),
               **{f"INITVAL_{k:02X}": ("0" * 320,) for k in range(64)}},
}
"""Cell -> parameter -> what the model takes for granted, as yosys's JSON writes it, or "NONE" if it writes none."""
_TIED: dict[str, dict[str, str]] = {
    "MULT18X18D": {"RST0": "0", "SOURCEA": "0", "SOURCEB": "0"},
    "DP16KD": {f"{pin}{side}{bit}": value for side in "AB" for pin, bit, value in
               (("RST", "", "0"), ("OCE", "", "1"), ("CS", "0", "0"), ("CS", "1", "0"), ("CS", "2", "0"))},
}


def unmodelled(netlist: dict[str, Any]) -> list[str]:
    """Return what the cells of a netlist (yosys's JSON) ask for and the models do not have."""
    return [complaint for name, cell in _blocks(netlist) for complaint in _complaints(name, cell)]


def _blocks(netlist: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for module in netlist["modules"].values():
        for name, cell in module["cells"].items():
            if cell["type"] in _MODES:
                yield name, cell


def _complaints(name: str, cell: dict[str, Any]) -> Iterator[str]:
    for key, allowed in _MODES[cell["type"]].items():
        found = cell["parameters"].get(key, "NONE")
        if found not in allowed:
            yield f"{name}: {key} = {found}, not {' or '.join(allowed)}"
    for pin, value in _TIED[cell["type"]].items():
        if cell["connections"].get(pin, ["0"]) != [value]:
            yield f"{name}: {pin} is not tied to {value}"
