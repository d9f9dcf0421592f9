# SPDX-License-Identifier: Apache-2.0
"""A machine that wakes up with random registers and memories, as a chip without initial values does.

An FPGA gives every register its initial value and clears block RAM, and so does a simulator. A program that sees one
of these before it wrote it would run there alone, and golden would never tell."""

from __future__ import annotations

import re

from weft.hw.contract.arch import Arch
from weft.simulate import toolchain
from weft.simulate.job import build_machine
from weft.simulate.rtl import cached_verilog
from weft.simulate.simulation import Simulation

INITIAL = re.compile(r"^(\s*reg\s[^=;]*?)\s*=\s*[^;]*;", re.MULTILINE)
ZEROS = re.compile(r"^\s*begin : zero_words_\w+ integer i; for [^;]*;[^;]*;[^)]*\) \w+\[i\] = [^;]*; end$",
                   re.MULTILINE)


def without_initial_values(verilog: str) -> str:
    """Return Verilog whose registers and memories have no initial values. Contents other than zeros stay: tables."""
    return ZEROS.sub("", INITIAL.sub(r"\1 ;", verilog))


def build_at_random(arch: Arch) -> Simulation:
    """Return the simulation of a machine whose state before reset is random, decided by the run's seed."""
    toolchain.setup()
    return build_machine(without_initial_values(cached_verilog(arch)), axi_data_width=arch.axi_data_width,
                         axi_address_width=arch.axi_address_width, stream_width=arch.stream_width,
                         shared_dram=arch.shared_dram, cores=arch.cores, memory_ports=arch.memory_ports,
                         random_start=True)
