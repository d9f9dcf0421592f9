# SPDX-License-Identifier: Apache-2.0
"""Synthesis for Xilinx beyond yosys: the DSP blocks that make two products."""

from __future__ import annotations

import re

from weft.hw.array.paired_multiplier import SUM_WIDTH
from weft.hw.contract.packing import PAIR, Packing
from weft.support.errors import WeftError, explain

_MODULE = re.compile(r"^module \\(\S+\.paired_multiplier(?:_\d+)?)$(.*?)^end$", re.MULTILINE | re.DOTALL)
"""The modules of ``hw.array.paired_multiplier`` in RTLIL: name and contents."""
_PORT = re.compile(r"^ +wire width (\d+) (input|output) \d+ +(?:signed )?\\(\S+)$", re.MULTILINE)
_NEEDED = ("clk", "activation", "weights", "take")
_OUTPUTS = {"PCOUT": "cascade", "P": "total"}

_A_WIDTH, _B_WIDTH = 30, 18
_D_WIDTHS = {"DSP48E1": 25, "DSP48E2": 27}
_D_IS_ADDED = {"DSP48E1": '.USE_DPORT("TRUE")', "DSP48E2": '.AMULTSEL("AD"), .PREADDINSEL("A")'}
_MODE_WIDTHS = {"DSP48E1": 7, "DSP48E2": 9}
_PRODUCT, _PRODUCT_AND_CASCADE = 0b0000101, 0b0010101
"""OPMODE of the first block of a cascade, and of the others."""
_REGISTERS = ", ".join(f".{name}REG({number})" for number, names in (
    (1, ("A", "ACASC", "B", "BCASC", "D", "M", "P")),
    (0, ("AD", "C", "INMODE", "OPMODE", "ALUMODE", "CARRYIN", "CARRYINSEL"))) for name in names)
_CONSTANTS = ", ".join(f".{pin}({width}'d{value})" for pins, width, value in (
    ("CEB2 CEM CEP", 1, 1), ("CEA1 CEB1 CEAD CEALUMODE CEC CECARRYIN CECTRL CEINMODE", 1, 0),
    ("RSTA RSTALLCARRYIN RSTALUMODE RSTB RSTC RSTCTRL RSTD RSTINMODE RSTM RSTP", 1, 0),
    ("CARRYIN CARRYCASCIN MULTSIGNIN", 1, 0), ("ALUMODE", 4, 0), ("CARRYINSEL", 3, 0), ("INMODE", 5, 0b00100),
    ("ACIN", _A_WIDTH, 0), ("BCIN", _B_WIDTH, 0), ("C", SUM_WIDTH, 0)) for pin in pins.split())


def paired_multipliers(rtlil: str, packing: Packing | None) -> str:
    """Return Verilog that makes each pair of multipliers one DSP block with its registers, and their sums a cascade.

    It is empty without ``packing``. The block's own adder makes the word of two weights. Raise WeftError if a pin of
    a block would have no driver."""
    if packing is None:
        return ""
    return "".join(_paired_multiplier(number, name, contents, packing)
                   for number, (name, contents) in enumerate(_MODULE.findall(rtlil)))


def _paired_multiplier(number: int, name: str, contents: str, packing: Packing) -> str:
    """Return the Verilog of one pair of multipliers."""
    ports = {port: (way, int(width)) for width, way, port in _PORT.findall(contents)}
    if missing := [port for port in _NEEDED if port not in ports]:
        raise WeftError(explain(f"{name}, to be a DSP block", f"no input {', '.join(missing)}", ", ".join(_NEEDED),
                                "give it signals, not constants"))
    block, half = packing.block, ports["weights"][1] // PAIR
    activation = ports["activation"][1]
    high = _signed("weights", half, PAIR * half, _A_WIDTH - packing.distance)
    header = ", ".join(f"{way} [{width - 1}:0] {port}" for port, (way, width) in ports.items())
    mode = _PRODUCT_AND_CASCADE if "sum_i" in ports else _PRODUCT
    outputs = ", ".join(f".{pin}({port if port in ports else 'unused'})" for pin, port in _OUTPUTS.items())
    return f"""
(* techmap_celltype = "{name}" *)
module paired_multiplier_{number}({header});
  wire [{SUM_WIDTH - 1}:0] unused;  // yosys asks what is joined to either output
  {block} #({_D_IS_ADDED[block]}, {_REGISTERS})
    block(.CLK(clk), .A({{{high}, {packing.distance}'d0}}),
          .D({_signed("weights", 0, half, _D_WIDTHS[block])}), .CEA2(take), .CED(take),
          .B({_signed("activation", 0, activation, _B_WIDTH)}),
          .PCIN({"sum_i" if "sum_i" in ports else f"{SUM_WIDTH}'d0"}), .OPMODE({_MODE_WIDTHS[block]}'d{mode}),
          {_CONSTANTS}, {outputs});
endmodule
"""


def _signed(port: str, start: int, stop: int, width: int) -> str:
    """Return bits of a port, a signed number, extended to ``width`` bits, as Verilog."""
    return f"{{{{{width - (stop - start)}{{{port}[{stop - 1}]}}}}, {port}[{stop - 1}:{start}]}}"
