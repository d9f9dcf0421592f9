# SPDX-License-Identifier: Apache-2.0
"""A machine as FuseSoC, Vivado and LiteX take it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.hw.flow.packaging import axi_interfaces, fusesoc_core, vivado_script
from weft.hw.system import with_ports
from weft.tb.unit.project.conftest import Weft as Command

TINY = Arch.load("tiny")


def test_the_core_file_is_read_as_it_is_meant() -> None:
    yaml = pytest.importorskip("yaml", reason="needs the extra bitstream: make setup")
    head, _, rest = fusesoc_core("my: machine", "0.1.0").partition("\n")
    core = yaml.safe_load(rest)
    assert head == "CAPI=2:" and core["name"] == "weft:machine:my: machine:0.1.0"
    assert core["filesets"]["rtl"] == {"files": ["weft_top.v"], "file_type": "verilogSource-2005"}
    assert core["targets"]["lint"]["toplevel"] == core["targets"]["default"]["toplevel"] == "weft_top"


@pytest.mark.parametrize("arch", [TINY, TINY.replace(dram_ports=SHARED)])
def test_every_interface_has_the_clock(arch: Arch) -> None:
    ports = list(with_ports(arch)[1])
    script = vivado_script(arch, ports, "0.1.0")
    named = re.findall(r"-busif (\S+) -clock clk", script)
    assert named == axi_interfaces(ports) and {"s_axil", "m_axi_program", "s_axis_instruction"} <= set(named)
    prefixes = tuple(f"{name}_" for name in named)
    assert {name for name in ports if "axi" in name} == {name for name in ports if name.startswith(prefixes)}


def test_the_command_writes_them_where_they_are_asked_for(weft: Command, tmp_path: Path) -> None:
    assert weft("verilog", "-a", "tiny", "-o", tmp_path, "--fusesoc", "--vivado", "--c-driver").code == 0
    assert {"weft_top.v", "weft_top.core", "package_ip.tcl"} <= {path.name for path in tmp_path.iterdir()}
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run(["gcc", *flags, "-c", "weft_driver.c", "-o", "weft_driver.o"], cwd=tmp_path, check=True)


def test_litex_makes_an_instance_with_every_port(tmp_path: Path) -> None:
    pytest.importorskip("litex", reason="needs the extra bitstream: make setup")
    from litex.gen import ClockDomain
    from litex.gen.fhdl.verilog import convert

    from weft.boards.shell.core import Weft
    from weft.support.errors import WeftError

    with pytest.raises(WeftError, match="weft verilog -a ARCH"):
        Weft(None, TINY, tmp_path / "weft_top.v")
    (tmp_path / "weft_top.v").write_text("")
    core = Weft(None, TINY, tmp_path / "weft_top.v")
    assert set(core.masters) == {"m_axi_dram0", "m_axi_dram1", "m_axi_program"}
    core.clock_domains.cd_sys = ClockDomain("sys")
    text = str(convert(core, ios={core.cd_sys.clk, core.cd_sys.rst}))
    ports = with_ports(TINY)[1]
    inputs = set(re.findall(r"\.(\w+) *\(", text[text.index("weft_top"):]))
    assert {name for name in ports if name.endswith(("valid", "ready"))} - inputs <= {"s_axis_instruction_tready",
                                                                                     "m_axis_sample_tvalid"}
