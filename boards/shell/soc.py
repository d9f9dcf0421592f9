# SPDX-License-Identifier: Apache-2.0
"""The shell as a LiteX design: no processor, the host is the bus's master.

::

    UART (and Ethernet) -- bridge -- Wishbone bus -+- DRAM (main_ram)      LiteDRAM controller -- PHY -- chip
                                                   +- control registers        |     |     |
                                                   |  of LiteDRAM and PHY     AXI4 masters of the machine
                                                   +- AXI4-Lite of the machine

All AXI masters see the DRAM from address 0; the bus sees it at ``main_ram``. The host starts the memory.
On-chip memory lies there in its place, for each master what it uses (``block_memory.py``); nothing has to start.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from litedram import modules, phy
from litex.gen import ClockDomain, ClockSignal, Instance, ResetSignal
from litex.soc.cores import uart
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCMini
from litex.soc.interconnect import axi, wishbone

from weft.boards.board import Board, Memory, OnChip
from weft.boards.shell.block_memory import BlockMemory
from weft.boards.shell.dram_port import DramPort
from weft.boards.shell.ethernet import DOMAIN, ETHERNET_HZ, MARGIN, Ethernet
from weft.boards.shell.host_bus import BufferedPhy, Witness
from weft.boards.shell.machine import MACHINE, Machine, windows
from weft.boards.shell.sample_ring import SampleRing
from weft.hw.contract.arch import Arch
from weft.hw.contract.host_link import RING_BYTES

REGISTERS_BASE = 0x9000_0000
"""The place of the machine's control registers on the bus: a page, or of several cores a page each and one more."""
WITNESS_BASE, WITNESS_BYTES = 0x9100_0000, 0x1000
"""The place of the witness on the bus."""
SAMPLES_BASE = 0x9200_0000
"""The place of the ring of samples on the bus."""
SAMPLE_PORT = re.compile(r"m_axis_sample0?_")
"""The pattern of the sample port whose samples the host gets: the only one, or the first core's."""
MEMORY_BASE = 0x4000_0000
"""The place of on-chip memory on the bus; LiteX puts DRAM there too."""
CHANNELS = {"aw": ("addr", "burst", "len", "size", "id"), "w": ("data", "strb", "last"), "b": ("resp", "id"),
            "ar": ("addr", "burst", "len", "size", "id"), "r": ("data", "resp", "last", "id")}
"""The signals of each AXI4 channel that LiteDRAM takes besides valid and ready.

Cache, protection and the like mean nothing to it."""
LITE_CHANNELS = {"aw": ("addr",), "w": ("data", "strb"), "b": ("resp",), "ar": ("addr",), "r": ("data", "resp")}


def named(path: str) -> Any:
    """Return the object that ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def chip_of(memory: Memory, clock: int) -> Any:
    """Return LiteDRAM's geometry and timing of the chip, at a clock of the machine in Hz."""
    return getattr(modules, memory.module)(clock, memory.rate)


def phy_of(memory: Memory, platform: Any, clock: int) -> Any:
    """Return the PHY on the board's pins."""
    if memory.phy == "GENSDRPHY":
        return phy.GENSDRPHY(platform.request("sdram"), clock)
    pads = platform.request("ddram")
    if memory.phy == "ECP5DDRPHY":
        return phy.ECP5DDRPHY(pads, sys_clk_freq=clock)
    return getattr(phy, memory.phy)(pads, memtype=memory.kind, nphases=memory.phases, sys_clk_freq=clock)


class ShellSoC(SoCMini):
    """The shell of a board around its machine, on ``platform`` with the clocks of ``crg``."""

    def __init__(self, board: Board, arch: Arch, machine: Machine, platform: Any, crg: Any) -> None:
        assert board.shell is not None
        super().__init__(platform, int(board.shell.clock_hz), ident=f"weft {board.key}", ident_version=False,
                         **self.core_options(board))
        self.board, self.arch, self.crg, memory = board, arch, crg, board.shell.memory
        self.windows = windows(arch, memory.program_bytes) if isinstance(memory, OnChip) else {}
        if isinstance(memory, Memory):
            self.add_memory(memory)
        self.add_links(board)
        self.add_witness()
        self.add_machine(machine)

    def core_options(self, board: Board) -> Mapping[str, Any]:
        """Return LiteX's options of a processor; none here."""
        return {}

    def add_memory(self, memory: Memory) -> None:
        """Add LiteDRAM without a cache: the host's accesses are few, and the machine's must not wait for a tag."""
        self.dram_phy, chip = self.make_memory(memory)
        self.add_sdram("sdram", phy=self.dram_phy, module=chip, l2_cache_size=0)

    def make_memory(self, memory: Memory) -> tuple[Any, Any]:
        """Return the PHY on the board's pins, and the chip's timing."""
        clock = int(self.sys_clk_freq)
        found = phy_of(memory, self.platform, clock)
        if memory.phy == "ECP5DDRPHY":
            self.comb += [self.crg.stop.eq(found.init.stop), self.crg.reset.eq(found.init.reset)]
        return found, chip_of(memory, clock)

    def add_links(self, board: Board) -> None:
        """Add the UART bridge and, if the board has it, Etherbone."""
        assert board.shell is not None
        clock = int(self.sys_clk_freq)
        self.add_uart(uart.RS232PHY(self.platform.request("serial"), clock, board.shell.baud))
        if board.has_ethernet(self.arch):
            assert board.shell.ethernet is not None
            self.add_ethernet(named(board.shell.ethernet)(
                clock_pads=self.platform.request("eth_clocks"), pads=self.platform.request("eth"),
                **board.shell.ethernet_options))

    def add_ethernet(self, phy: Any) -> None:
        """Add Etherbone behind a PHY. Its layers' clock is one more output of the board's PLL."""
        self.ethphy = phy
        self.cd_ethernet = ClockDomain(DOMAIN)
        self.crg.pll.create_clkout(self.cd_ethernet, ETHERNET_HZ, margin=MARGIN)
        self.etherbone = Ethernet(phy)
        self.bus.add_master(name="etherbone", master=self.etherbone.bus)
        receive, send = phy.crg.cd_eth_rx.clk, phy.crg.cd_eth_tx.clk
        self.platform.add_period_constraint(receive, 1e9 / phy.rx_clk_freq)
        if send is not receive:
            self.platform.add_period_constraint(send, 1e9 / phy.tx_clk_freq)
        self.platform.add_false_path_constraints(self.crg.cd_sys.clk, self.cd_ethernet.clk, receive,
                                                 *([] if send is receive else [send]))

    def add_uart(self, phy: Any) -> None:
        """Add the UART bridge behind a PHY."""
        buffered = BufferedPhy(phy)
        bridge = uart.UARTBone(phy=buffered, clk_freq=int(self.sys_clk_freq), address_width=32)
        self.add_module(name="uartbone_phy", module=buffered)
        self.add_module(name="uartbone", module=bridge)
        self.bus.add_master(name="uartbone", master=bridge.wishbone)

    def add_witness(self) -> None:
        """Let all links be one master of the bus, and a witness look at it."""
        links = list(self.bus.masters.values())
        self.bus.masters.clear()
        host = wishbone.Interface(data_width=32, address_width=32, addressing="word")
        self.host_arbiter = wishbone.Arbiter(links, host)
        self.bus.add_master(name="host", master=host)
        self.witness = Witness(host)
        self.bus.add_slave("witness", self.witness.bus,
                           SoCRegion(origin=WITNESS_BASE, size=WITNESS_BYTES, cached=False))

    # -- the machine ---------------------------------------------------------------------------------------------------
    def add_machine(self, machine: Machine) -> None:
        """Add the machine: its masters on LiteDRAM, its registers on the bus.

        Programs come from memory. The first core's samples wait in a ring, others are dropped."""
        pins = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys")}
        for name in machine.masters():
            pins |= self.master_pins(machine, name)
        registers = axi.AXILiteInterface(data_width=32, address_width=32)
        for channel, fields in LITE_CHANNELS.items():
            pins |= joined(machine, f"s_axil_{channel}", getattr(registers, channel), fields)
        self.bus.add_slave("weft", registers,
                           SoCRegion(origin=REGISTERS_BASE, size=1 << machine.bits("s_axil_awaddr"), cached=False))
        pins |= self.ring_pins(machine)
        unused = {f"i_{name}": machine.unused(name) for name in machine.ports
                  if machine.is_input(name) and name not in ("clk", "rst") and f"i_{name}" not in pins}
        self.specials += Instance(MACHINE, **pins, **unused)

    def ring_pins(self, machine: Machine) -> dict[str, Any]:
        """Return the pins of the sample port, connected to a ring; none for a machine without a sampler."""
        prefix = sample_port(self.arch, machine)
        if not prefix:
            return {}
        self.sample_ring = ring = SampleRing()
        self.bus.add_slave("samples", ring.bus, SoCRegion(origin=SAMPLES_BASE, size=RING_BYTES, cached=False))
        return {f"o_{prefix}tdata": ring.data, f"o_{prefix}tvalid": ring.valid, f"i_{prefix}tready": ring.ready}

    def master_pins(self, machine: Machine, name: str) -> dict[str, Any]:
        """Return the pins of one of the machine's masters, connected to a memory port."""
        port = self.on_chip_port(machine, name) if self.windows else self.dram_port(machine, name)
        pins: dict[str, Any] = {}
        for channel, fields in CHANNELS.items():
            pins |= joined(machine, f"{name}_{channel}", getattr(port, channel), fields)
        if f"{name}_bready" not in machine.ports:  # a master that only reads
            self.comb += [port.b.ready.eq(1), port.aw.valid.eq(0), port.w.valid.eq(0)]
        return pins

    def dram_port(self, machine: Machine, name: str) -> Any:
        """Return an AXI4 port on LiteDRAM for a master."""
        port = DramPort(self.sdram.crossbar, machine.width(name))
        self.add_module(name=f"{name}_dram", module=port)
        return port.axi

    def on_chip_port(self, machine: Machine, name: str) -> Any:
        """Return an AXI4 port on the windows that a master reaches: the one of its name, or both of DRAM."""
        reached = {window: place for window, place in self.windows.items()
                   if window.startswith(name.removeprefix("m_axi_"))}
        memory = BlockMemory(reached, machine.bits(f"{name}_araddr"))
        self.add_module(name=f"{name}_memory", module=memory)
        first, last = min(each.start for each in reached.values()), max(each.end for each in reached.values())
        self.bus.add_slave(f"{name}_memory", memory.bus, SoCRegion(
            origin=MEMORY_BASE + first, size=1 << (last - first - 1).bit_length(), cached=False))
        return memory.port


def sample_port(arch: Arch, machine: Machine) -> str:
    """Return the prefix of the port whose samples the host gets; empty for a machine without a sampler."""
    found = [match[0] for name in machine.ports if (match := SAMPLE_PORT.match(name))]
    return found[0] if arch.sampler else ""


def joined(machine: Machine, prefix: str, channel: Any, fields: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the pins of the machine's channel ``prefix``, connected to LiteX's channel.

    Pins that the machine does not have are left out."""
    found: dict[str, Any] = {}
    for field in (*fields, "valid", "ready"):
        port = prefix + field
        if port in machine.ports:
            width = machine.bits(port)
            found[("i_" if machine.is_input(port) else "o_") + port] = getattr(channel, field)[:width]
    return found
