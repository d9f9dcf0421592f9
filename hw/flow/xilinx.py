# SPDX-License-Identifier: Apache-2.0
"""Synthesis for Xilinx beyond yosys: the DSP blocks that make two products, and those that choose a factor."""

from __future__ import annotations

import re
from collections.abc import Iterable

from weft.hw.array.paired_multiplier import SUM_WIDTH
from weft.hw.contract.packing import PAIR, Packing
from weft.support.errors import WeftError, explain

_PAIRED, _TAP = (re.compile(rf"^module \\(\S+\.{name}(?:_\d+)?)$(.*?)^end$", re.MULTILINE | re.DOTALL)
                 for name in ("paired_multiplier", "tap_multiplier"))
"""The modules of ``hw.array.paired_multiplier``, and of multipliers with a tap, in RTLIL: name and contents."""
_PORT = re.compile(r"^ +wire width (\d+) (input|output) \d+ +(?:signed )?\\(\S+)$", re.MULTILINE)
_NEEDED = {_PAIRED: ("clk", "activation", "weights", "take"),
           _TAP: ("clk", "activation", "tap", "tap_counts", "take_tap", "right", "take_right")}
_OUTPUTS = {"PCOUT": "cascade", "P": "total"}

_A_WIDTH, _B_WIDTH = 30, 18
_D_WIDTHS = {"DSP48E1": 25, "DSP48E2": 27}
_D_IS_ADDED = {"DSP48E1": '.USE_DPORT("TRUE")', "DSP48E2": '.AMULTSEL("AD"), .PREADDINSEL("A")'}
_MODE_WIDTHS = {"DSP48E1": 7, "DSP48E2": 9}
_PRODUCT, _PRODUCT_AND_CASCADE = 0b0000101, 0b0010101
"""OPMODE of the first block of a cascade, and of the others."""
_REGISTERS = {name: number for number, names in (
    (1, ("A", "ACASC", "B", "BCASC", "D", "M", "P")),
    (0, ("AD", "C", "INMODE", "OPMODE", "ALUMODE", "CARRYIN", "CARRYINSEL"))) for name in names}
_CONSTANTS = {pin: f"{width}'d{value}" for pins, width, value in (
    ("CEB2 CEM CEP", 1, 1), ("CEA1 CEB1 CEAD CEALUMODE CEC CECARRYIN CECTRL CEINMODE", 1, 0),
    ("RSTA RSTALLCARRYIN RSTALUMODE RSTB RSTC RSTCTRL RSTD RSTINMODE RSTM RSTP", 1, 0),
    ("CARRYIN CARRYCASCIN MULTSIGNIN", 1, 0), ("ALUMODE", 4, 0), ("CARRYINSEL", 3, 0), ("INMODE", 5, 0b00100),
    ("ACIN", _A_WIDTH, 0), ("BCIN", _B_WIDTH, 0), ("C", SUM_WIDTH, 0)) for pin in pins.split()}


def paired_multipliers(rtlil: str, packing: Packing | None) -> str:
    """Return Verilog that makes each pair of multipliers one DSP block with its registers, and their sums a cascade.

    It is empty without ``packing``. The block's own adder makes the word of two weights. Raise WeftError if a pin of
    a block would have no driver."""
    if packing is None:
        return ""
    return "".join(_paired_multiplier(number, name, _ports(_PAIRED, name, contents), packing)
                   for number, (name, contents) in enumerate(_PAIRED.findall(rtlil)))


def tap_multipliers(rtlil: str) -> str:
    """Return Verilog that makes each multiplier with a tap one DSP block, whose own adder chooses a factor.

    Of activation and tap the adder gets zero in place of the one that is not taken. yosys finds the sum behind a
    product, as behind those of other multipliers. A multiplier too wide for a block is left to yosys. Raise WeftError
    if a pin of a block would have no driver."""
    return "".join(_tap_multiplier(number, name, _ports(_TAP, name, contents))
                   for number, (name, contents) in enumerate(_TAP.findall(rtlil)))


def _ports(kind: re.Pattern[str], name: str, contents: str) -> dict[str, tuple[str, int]]:
    """Return port -> direction and width of a module that a block replaces.

    Raise WeftError if it lacks an input."""
    ports = {port: (way, int(width)) for width, way, port in _PORT.findall(contents)}
    if missing := [port for port in _NEEDED[kind] if port not in ports]:
        raise WeftError(explain(f"{name}, to be a DSP block", f"no input {', '.join(missing)}",
                                ", ".join(_NEEDED[kind]), "give it signals, not constants"))
    return ports


def _header(ports: dict[str, tuple[str, int]]) -> str:
    """Return the ports of a module as Verilog."""
    return ", ".join(f"{way} [{width - 1}:0] {port}" for port, (way, width) in ports.items())


def _rest(registers: dict[str, int], pins: Iterable[str] = ()) -> tuple[str, str]:
    """Return the parameters and the pins of a block that all blocks have alike, as Verilog.

    ``registers`` go before the usual ones; constant ``pins`` are left out."""
    return (", ".join(f".{name}REG({number})" for name, number in (_REGISTERS | registers).items()),
            ", ".join(f".{pin}({value})" for pin, value in _CONSTANTS.items() if pin not in pins))


def _tap_multiplier(number: int, name: str, ports: dict[str, tuple[str, int]]) -> str:
    """Return the Verilog of one multiplier with a tap."""
    block, (left, right, product) = "DSP48E1", (ports[port][1] for port in ("tap", "right", "product"))
    if left > _D_WIDTHS[block] or right > _B_WIDTH:
        return ""
    # The register lies behind the adder. yosys takes one in front of it for none, and moves another one into the block.
    registers, constants = _rest({"A": 0, "ACASC": 0, "D": 0, "AD": 1, "P": 0}, ("CEAD", "CEB2", "INMODE"))
    return f"""
(* techmap_celltype = "{name}" *)
module tap_multiplier_{number}({_header(ports)});
  wire [{SUM_WIDTH - 1}:0] sum;
  assign product = sum[{product - 1}:0];
  {block} #({_D_IS_ADDED[block]}, {registers})
    block(.CLK(clk), .A({_signed("activation", 0, left, _A_WIDTH)}), .D({_signed("tap", 0, left, _D_WIDTHS[block])}),
          .CEA2(1'b0), .CED(1'b0), .CEAD(1'b1), .B({_signed("right", 0, right, _B_WIDTH)}), .CEB2(take_right),
          .INMODE({{2'b00, tap_counts, take_tap, 1'b0}}), .PCIN({SUM_WIDTH}'d0),
          .OPMODE({_MODE_WIDTHS[block]}'d{_PRODUCT}), {constants}, .P(sum));
endmodule
"""


def _paired_multiplier(number: int, name: str, ports: dict[str, tuple[str, int]], packing: Packing) -> str:
    """Return the Verilog of one pair of multipliers."""
    block, half = packing.block, ports["weights"][1] // PAIR
    activation = ports["activation"][1]
    high = _signed("weights", half, PAIR * half, _A_WIDTH - packing.distance)
    registers, constants = _rest({})
    mode = _PRODUCT_AND_CASCADE if "sum_i" in ports else _PRODUCT
    outputs = ", ".join(f".{pin}({port if port in ports else 'unused'})" for pin, port in _OUTPUTS.items())
    return f"""
(* techmap_celltype = "{name}" *)
module paired_multiplier_{number}({_header(ports)});
  wire [{SUM_WIDTH - 1}:0] unused;  // yosys asks what is joined to either output
  {block} #({_D_IS_ADDED[block]}, {registers})
    block(.CLK(clk), .A({{{high}, {packing.distance}'d0}}),
          .D({_signed("weights", 0, half, _D_WIDTHS[block])}), .CEA2(take), .CED(take),
          .B({_signed("activation", 0, activation, _B_WIDTH)}),
          .PCIN({"sum_i" if "sum_i" in ports else f"{SUM_WIDTH}'d0"}), .OPMODE({_MODE_WIDTHS[block]}'d{mode}),
          {constants}, {outputs});
endmodule
"""


def _signed(port: str, start: int, stop: int, width: int) -> str:
    """Return bits of a port, a signed number, extended to ``width`` bits, as Verilog."""
    return f"{{{{{width - (stop - start)}{{{port}[{stop - 1}]}}}}, {port}[{stop - 1}:{start}]}}"
