"""The local memory in UltraRAM, where the chip has it: Vivado is told so in the machine's Verilog."""

from __future__ import annotations

import re

_BANK = re.compile(r"^( *reg \[\d+:0\] bank\d+ \[\d+:0\];\n) *initial begin\n.*\n *end\n", re.MULTILINE)
"""A bank of local memory, the only memories of these names, and its zeros at power-up."""


def in_ultra_ram(verilog: str, banks: int) -> str:
    """The same Verilog of a machine with so many banks of local memory; all cores are one module. UltraRAM takes no
    initial contents, and is zero at power-up by itself."""
    marked, found = _BANK.subn(r'  (* ram_style = "ultra" *)\n\1', verilog)
    assert found == banks, f"{found} banks of local memory in the Verilog of a machine with {banks}"
    return marked
