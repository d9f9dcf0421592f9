# SPDX-License-Identifier: Apache-2.0
"""The registers of a system of several cores (``SYSTEM_REGISTERS`` of csr.py)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.bus.register_page import answer_reads, take_writes
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import ADDRESS_WIDTH, SYSTEM_REGISTERS


class SystemRegisters(wiring.Component):
    """The system's page of registers; bit k of every other port belongs to core k.

    ``axil``: reads and writes, as a core's CsrSlave takes them. ``start``, ``soft_reset``: pulses in the cycle after
    the write was complete. ``done``, ``error``, ``idle``: what the cores' STATUS says."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "axil": In(axi.Axi4Lite(ADDRESS_WIDTH)), "start": Out(arch.cores), "soft_reset": Out(arch.cores),
            "done": In(arch.cores), "error": In(arch.cores), "idle": In(arch.cores),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the page, and the pulses of GROUP_START and GROUP_RESET."""
        m = Module()
        written, strobes, word = take_writes(m, self.axil, SYSTEM_REGISTERS)
        bits = word & Cat(strobe.replicate(8) for strobe in strobes)
        m.d.sync += [self.start.eq(Mux(written["GROUP_START"], bits, 0)),
                     self.soft_reset.eq(Mux(written["GROUP_RESET"], bits, 0))]
        answer_reads(m, self.axil, SYSTEM_REGISTERS, {
            "CORES": Const(self._arch.cores, 32), "MEMORY_PORTS": Const(self._arch.memory_ports, 32),
            "GROUP_START": Const(0, 32), "GROUP_RESET": Const(0, 32),
            "GROUP_DONE": self.done, "GROUP_ERROR": self.error, "GROUP_IDLE": self.idle,
        })
        return m
