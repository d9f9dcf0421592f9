# SPDX-License-Identifier: Apache-2.0
"""A machine as other tools take it: a FuseSoC core file, and a Tcl script with which Vivado packages it as IP-XACT."""

from __future__ import annotations

import json

from weft.hw.contract.arch import Arch
from weft.hw.flow.verilog import TOP_NAME

VERILOG = f"{TOP_NAME}.v"
CLOCK, RESET = "clk", "rst"
"""The clock and the reset of the top module; the reset is active high."""


def axi_interfaces(ports: list[str]) -> list[str]:
    """Return the prefixes of the AXI and AXI stream interfaces among names of ports, sorted."""
    valid = ("_awvalid", "_arvalid", "_tvalid")
    return sorted({name.rpartition("_")[0] for name in ports if name.endswith(valid)})


def fusesoc_core(name: str, version: str) -> str:
    """Return the text of ``NAME.core`` (CAPI 2) beside the Verilog; names are JSON strings, which YAML reads too."""
    return "\n".join([
        "CAPI=2:", f"name: {json.dumps(f'weft:machine:{name}:{version}')}",
        f"description: {json.dumps(f'weft machine {name}')}", "",
        "filesets:", "  rtl:", "    files:", f"      - {VERILOG}", "    file_type: verilogSource-2005", "",
        "targets:", "  default: &default", "    filesets: [rtl]", f"    toplevel: {TOP_NAME}",
        "  lint:", "    <<: *default", "    default_tool: verilator", "    tools:", "      verilator:",
        "        mode: lint-only", "        verilator_options: [-Wno-fatal]", ""])


def vivado_script(arch: Arch, ports: list[str], version: str) -> str:
    """Return the text of ``package_ip.tcl``.

    ``vivado -mode batch -source package_ip.tcl`` beside the Verilog writes ``ip/``."""
    busses = axi_interfaces(ports)
    associated = [f"ipx::associate_bus_interfaces -busif {bus} -clock {CLOCK} $core" for bus in busses]
    return "\n".join([
        "# vivado -mode batch -source package_ip.tcl", "set here [file normalize [file dirname [info script]]]",
        "create_project -in_memory", f"add_files -norecurse $here/{VERILOG}",
        f"set_property top {TOP_NAME} [current_fileset]",
        "ipx::package_project -root_dir $here/ip -vendor weft -library machine -taxonomy /UserIP -import_files "
        "-set_current true", "set core [ipx::current_core]", f"set_property name {TOP_NAME} $core",
        f"set_property display_name {{weft, {arch.array_size} lanes, {arch.data_type}}} $core",
        f"set_property version {'.'.join(version.split('.')[:2])} $core",
        f"ipx::infer_bus_interface {CLOCK} xilinx.com:signal:clock_rtl:1.0 $core",
        f"ipx::infer_bus_interface {RESET} xilinx.com:signal:reset_rtl:1.0 $core",
        f"set reset [ipx::get_bus_interfaces {RESET} -of_objects $core]",
        "set_property value ACTIVE_HIGH [ipx::add_bus_parameter POLARITY $reset]",
        *associated, "ipx::create_xgui_files $core", "ipx::update_checksums $core", "ipx::check_integrity $core",
        "ipx::save_core $core", ""])
