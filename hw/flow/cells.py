# SPDX-License-Identifier: Apache-2.0
"""The counts that cells of a mapped netlist add to: look-up tables, flip-flops, multipliers, block RAMs."""

from __future__ import annotations

import re
from collections import Counter

_LUTRAM_LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M16": 8,
                "SRL16E": 1, "SRLC32E": 1, "TRELLIS_DPR16X4": 4, "DPR16X4": 4,
                "RAM16SDP1": 1, "RAM16SDP2": 2, "RAM16SDP4": 4}
"""Memory cell -> look-up tables it takes.

A 16 x 4 memory of ECP5 or Nexus takes two for data and two for addressing."""
_XC7_LUT = re.compile(r"LUT[1-6]|INV")
_XC7_FF = re.compile(r"FD[RSCP]E")
_GOWIN_LUT, _GOWIN_FF = re.compile("LUT[1-4]|INV|ALU"), re.compile("DFF[RSCP]?E?")
"""A carry cell of Gowin takes a look-up table; the cells that join tables to wider ones take none."""
_NEXUS_FF, _NEXUS_DSP = re.compile("FD1P3[BDIJ]X"), re.compile(r"MULT(ADDSUB)?\d+X\d+(WIDE)?")


def count_cells(cells: dict[str, int], family: str) -> Counter[str]:
    """Return column -> count, from cell type -> number, for a netlist of a family."""
    counts: Counter[str] = Counter()
    for cell, number in cells.items():
        if cell in _LUTRAM_LUTS:
            counts["lutram"] += number * _LUTRAM_LUTS[cell]
            counts["lut"] += number * _LUTRAM_LUTS[cell]
        elif family == "xc7":
            counts["lut"] += number * bool(_XC7_LUT.fullmatch(cell))
            counts["ff"] += number * bool(_XC7_FF.match(cell))
            counts["dsp"] += number * (cell in ("DSP48E1", "DSP48E2"))
            counts["bram36"] += number * (cell == "RAMB36E1")
            counts["bram18"] += number * (cell == "RAMB18E1")
        elif family == "gowin":
            counts["lut"] += number * bool(_GOWIN_LUT.fullmatch(cell))
            counts["ff"] += number * bool(_GOWIN_FF.fullmatch(cell))
            counts["dsp"] += number * (cell in ("MULT18X18", "MULT9X9"))
            counts["bram18"] += number * (cell in ("SP", "SPX9", "SDPB", "SDPX9B", "DPB", "DPX9B"))
        elif family == "nexus":  # two tables for a carry cell, as on an ECP5
            counts["lut"] += number * {"LUT4": 1, "INV": 1, "CCU2": 2}.get(cell, 0)
            counts["ff"] += number * bool(_NEXUS_FF.fullmatch(cell))
            counts["dsp"] += number * bool(_NEXUS_DSP.fullmatch(cell))
            counts["bram18"] += number * (cell in ("DP16K", "PDP16K", "PDPSC16K"))
        else:  # a carry cell of an ECP5 takes the two look-up tables beside it
            counts["lut"] += number * {"LUT4": 1, "CCU2C": 2}.get(cell, 0)
            counts["ff"] += number * (cell == "TRELLIS_FF")
            counts["dsp"] += number * (cell == "MULT18X18D")
            counts["bram18"] += number * (cell in ("DP16KD", "PDPW16KD"))
    return counts
