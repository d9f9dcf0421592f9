"""A model of the ECP5's DSP block, which yosys has none of, with the registers that our flow asks for and no others.

It follows the manufacturer's usage guide (FPGA-TN-02205).
"""

from __future__ import annotations


def _pins(name: str, bits: int) -> str:
    return ", ".join(f"{name}{bit}" for bit in reversed(range(bits)))


MULTIPLIER = f"""
module MULT18X18D(input {_pins("A", 18)}, {_pins("B", 18)}, CLK0, CE0, CE1, RST0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
                  output {_pins("P", 36)});
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTB_CLK = "NONE", REG_OUTPUT_CLK = "NONE", GSR = "ENABLED";
  parameter REG_INPUTA_CE = "CE0", REG_INPUTB_CE = "CE0", REG_OUTPUT_CE = "CE0";
  reg signed [17:0] a = 0, b = 0;
  reg signed [35:0] p = 0;
  assign {{{_pins("P", 36)}}} = p;
  always @(posedge CLK0) begin
    if (REG_INPUTA_CE == "CE0" ? CE0 : CE1) a <= {{{_pins("A", 18)}}};
    if (REG_INPUTB_CE == "CE0" ? CE0 : CE1) b <= {{{_pins("B", 18)}}};
    if (REG_OUTPUT_CE == "CE0" ? CE0 : CE1) p <= a * b;
  end
endmodule
"""
"""18 x 18 bits, signed, with the registers of inputs and output; nothing resets."""
