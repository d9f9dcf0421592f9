# SPDX-License-Identifier: Apache-2.0
"""A machine as a core of LiteX, for a design of the reader's own.

An example::

    from weft.boards.shell.core import Weft
    self.machine = Weft(platform, Arch.load("arty"), "build/arty/weft_top.v")
    self.bus.add_slave("weft", self.machine.registers, SoCRegion(origin=0x9000_0000, size=0x1000, cached=False))
    for name, master in self.machine.masters.items():
        ...                                          # to a memory controller's AXI port

A LiteDRAM port for a master is ``native_port`` of ``narrow.py``: LiteDRAM's own hangs where words are wider than
beats. The Verilog is what ``weft verilog`` writes of the same machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litex.gen import ClockSignal, Instance, LiteXModule, ResetSignal
from litex.soc.interconnect import axi

from weft.boards.shell.soc import CHANNELS, LITE_CHANNELS, MACHINE, Machine, joined
from weft.hw.contract.arch import Arch
from weft.hw.system import with_ports
from weft.support.errors import WeftError, explain


class Weft(LiteXModule):
    """The machine as a LiteX module.

    ``masters``: by name the AXI4 masters of DRAM and program; ``registers``: the AXI4-Lite slave of the control
    registers. Programs come from memory; the instruction stream is silent and samples are dropped."""

    def __init__(self, platform: Any, arch: Arch, verilog: Path | str) -> None:
        """Add the machine to a design; ``platform``: None if the Verilog is added elsewhere.

        Raise WeftError if the Verilog is not there."""
        if not Path(verilog).is_file():
            raise WeftError(explain("machine's Verilog", verilog, "a file that weft verilog wrote",
                                    "weft verilog -a ARCH -o DIR"))
        machine = Machine(with_ports(arch)[1])
        self.masters = {name: axi.AXIInterface(data_width=machine.width(name), address_width=32, id_width=1)
                        for name in machine.masters()}
        self.registers = axi.AXILiteInterface(data_width=32, address_width=32)
        pins: dict[str, Any] = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys")}
        for name, master in self.masters.items():
            for channel, fields in CHANNELS.items():
                pins |= joined(machine, f"{name}_{channel}", getattr(master, channel), fields)
        for channel, fields in LITE_CHANNELS.items():
            pins |= joined(machine, f"s_axil_{channel}", getattr(self.registers, channel), fields)
        pins |= silent(machine, pins)
        self.specials += Instance(MACHINE, **pins)
        if platform is not None:
            platform.add_source(str(verilog))


def silent(machine: Machine, pins: dict[str, Any]) -> dict[str, int]:
    """Return the values of inputs that nobody drives: 0, except those that let outputs drain."""
    return {f"i_{name}": machine.unused(name) for name in machine.ports
            if machine.is_input(name) and name not in ("clk", "rst") and f"i_{name}" not in pins}
