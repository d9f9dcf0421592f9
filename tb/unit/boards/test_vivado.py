# SPDX-License-Identifier: Apache-2.0
"""Vivado projects, without Vivado: their Tcl runs against stand-ins that know each block's pins, and yosys reads the
Verilog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest

from weft.boards import BOARDS
from weft.boards.shell.machine import MACHINE, Machine
from weft.boards.vivado import block, zynq
from weft.boards.vivado.ultra_ram import in_ultra_ram
from weft.cli.main import exit_code
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import SYSTEM_ADDRESS_WIDTH
from weft.hw.flow.synthesis import run_yosys
from weft.hw.system import with_ports
from weft.support.errors import WeftError
from weft.tb.random.lockstep_archs import lockstep_archs

tkinter = pytest.importorskip("tkinter", reason="needs Python's tkinter, which has a Tcl interpreter")

ZYNQS = [key for key, board in BOARDS.items() if board.processor]
TINY = lockstep_archs()["lanes2"]


# -- what the blocks have ----------------------------------------------------------------------------------------------
@dataclass
class Cell:
    """``ways``: of each pin ``in`` or ``out``, of each interface ``master`` or ``slave``. ``widths``: of interfaces,
    bits of data, where they are fixed. ``spaces`` and ``segments``: of addresses, and how many bytes they have."""

    ways: dict[str, str]
    widths: dict[str, int] = field(default_factory=dict)
    spaces: dict[str, int] = field(default_factory=dict)
    segments: dict[str, int] = field(default_factory=dict)


def zynq7(settings: dict[str, str]) -> Cell:
    cell = Cell({"FCLK_CLK0": "out", "FCLK_RESET0_N": "out"}, spaces={"Data": 1 << 32})
    if settings.get("PCW_USE_M_AXI_GP0") == "1":
        cell.ways |= {"M_AXI_GP0": "master", "M_AXI_GP0_ACLK": "in"}
    if settings.get("PCW_USE_FABRIC_INTERRUPT") == settings.get("PCW_IRQ_F2P_INTR") == "1":
        cell.ways["IRQ_F2P"] = "in"
    for n in range(4):
        if settings.get(f"PCW_USE_S_AXI_HP{n}") == "1":
            cell.ways |= {f"S_AXI_HP{n}": "slave", f"S_AXI_HP{n}_ACLK": "in"}
            cell.widths[f"S_AXI_HP{n}"] = int(settings[f"PCW_S_AXI_HP{n}_DATA_WIDTH"])
            cell.segments[f"S_AXI_HP{n}/HP{n}_DDR_LOWOCM"] = 1 << 30
    return cell


def zynqmp(settings: dict[str, str]) -> Cell:
    cell = Cell({"pl_resetn0": "out"}, spaces={"Data": 1 << 40})
    if settings.get("PSU__FPGA_PL0_ENABLE") == "1":
        cell.ways["pl_clk0"] = "out"
    if settings.get("PSU__USE__M_AXI_GP0") == "1":
        cell.ways |= {"M_AXI_HPM0_FPD": "master", "maxihpm0_fpd_aclk": "in"}
    if settings.get("PSU__USE__IRQ0") == "1":
        cell.ways["pl_ps_irq0"] = "in"
    for n in range(4):
        if settings.get(f"PSU__USE__S_AXI_GP{n + 2}") == "1":
            cell.ways |= {f"S_AXI_HP{n}_FPD": "slave", f"saxihp{n}_fpd_aclk": "in"}
            cell.widths[f"S_AXI_HP{n}_FPD"] = int(settings[f"PSU__SAXIGP{n + 2}__DATA_WIDTH"])
            cell.segments[f"SAXIGP{n + 2}/HP{n}_DDR_LOW"] = 1 << 31
    return cell


def reset(settings: dict[str, str]) -> Cell:
    return Cell({"slowest_sync_clk": "in", "ext_reset_in": "in", "peripheral_aresetn": "out",
                 "interconnect_aresetn": "out"})


def smartconnect(settings: dict[str, str]) -> Cell:
    assert settings == {"NUM_SI": "1", "NUM_MI": "1"}
    return Cell({"aclk": "in", "aresetn": "in", "S00_AXI": "slave", "M00_AXI": "master"})


IPS = {"processing_system7": zynq7, "zynq_ultra_ps_e": zynqmp, "proc_sys_reset": reset, "smartconnect": smartconnect}


def of_verilog(text: str) -> Cell:
    """What Vivado makes of the attributes of a module."""
    cell = Cell({})
    found = re.findall(r'\(\* X_INTERFACE_INFO = "xilinx\.com:(\w+):\w+:1\.0 (\w+) (\w+)" \*\)[^;]*?'
                       r"(input|output) wire (?:\[(\d+):0\] )?(\w+)", text)
    assert len(found) == len(re.findall(r"(?:input|output) wire", text)), "a pin without an interface"
    for kind, bus, signal, way, top, pin in found:
        if kind == "signal":
            cell.ways[pin] = {"input": "in", "output": "out"}[way]
        elif signal == "ARVALID":
            cell.ways[bus] = {"input": "slave", "output": "master"}[way]
        elif signal == "RDATA":
            cell.widths[bus] = int(top) + 1
        elif signal == "ARADDR":
            cell.spaces[bus] = 1 << int(top) + 1
    for bus, way in cell.ways.items():
        if way == "slave":
            cell.segments[f"{bus}/reg0"] = cell.spaces.pop(bus)
    busses = re.search(r"ASSOCIATED_BUSIF ([\w:]+), ASSOCIATED_RESET resetn", text)
    assert busses and set(busses[1].split(":")) == set(cell.widths), "an interface without a clock"
    return cell


# -- Vivado ------------------------------------------------------------------------------------------------------------
class Vivado:
    """Takes the commands of a project's Tcl and complains as Vivado would. ``results``: of ``get_property``."""

    def __init__(self, block_verilog: str, results: dict[str, str] | None = None) -> None:
        self.tcl = tkinter.Tcl()
        self.block, self.results = block_verilog, results or {}
        self.kinds: dict[str, str] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.nets: list[list[str]] = []
        self.links: list[list[str]] = []
        self.places: list[tuple[str, str, int, int]] = []
        self.order: list[str] = []
        for name in ("create_bd_cell", "set_property", "connect_bd_net", "connect_bd_intf_net", "assign_bd_address",
                     "get_property"):
            self.tcl.createcommand(name, getattr(self, name))
        for name in ("get_bd_cells", "get_bd_pins", "get_bd_intf_pins", "get_bd_addr_spaces", "get_bd_addr_segs",
                     "get_files", "get_runs"):
            self.tcl.createcommand(name, lambda found: found)
        for name in ("current_fileset", "create_bd_design", "validate_bd_design", "save_bd_design", "create_project",
                     "add_files", "update_compile_order", "make_wrapper", "launch_runs", "wait_on_run",
                     "apply_bd_automation"):
            self.tcl.createcommand(name, partial(self.note, name))

    def note(self, *words: str) -> str:
        self.order.append(" ".join(words))
        return ""

    def create_bd_cell(self, *words: str) -> str:
        options, name = dict(zip(words[:-1:2], words[1:-1:2], strict=True)), words[-1]
        assert name not in self.kinds
        self.kinds[name] = options.get("-vlnv", options.get("-reference", "")).removeprefix("xilinx.com:ip:")
        self.settings[name] = {}
        return name

    def set_property(self, *words: str) -> str:
        if words[0] == "-dict":
            pairs, name = self.tcl.splitlist(words[1]), words[2]
            self.settings[name] |= {key.removeprefix("CONFIG."): value
                                    for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
        return ""

    def get_property(self, name: str, of: str) -> str:
        return self.results[name]

    def connect_bd_net(self, *pins: str) -> str:
        self.nets.append(list(pins))
        return ""

    def connect_bd_intf_net(self, *ends: str) -> str:
        self.links.append(list(ends))
        return ""

    def assign_bd_address(self, *words: str) -> str:
        options = dict(zip(words[:6:2], words[1:6:2], strict=True))
        self.places.append((options["-target_address_space"], words[6], int(options["-offset"], 0),
                            int(options["-range"], 0)))
        return ""

    # -- what was drawn ------------------------------------------------------------------------------------------------
    def cells(self) -> dict[str, Cell]:
        return {name: of_verilog(self.block) if kind == block.BLOCK else IPS[kind](self.settings[name])
                for name, kind in self.kinds.items()}

    def check(self) -> None:
        cells = self.cells()
        ways = {f"{name}/{pin}": way for name, cell in cells.items() for pin, way in cell.ways.items()}
        widths = {f"{name}/{bus}": width for name, cell in cells.items() for bus, width in cell.widths.items()}
        for net in self.nets:
            assert [ways[pin] for pin in net] == ["out"] + ["in"] * (len(net) - 1), net
        for link in self.links:
            assert [ways[end] for end in link] == ["master", "slave"], link
        used = [pin for net in (*self.nets, *self.links) for pin in net]
        assert len(used) == len(set(used)), "joined twice"
        assert set(ways) - set(used) == set(), "left open"
        through = {link: (before, after) for link in self.kinds for before, at in self.links if at == f"{link}/S00_AXI"
                   for back, after in self.links if back == f"{link}/M00_AXI"}
        for before, after in through.values():
            assert before not in widths or after not in widths or widths[before] == widths[after]
        reached = {before.rpartition("/")[0]: after for before, after in through.values()}
        assert set(reached) == {"ps", "weft"}
        spaces = {f"{name}/{space}": size for name, cell in cells.items() for space, size in cell.spaces.items()}
        segments = {f"{name}/{segment}": size for name, cell in cells.items()
                    for segment, size in cell.segments.items()}
        assert {space for space, *_ in self.places} == set(spaces), "who has no addresses sees nothing"
        assert {segment for _, segment, *_ in self.places} == set(segments)
        for space, segment, offset, size in self.places:
            assert offset % size == 0 and offset + size <= spaces[space], "out of reach"
            assert size <= segments[segment]
        assert len({space for space, *_ in self.places}) == len(self.places), "addresses overlap"


def drawn(key: str, arch: Arch | None = None, change: Mapping[str, str] = MappingProxyType({})) -> Vivado:
    """The block design of a board. ``change``: text of the Tcl, and what to put there."""
    board = BOARDS[key]
    machine = Machine(with_ports(arch or Arch.load(board.arch))[1])
    vivado = Vivado(block.verilog(machine, MACHINE))
    assert board.processor
    text = zynq.design(board.processor, block.interfaces(machine))
    for before, after in change.items():
        assert before in text
        text = text.replace(before, after)
    vivado.tcl.eval(text)
    return vivado


@pytest.mark.parametrize("key", ZYNQS)
def test_block_design_joins_pins_that_are_there(key: str) -> None:
    vivado = drawn(key)
    vivado.check()
    processor = BOARDS[key].processor
    assert processor
    masters = [place for place in vivado.places if place[0] != "ps/Data"]
    assert len(masters) == 3 and {place[3] for place in masters} == {processor.memory_bytes}
    arch = Arch.load(BOARDS[key].arch)
    assert arch.vector_bytes * (arch.dram0_depth + arch.dram1_depth) < processor.memory_bytes


def test_one_port_for_both_windows() -> None:
    vivado = drawn("pynq_z1", Arch.load("pynq").replace(dram_ports="shared"))
    vivado.check()
    assert len(vivado.links) == 6


@pytest.mark.parametrize(("key", "name"), [("pynq_z1", "pynq_3x8"), ("zcu104", "zcu104_4x16")])
def test_cores_have_their_memory_ports_and_pages(key: str, name: str) -> None:
    """With little in each core: what is drawn depends on ports alone."""
    arch = Arch.load(name)
    vivado = drawn(key, arch.replace(array_size=2, local_depth=64, accumulator_depth=64, lut_count=0))
    vivado.check()
    masters = {space for space, *_ in vivado.places} - {"ps/Data"}
    assert masters == {f"weft/m_axi_memory{port}" for port in range(arch.memory_ports)}
    assert next(size for space, _, _, size in vivado.places if space == "ps/Data") == 1 << SYSTEM_ADDRESS_WIDTH
    assert f".m_axis_sample{arch.cores - 1}_tready(1)" in vivado.block, "nobody takes samples: they must not fill up"


@pytest.mark.parametrize("change", [
    {"ps/S_AXI_HP1_ACLK": "ps/S_AXI_HP0_ACLK"}, {"PCW_USE_S_AXI_HP2 {1}": ""},
    {"PCW_S_AXI_HP0_DATA_WIDTH {64}": "CONFIG.PCW_S_AXI_HP0_DATA_WIDTH {32}"}, {"[get_bd_pins weft/resetn]": ""},
    {"weft/m_axi_dram1]": "weft/m_axi_dram0]"}, {"-offset 0x43c00000": "-offset 0x43c00400"},
    {"connect_bd_intf_net [get_bd_intf_pins ps/M_AXI_GP0]": "connect_bd_intf_net [get_bd_intf_pins ps/M_AXI_GP1]"}],
    ids=lambda change: next(iter(change)).split()[-1])
def test_a_wrong_design_is_noticed(change: dict[str, str]) -> None:
    with pytest.raises((AssertionError, KeyError, tkinter.TclError)):
        drawn("pynq_z1", change=change).check()


def test_a_machine_with_ports_that_no_zynq_has() -> None:
    with pytest.raises(WeftError, match="m_axi_dram0 of 256 bits.*allowed: up to 4 of 32 or 64 bits"):
        drawn("pynq_z1", Arch.load("pynq").replace(axi_data_width=256))


# -- the project -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the command, for a small machine."""
    folder = tmp_path_factory.mktemp("boards")
    tiny = tmp_path_factory.mktemp("arch") / "tiny.tarch"
    tiny.write_text(json.dumps(TINY.to_dict()))
    assert exit_code(["board", "build", "pynq_z2", "-a", str(tiny), "--mhz", "80", "-o", str(folder)]) == 0
    return folder / "pynq_z2"


@pytest.mark.wide
def test_the_project_is_whole(built: Path) -> None:
    found = json.loads((built / "report.json").read_text())
    assert found["mhz_asked"] == 80 and found["run_with_vivado"] is False
    assert {"vivado/build.tcl", "vivado/design.tcl", "vivado/weft_block.v", "vivado/weft_top.v"} <= set(found["files"])
    assert "NOT RUN WITH VIVADO" in (built / "vivado" / "README.txt").read_text()
    assert "PCW_FPGA0_PERIPHERAL_FREQMHZ {80}" in (built / "vivado" / "design.tcl").read_text()
    assert not list(built.parent.glob(".*"))


@pytest.mark.parametrize(("progress", "slack", "end"), [
    ("100%", "0.1", ""), ("100%", "-0.1", "clock of 80 MHz is missed by -0.1 ns"), ("40%", "0.1", "route failed")])
def test_build_stops_where_the_clock_is_missed(built: Path, progress: str, slack: str, end: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    folder = built / "vivado"
    vivado = Vivado((folder / "weft_block.v").read_text(), {"PROGRESS": progress, "STATS.WNS": slack})
    vivado.tcl.eval('rename file _file; proc file {args} {}; rename glob _glob; proc glob {args} {return one}')
    monkeypatch.chdir(folder)
    script = (folder / "build.tcl").read_text()
    if end:
        with pytest.raises(tkinter.TclError, match=end):
            vivado.tcl.eval(script)
    else:
        vivado.tcl.eval(script)
        vivado.check()
    wrote = any("write_bitstream" in each for each in vivado.order)
    assert wrote == (not end)
    named = {name for each in vivado.order if each.startswith("add_files") for name in each.split()[1:]}
    assert {name for name in named if "." in name} <= {path.name for path in folder.iterdir()}


def test_yosys_reads_the_block_and_its_machine(built: Path) -> None:
    """Every pin of the machine is joined, and none that it does not have."""
    script = [f"read_verilog {name}.v" for name in (MACHINE, block.BLOCK)]
    run_yosys("\n".join([*script, f"hierarchy -check -top {block.BLOCK}", "proc", f"select {block.BLOCK}",
                         "check -assert"]) + "\n", built / "vivado", "read")
    joined = set(re.findall(r"^    \.(\w+)\(", (built / "vivado" / f"{block.BLOCK}.v").read_text(), re.MULTILINE))
    ports = with_ports(TINY)[1]
    assert {name for name in ports if Machine(ports).is_input(name)} <= joined


@pytest.mark.wide
def test_the_local_memory_becomes_ultra_ram(built: Path) -> None:
    """yosys, which takes the attribute as Vivado does, maps each bank of it, and nothing else, to UltraRAM."""
    verilog = (built / "vivado" / f"{MACHINE}.v").read_text()
    (built / "ultra.v").write_text(in_ultra_ram(verilog, TINY.local_banks))
    run_yosys("\n".join(["read_verilog ultra.v", r"hierarchy -top \weft_top.machine.core.local",
                         "synth_xilinx -family xcup -flatten -run begin:map_ffram",
                         f"select -assert-count {TINY.local_banks} t:URAM288",
                         "select -assert-none t:RAMB* t:$mem_v2"]) + "\n", built, "ultra")
    with pytest.raises(AssertionError, match="banks of local memory"):
        in_ultra_ram(verilog, TINY.local_banks + 1)
