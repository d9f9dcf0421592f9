# SPDX-License-Identifier: Apache-2.0
"""Put the local memory into UltraRAM, if the chip has it, by marks in the machine's Verilog for Vivado."""

from __future__ import annotations

import re

_BANK = re.compile(r"^( *reg \[\d+:0\] bank\d+ \[\d+:0\];\n) *initial begin\n.*\n *end\n", re.MULTILINE)
"""The pattern of a bank of local memory, the only memories of these names, with its zeros at power-up."""


def in_ultra_ram(verilog: str, banks: int) -> str:
    """Return the Verilog of a machine with ``banks`` banks of local memory in UltraRAM; all cores are one module.

    UltraRAM takes no initial contents, and is zero at power-up by itself."""
    marked, found = _BANK.subn(r'  (* ram_style = "ultra" *)\n\1', verilog)
    assert found == banks, f"{found} banks of local memory in the Verilog of a machine with {banks}"
    return marked
