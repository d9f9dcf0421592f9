# SPDX-License-Identifier: Apache-2.0
"""The machine as a block of a Vivado block design: Verilog that names its interfaces to Vivado."""

from __future__ import annotations

from dataclasses import dataclass

from weft.boards.shell.machine import Machine

BLOCK, REGISTERS = "weft_block", "s_axil"
CLOCK, RESET, INTERRUPT = "clk", "resetn", "interrupt"


@dataclass(frozen=True)
class Interface:
    """An AXI interface of the block; ``bits`` of data; ``writes``: whether it has write channels."""

    name: str
    bits: int
    address_bits: int
    writes: bool


def interfaces(machine: Machine) -> list[Interface]:
    """Return the interfaces of the block: the machine's AXI4 masters, then its registers, AXI4-Lite."""
    return [Interface(name, machine.width(name), machine.bits(f"{name}_araddr"), f"{name}_awaddr" in machine.ports)
            for name in (*machine.masters(), REGISTERS)]


def verilog(machine: Machine, top: str) -> str:
    """Return the Verilog of ``BLOCK`` around the machine ``top``.

    It has an active-low reset, attributes by which Vivado recognises clock, reset, interrupt and AXI, and no
    streams."""
    shown = interfaces(machine)
    pins = [name for name in machine.ports if name.rpartition("_")[0] in {each.name for each in shown}]
    busses = ":".join(each.name for each in shown)
    ports = [
        _port("clock:1.0 clk CLK", f"XIL_INTERFACENAME clk, ASSOCIATED_BUSIF {busses}, ASSOCIATED_RESET {RESET}",
              f"input wire {CLOCK}"),
        _port("reset:1.0 resetn RST", "XIL_INTERFACENAME resetn, POLARITY ACTIVE_LOW", f"input wire {RESET}"),
        _port("interrupt:1.0 interrupt INTERRUPT", "XIL_INTERFACENAME interrupt, SENSITIVITY LEVEL_HIGH",
              f"output wire {INTERRUPT}")]
    parameters = {each.name: _parameters(each) for each in shown}
    for pin in pins:
        bus, _, signal = pin.rpartition("_")
        way = "input" if machine.is_input(pin) else "output"
        parameter = parameters.pop(bus, "")  # once for each interface
        ports.append("  " + (f'(* X_INTERFACE_PARAMETER = "{parameter}" *) ' if parameter else "")
                     + f'(* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 {bus} {signal.upper()}" *)\n'
                     f"  {way} wire {_range(machine.bits(pin))}{pin}")
    joined = [f".{CLOCK}({CLOCK})", f".rst(~{RESET})", f".{INTERRUPT}({INTERRUPT})"]
    joined += [f".{pin}({pin})" for pin in pins]
    known = {CLOCK, "rst", INTERRUPT, *pins}
    joined += [f".{name}({machine.unused(name)})" for name in machine.ports
               if machine.is_input(name) and name not in known]
    listed = ",\n".join(ports)
    return f"module {BLOCK} (\n{listed}\n);\n  {top} machine (\n    " + ",\n    ".join(joined) + "\n  );\nendmodule\n"


def _port(info: str, parameter: str, declaration: str) -> str:
    """Return the declaration of a port with its attributes."""
    return (f'  (* X_INTERFACE_INFO = "xilinx.com:signal:{info}" *)\n'
            f'  (* X_INTERFACE_PARAMETER = "{parameter}" *)\n  {declaration}')


def _parameters(interface: Interface) -> str:
    """Return the attribute with an interface's parameters."""
    lite = interface.name == REGISTERS
    return ", ".join([f"XIL_INTERFACENAME {interface.name}", f"PROTOCOL {'AXI4LITE' if lite else 'AXI4'}",
                      f"DATA_WIDTH {interface.bits}", f"ADDR_WIDTH {interface.address_bits}",
                      f"READ_WRITE_MODE {'READ_WRITE' if interface.writes else 'READ_ONLY'}",
                      *(() if lite else ("SUPPORTS_NARROW_BURST 0",))])


def _range(bits: int) -> str:
    """Return the range of a port in Verilog."""
    return f"[{bits - 1}:0] " if bits > 1 else ""
