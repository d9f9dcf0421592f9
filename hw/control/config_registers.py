# SPDX-License-Identifier: Apache-2.0
"""The registers that Configure instructions set: those of the original, and those that Weft adds."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register


class ConfigRegisters(wiring.Component):
    """The Configure registers. ``write`` sets register ``number`` to ``value`` at the end of the cycle.

    The value must be legal. Each register is an output under its lower-case name. The decoder keeps the program
    counter, so it is not here."""

    def __init__(self, arch: Arch, number_width: int, value_width: int) -> None:
        self.specs = {register: spec for register, spec in register_table(arch).items()
                      if register is not Register.PROGRAM_COUNTER}
        super().__init__({
            "write": In(1), "number": In(number_width), "value": In(value_width),
            **{register.name.lower(): Out(spec.width, init=spec.reset) for register, spec in self.specs.items()},
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a register behind each output."""
        m = Module()
        for register in self.specs:
            output: Signal = getattr(self, register.name.lower())
            with m.If(self.write & (self.number == register)):
                m.d.sync += output.eq(self.value)
        return m
