# SPDX-License-Identifier: Apache-2.0
"""A model of the DSP block of UltraScale chips, which yosys has none of.

It has the mode that our synthesis asks for and no other. It follows the manufacturer's user guide (UG579)."""

from __future__ import annotations

_CONTROLS = "CEA1, CEB1, CEAD, CEALUMODE, CEC, CECARRYIN, CECTRL, CEINMODE"
_RESETS = "RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP"

DSP48E2 = f"""
module DSP48E2(input CLK, CEA2, CEB2, CED, CEM, CEP, {_CONTROLS}, {_RESETS}, CARRYIN, CARRYCASCIN, MULTSIGNIN,
               input [29:0] A, ACIN, input [17:0] B, BCIN, input [47:0] C, PCIN, input [26:0] D, input [3:0] ALUMODE,
               input [2:0] CARRYINSEL, input [4:0] INMODE, input [8:0] OPMODE, output [47:0] P, PCOUT);
  parameter AMULTSEL = "A", PREADDINSEL = "A", AREG = 1, ACASCREG = 1, BREG = 1, BCASCREG = 1, DREG = 1, ADREG = 1;
  parameter MREG = 1, PREG = 1, CREG = 1, INMODEREG = 1, OPMODEREG = 1, ALUMODEREG = 1, CARRYINREG = 1;
  parameter CARRYINSELREG = 1;
  localparam modelled = AMULTSEL == "AD" && PREADDINSEL == "A" && AREG && BREG && DREG && !ADREG && MREG && PREG
    && !INMODEREG && !OPMODEREG && !ALUMODEREG && !CARRYINREG && !CARRYINSELREG;
  wire asked = modelled && INMODE == 5'b00100 && ALUMODE == 0 && CARRYINSEL == 0 && !CARRYIN
    && (OPMODE == 9'b000000101 || OPMODE == 9'b000010101) && !({{{_RESETS}}});
  reg signed [26:0] a = 0, d = 0;
  reg signed [17:0] b = 0;
  reg signed [44:0] product = 0;
  reg signed [47:0] sum = 0;
  wire signed [26:0] word = a + d;
  assign P = asked ? sum : 48'hx, PCOUT = P;
  always @(posedge CLK) begin
    if (CEA2) a <= A[26:0];
    if (CED) d <= D;
    if (CEB2) b <= B;
    if (CEM) product <= word * b;
    if (CEP) sum <= (OPMODE[4] ? PCIN : 48'd0) + {{{{3{{product[44]}}}}, product}};
  end
endmodule
"""
"""A model of (A + D) x B, and the cascade, with registers at A, D, B, of the product and of the sum.

Anything else gives x."""
