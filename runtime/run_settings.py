# SPDX-License-Identifier: Apache-2.0
"""What a host sets of a machine before a program runs, and what changes none of its results."""

from __future__ import annotations

from dataclasses import dataclass

from weft.hw.contract.arch import Arch
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register
from weft.support.errors import WeftError, explain

NO_TRACEPOINT = 0xFFFF_FFFF
TIMEOUT_CYCLES = 100
"""The cycles of a machine after reset."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Registers that each program finds; the defaults are those after reset.

    ``timeout_cycles``: cycles without progress after which the time-out flag is set, 0 for never. ``tracepoint``: the
    instruction of the program that sets the tracepoint flag when it is the next one. ``dram0_cache``, ``dram1_cache``:
    AxCACHE of the two windows. ``sample_cycles``: cycles between two performance samples, 0 for none."""

    timeout_cycles: int = TIMEOUT_CYCLES
    tracepoint: int = NO_TRACEPOINT
    dram0_cache: int = 0
    dram1_cache: int = 0
    sample_cycles: int = 0

    def registers(self, arch: Arch) -> dict[Register, int]:
        """Return the registers that differ from those after reset.

        Raise WeftError for a value that a register does not hold, and for samples of a machine that gives none."""
        wanted = {Register.TIMEOUT: self.timeout_cycles, Register.TRACEPOINT: self.tracepoint,
                  Register.DRAM0_CACHE: self.dram0_cache, Register.DRAM1_CACHE: self.dram1_cache,
                  Register.SAMPLE_INTERVAL: self.sample_cycles}
        table = register_table(arch)
        for register, value in wanted.items():
            if not 0 <= value <= table[register].maximum:
                raise WeftError(explain(register.name, value, f"0 to {table[register].maximum}", "correct it"))
        if self.sample_cycles and not arch.sampler:
            raise WeftError(explain("samples", "a machine with sampler 0", "one with a sampler",
                                    "leave sample_cycles out, or build the machine with sampler 1"))
        return {register: value for register, value in wanted.items() if value != table[register].reset}

    @property
    def watched(self) -> bool:
        """Whether somebody wants to know of the flags."""
        return self != RunSettings(sample_cycles=self.sample_cycles, dram0_cache=self.dram0_cache,
                                   dram1_cache=self.dram1_cache)
