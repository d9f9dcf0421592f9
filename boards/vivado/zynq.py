# SPDX-License-Identifier: Apache-2.0
"""The block design of a Zynq: processors, resets, links, the machine, and who sees what at which address.

::

    processors --M_AXI-- link -- s_axil      registers
    processors --HP0---- link -- m_axi_...   a port of the DRAM for each AXI4 master of the machine
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.boards.board import Processor
from weft.boards.vivado.block import BLOCK, CLOCK, INTERRUPT, REGISTERS, RESET, Interface
from weft.support.errors import WeftError, explain

DESIGN, PS, MACHINE = "weft", "ps", "weft"
LINK = "smartconnect"
"""The block that translates between two ports: AXI3, AXI4, AXI4-Lite, widths of data and addresses."""
PORTS = 4
"""The number of HP ports of either family."""


@dataclass(frozen=True)
class Kind:
    """A family of Zynqs.

    ``{n}`` is the number of an HP port, ``{gp}`` the one it has in the processors' settings."""

    cell: str
    settings: Mapping[str, str]
    port_settings: Mapping[str, str]
    mhz: str
    """The setting of the clock."""
    clock: str
    reset: str
    interrupt: str
    master: str
    master_clock: str
    port: str
    port_clock: str
    segment: str
    """The DRAM behind an HP port."""
    widths: tuple[int, ...]
    registers: int
    """The address of the machine's registers for the processors."""
    automation: str = ""
    """The command that connects the processors' own pins."""


KINDS = {
    "zynq7": Kind(
        cell="processing_system7",
        settings={"PCW_USE_M_AXI_GP0": "1", "PCW_USE_FABRIC_INTERRUPT": "1", "PCW_IRQ_F2P_INTR": "1"},
        port_settings={"PCW_USE_S_AXI_HP{n}": "1", "PCW_S_AXI_HP{n}_DATA_WIDTH": "{width}"},
        mhz="PCW_FPGA0_PERIPHERAL_FREQMHZ", clock="FCLK_CLK0", reset="FCLK_RESET0_N", interrupt="IRQ_F2P",
        master="M_AXI_GP0", master_clock="M_AXI_GP0_ACLK", port="S_AXI_HP{n}", port_clock="S_AXI_HP{n}_ACLK",
        segment="S_AXI_HP{n}/HP{n}_DDR_LOWOCM", widths=(32, 64), registers=0x43C0_0000,
        automation='apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 -config {make_external '
                   f'"FIXED_IO, DDR" apply_board_preset "0" Master "Disable" Slave "Disable"}} [get_bd_cells {PS}]'),
    "zynqmp": Kind(
        cell="zynq_ultra_ps_e",
        settings={"PSU__USE__M_AXI_GP0": "1", "PSU__MAXIGP0__DATA_WIDTH": "32", "PSU__USE__M_AXI_GP1": "0",
                  "PSU__USE__M_AXI_GP2": "0", "PSU__USE__IRQ0": "1", "PSU__FPGA_PL0_ENABLE": "1"},
        port_settings={"PSU__USE__S_AXI_GP{gp}": "1", "PSU__SAXIGP{gp}__DATA_WIDTH": "{width}"},
        mhz="PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ", clock="pl_clk0", reset="pl_resetn0", interrupt="pl_ps_irq0",
        master="M_AXI_HPM0_FPD", master_clock="maxihpm0_fpd_aclk", port="S_AXI_HP{n}_FPD",
        port_clock="saxihp{n}_fpd_aclk", segment="SAXIGP{gp}/HP{n}_DDR_LOW", widths=(32, 64, 128),
        registers=0xA000_0000),
}


def design(processor: Processor, interfaces: list[Interface]) -> str:
    """Return Tcl that draws the block design ``DESIGN``. Raise WeftError for masters without a port."""
    kind = KINDS[processor.kind]
    masters = [each for each in interfaces if each.name != REGISTERS]
    if len(masters) > PORTS or any(each.bits not in kind.widths for each in masters):
        raise WeftError(explain("the machine's AXI4 masters", ", ".join(f"{each.name} of {each.bits} bits"
                                                                        for each in masters),
                                f"up to {PORTS} of {' or '.join(map(str, kind.widths))} bits",
                                f"set axi_data_width and stream_width to {kind.widths[-1]}"))
    lines = [f"create_bd_design {DESIGN}", *_cells(kind, processor, masters), *_clock(kind, len(masters)),
             *_links(kind, masters), *_addresses(kind, processor, interfaces),
             "validate_bd_design", "save_bd_design"]
    return "\n".join(lines) + "\n"


def _of(text: str, number: int, width: int = 0) -> str:
    """Return ``text`` with HP port ``number``, and ``width`` in bits, in the places that :class:`Kind` names."""
    return text.format(n=number, gp=number + 2, width=width)


def _cells(kind: Kind, processor: Processor, masters: list[Interface]) -> Iterator[str]:
    """Yield the Tcl commands that create the processors, the machine, the block for resets, and the links."""
    settings = {**kind.settings, kind.mhz: f"{processor.clock_hz / 1e6:g}"}
    for number, master in enumerate(masters):
        settings |= {_of(key, number): _of(value, number, master.bits) for key, value in kind.port_settings.items()}
    yield f"create_bd_cell -type ip -vlnv xilinx.com:ip:{kind.cell} {PS}"
    if kind.automation:
        yield kind.automation
    yield _set(PS, settings)
    yield f"create_bd_cell -type module -reference {BLOCK} {MACHINE}"
    yield "create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset resets"
    for link in _names(masters):
        yield f"create_bd_cell -type ip -vlnv xilinx.com:ip:{LINK} {link}"
        yield _set(link, {"NUM_SI": "1", "NUM_MI": "1"})


def _names(masters: list[Interface]) -> list[str]:
    """Return the names of all LINK blocks: ``to_registers``, then one to an HP port for each of ``masters``.

    Master number n of the machine is linked to HP port n by ``to_hpn``."""
    return ["to_registers", *(f"to_hp{number}" for number in range(len(masters)))]


def _set(cell: str, settings: Mapping[str, str]) -> str:
    """Return the command that sets a cell's properties."""
    listed = " ".join(f"CONFIG.{key} {{{value}}}" for key, value in settings.items())
    return f"set_property -dict [list {listed}] [get_bd_cells {cell}]"


def _clock(kind: Kind, ports: int) -> Iterator[str]:
    """Yield the Tcl commands that connect clock, resets and interrupt; ``ports`` is the number of HP ports in use."""
    links = ["to_registers", *(f"to_hp{number}" for number in range(ports))]
    clocked = [f"{PS}/{kind.master_clock}", *(f"{PS}/{_of(kind.port_clock, number)}" for number in range(ports)),
               f"{MACHINE}/{CLOCK}", "resets/slowest_sync_clk", *(f"{link}/aclk" for link in links)]
    yield _net(f"{PS}/{kind.clock}", clocked)
    yield _net(f"{PS}/{kind.reset}", ["resets/ext_reset_in"])
    yield _net("resets/interconnect_aresetn", [f"{link}/aresetn" for link in links])
    yield _net("resets/peripheral_aresetn", [f"{MACHINE}/{RESET}"])
    yield _net(f"{MACHINE}/{INTERRUPT}", [f"{PS}/{kind.interrupt}"])


def _net(source: str, sinks: list[str]) -> str:
    """Return the command that connects a pin to others."""
    return f"connect_bd_net [get_bd_pins {source}] " + " ".join(f"[get_bd_pins {sink}]" for sink in sinks)


def _links(kind: Kind, masters: list[Interface]) -> Iterator[str]:
    """Yield the Tcl commands that connect both ends of every link."""
    ways = [(f"{PS}/{kind.master}", f"{MACHINE}/{REGISTERS}"),
            *((f"{MACHINE}/{master.name}", f"{PS}/{_of(kind.port, number)}") for number, master in enumerate(masters))]
    for link, (source, sink) in zip(_names(masters), ways, strict=True):
        for ends in ((source, f"{link}/S00_AXI"), (f"{link}/M00_AXI", sink)):
            yield "connect_bd_intf_net " + " ".join(f"[get_bd_intf_pins {end}]" for end in ends)


def _addresses(kind: Kind, processor: Processor, interfaces: list[Interface]) -> Iterator[str]:
    """Yield the Tcl commands that give the machine's registers, and the DRAM of each master, their addresses."""
    registers, = (each for each in interfaces if each.name == REGISTERS)
    yield _assign(kind.registers, 1 << registers.address_bits, f"{PS}/Data", f"{MACHINE}/{REGISTERS}/reg0")
    for number, master in enumerate(each for each in interfaces if each != registers):
        yield _assign(0, processor.memory_bytes, f"{MACHINE}/{master.name}", f"{PS}/{_of(kind.segment, number)}")


def _assign(offset: int, size: int, space: str, segment: str) -> str:
    """Return the command that assigns an address range."""
    return (f"assign_bd_address -offset {offset:#x} -range {size:#x} -target_address_space "
            f"[get_bd_addr_spaces {space}] [get_bd_addr_segs {segment}] -force")
