# SPDX-License-Identifier: Apache-2.0
"""Bitstreams with openXC7: its tools are stand-ins that look at what they are given; LiteX and yosys are real."""

from __future__ import annotations

import json
import random
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weft.boards import BOARDS
from weft.boards.openxc7 import flow, tools
from weft.boards.openxc7.steps import read_log
from weft.boards.shell import bitstream
from weft.boards.shell.machine import Machine
from weft.cli.main import exit_code
from weft.hw.flow import synthesis
from weft.hw.system import with_ports
from weft.simulate import toolchain
from weft.support.errors import WeftError
from weft.tb.random.lockstep_archs import lockstep_archs

TINY = lockstep_archs()["lanes2"]
PARTS = {"arty_a7_35": "xc7a35tcsg324-1", "arty_a7_100": "xc7a100tcsg324-1", "pynq_z1": "xc7z020clg400-1",
         "pynq_z2": "xc7z020clg400-1"}
HEAD = f"#!{sys.executable}\nimport json, sys\nfrom pathlib import Path\ngiven = sys.argv[1:]\n"
HEAD += "options = dict(zip(given[::2], given[1::2]))\n"
PLACES = """
given.remove("--timing-allow-fail"), given.remove("--quiet")
options = dict(zip(given[::2], given[1::2], strict=True))
assert b"xc7" in Path(options["--chipdb"]).read_bytes() and Path(options["--xdc"]).read_text()
json.loads(Path(options["--json"]).read_text())
mhz = {"1": 61.5, "2": 104.25}[options["--seed"]]
verdict = "PASS" if mhz >= float(options["--freq"]) else "FAIL"
Path(options["--log"]).write_text(
    "Info: Device utilisation:\\nInfo: \\t         SLICE_LUTX:   120/41600     0%\\n"
    f"Info: Max frequency for clock 'sys_clk': 12.00 MHz (FAIL at {options['--freq']} MHz)\\n"
    f"Info: Max frequency for clock 'sys_clk': {mhz:.02f} MHz ({verdict} at {options['--freq']} MHz)\\n")
Path(options["--fasm"]).write_text(f"seed {options['--seed']}")
"""
FRAMES = """
assert (Path(options["--db-root"]) / options["--part"] / "part.yaml").is_file()
print("frames of", Path(given[-1]).read_text())
"""
BITS = """
assert Path(options["--part_file"]).parent.name == options["--part_name"]
Path(options["--output_file"]).write_text("bits of " + Path(options["--frm_file"]).read_text())
"""
STAND_INS = {"nextpnr-xilinx": PLACES, "fasm2frames": FRAMES, "xc7frames2bit": BITS}


@dataclass
class Installed:
    """A system with stand-ins for openXC7's tools."""

    programs: Path
    chipdb: Path
    database: Path

    def put(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(HEAD + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Folders for all of it, with nothing in them."""
    made = Installed(*(tmp_path / name for name in ("programs", "chipdb", "prjxray-db")))
    for folder in (made.programs, made.chipdb, made.database):
        folder.mkdir()
    monkeypatch.setenv("PATH", str(made.programs))
    monkeypatch.setenv("CHIPDB", str(made.chipdb))
    monkeypatch.setenv("PRJXRAY_DB_DIR", str(made.database))
    return made


@pytest.fixture
def installed(bare: Installed) -> Installed:
    for name, script in STAND_INS.items():
        bare.put(name, script)
    for part in set(PARTS.values()):
        (bare.chipdb / tools.names(part)[0]).write_bytes(b"\0chip " + part.encode() + b"\0")
        folder = bare.database / tools.FAMILIES[part[:4]] / part
        folder.mkdir(parents=True)
        (folder / "part.yaml").touch()
    return bare


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for LiteX and yosys."""
    def generate(board: Any, work: Path, toolchain: str, standalone: bool) -> None:
        assert toolchain == "openxc7" and not standalone
        for name in ("shell.v", "shell.xdc", *(["shell.json"] if board.shell else [])):
            (work / name).write_text(name)

    def synthesize(folder: Path, machine: str, shell: str, width: int, family: str, packing: Any) -> None:
        (folder / "xc7.json").write_text("{}")
        (folder / "xc7.stat").write_text(json.dumps({"design": {"num_cells_by_type": {
            "LUT6": 7, "FDRE": 5, "RAMB36E1": 2, "RAMB18E1": 3, "DSP48E1": 1}}}))

    monkeypatch.setattr(bitstream, "generate", generate)
    monkeypatch.setattr(bitstream, "need_packages", lambda family: None)
    monkeypatch.setattr(synthesis, "synthesize_shell", synthesize)


# -- what would run ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", PARTS)
def test_a_dry_run_shows_every_command_and_builds_nothing(key: str, installed: Installed, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    command = ["board", "build", key, "--toolchain", "openxc7", "--dry-run", "--mhz", "75", "-o", str(tmp_path / "out")]
    assert exit_code([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [step["what"] for step in found["steps"]] == [
        "shell and constraints", "synthesis", "place and route", "frames", "bitstream"]
    assert (found["part"], found["mhz_asked"], found["missing"]) == (PARTS[key], 75, [])
    assert exit_code(command) == 0
    shown = capsys.readouterr().out.splitlines()
    assert all(step["command"] in shown for step in found["steps"])
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_is_missing(bare: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["board", "build", "arty_a7_35", "--toolchain", "openxc7", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "# missing: no nextpnr-xilinx, no fasm2frames, no xc7frames2bit\n# install openXC7" in said
    assert "/bbaexport.py --device xc7a35tcsg324-1" in said and f"{bare.chipdb}/xc7a35tcsg324.bin" in said


def test_the_commands_that_are_shown_are_those_that_run(installed: Installed, quick: None, tmp_path: Path) -> None:
    for name, script in STAND_INS.items():
        installed.put(name, f"open({str(tmp_path / 'ran')!r}, 'a').write(json.dumps(sys.argv) + '\\n')\n" + script)
    flow.build(BOARDS["arty_a7_35"], TINY, tmp_path / "out", clock_hz=50e6)
    ran = [json.loads(line) for line in (tmp_path / "ran").read_text().splitlines()]
    shown = [step["command"].split(" > ")[0].split(" ")
             for step in flow.planned(BOARDS["arty_a7_35"], 50e6)["steps"][2:]]
    assert ran == shown


# -- what is missing ---------------------------------------------------------------------------------------------------
def test_all_that_is_missing_is_named_at_once(bare: Installed, tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    command = ["board", "build", "pynq_z2", "--toolchain", "openxc7", "-o", str(tmp_path / "out")]
    toolchain.setup()
    assert exit_code(command) == 1
    said = capsys.readouterr().err
    for each in ("no nextpnr-xilinx", "no fasm2frames", "no xc7frames2bit", "no chip database", "part.yaml",
                 "way out: install openXC7", "--dry-run", "--toolchain vivado"):
        assert each in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["xc7a35tcsg324.bin", "xc7a35tcsg324-1.bin", "xc7a35t.bin"])
def test_a_chip_database_has_one_of_three_names(name: str, installed: Installed) -> None:
    (installed.chipdb / "xc7a35tcsg324.bin").rename(installed.chipdb / name)
    found = tools.find(BOARDS["arty_a7_35"])
    assert (found.chipdb.name, found.missing) == (name, ())


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1", b"\0xc7a100tcsg324-1\0"])
def test_a_file_that_is_no_chip_database_of_the_chip(content: bytes, installed: Installed) -> None:
    (installed.chipdb / "xc7a35tcsg324.bin").write_bytes(content)
    with pytest.raises(WeftError, match="is no chip database of xc7a35t; .*bbasm -l chip.bba"):
        tools.find(BOARDS["arty_a7_35"]).check("arty_a7_35")


@pytest.mark.parametrize(("key", "options", "said"), [
    ("zcu104", ["--toolchain", "openxc7"], "allowed: vivado;"),
    ("arty_a7_35", ["--toolchain", "ise"], "vivado, openxc7"),
    ("ulx3s", ["--toolchain", "vivado"], "allowed: trellis"),
    ("arty_a7_35", ["--dry-run"], "allowed: toolchain openxc7")])
def test_a_toolchain_that_is_not_the_boards(key: str, options: list[str], said: str,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["board", "build", key, *options]) == 1
    assert said in capsys.readouterr().err


# -- the build ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", PARTS)
def test_the_first_seed_in_time_becomes_the_bitstream(key: str, installed: Installed, quick: None,
                                                      tmp_path: Path) -> None:
    found = flow.build(BOARDS[key], TINY, tmp_path / "out", clock_hz=75e6)
    assert (found["seed"], found["fmax_mhz"], found["mhz_asked"]) == (2, 104.25, 75)
    assert (found["lut"], found["ff"], found["dsp"], found["bram"]) == (7, 5, 1, 4)
    assert found["used"] == {"SLICE_LUTX": [120, 41600]}
    assert (tmp_path / "out" / f"{key}.bit").read_text() == "bits of frames of seed 2\n"
    assert ("shell.json" in found["files"]) == (BOARDS[key].shell is not None)
    assert {"shell.v", "shell.xdc", "weft.tarch"} < set(found["files"])


def test_a_missed_clock_is_an_error(installed: Installed, quick: None, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=r"104.2 MHz at best .seed 2 of 2.; allowed: 120 MHz"):
        flow.build(BOARDS["pynq_z1"], TINY, tmp_path / "out", clock_hz=120e6, seeds=(1, 2))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "script", "said"), [
    ("nextpnr-xilinx", "sys.exit('no bel left')", "place and route: found no bel left"),
    ("fasm2frames", "sys.exit('unknown feature')", r"frames: .*fasm2frames --part .* > shell.frames: found unknown"),
    ("xc7frames2bit", "sys.exit(3)", "ended by 3, without a word"), ("xc7frames2bit", "", "found no bitstream")])
def test_a_tool_that_fails(name: str, script: str, said: str, installed: Installed, quick: None,
                           tmp_path: Path) -> None:
    installed.put(name, script)
    with pytest.raises(WeftError, match=said):
        flow.build(BOARDS["arty_a7_35"], TINY, tmp_path / "out", clock_hz=50e6)


def test_a_tool_that_cannot_be_started(installed: Installed, quick: None, tmp_path: Path) -> None:
    for name in STAND_INS:
        (installed.programs / name).write_text("#!/nowhere/python\n")
        with pytest.raises(WeftError, match=rf"{name}: found No such file or directory; allowed: a program that runs"):
            flow.build(BOARDS["arty_a7_35"], TINY, tmp_path / "out", clock_hz=50e6)
        installed.put(name, STAND_INS[name])


def test_a_log_without_a_clock(tmp_path: Path) -> None:
    (tmp_path / "pnr.log").write_text("Info: Program finished normally.\n")
    with pytest.raises(WeftError, match="no clock"):
        read_log(tmp_path / "pnr.log")


# -- the processors' side ----------------------------------------------------------------------------------------------
@dataclass
class Burst:
    """An access of the processors: ``words`` to write, or how many to read."""

    address: int
    number: int
    words: list[int] | int


def bursts(seed: int) -> list[Burst]:
    drawn = random.Random(seed)
    made = []
    for _ in range(40):
        address, length = 4 * drawn.randrange(16), drawn.choice((1, 1, 1, 2, 5, 16))
        words = [drawn.getrandbits(32) for _ in range(length)]
        made.append(Burst(address, drawn.randrange(1 << 12), words if drawn.random() < 0.5 else length))
    return made


def processors(port: Any, wanted: list[Burst], seen: list[Any], seed: int) -> Iterator[Any]:
    """Ask one burst after the other; note what is read, the identifiers and the last beats."""
    drawn = random.Random(seed)

    def until(condition: Any) -> Iterator[Any]:
        for _ in range(200):
            if (yield condition):
                return
            yield
        raise AssertionError("no answer")

    def pause() -> Iterator[Any]:
        for _ in range(drawn.choice((0, 0, 1, 3))):
            yield

    for burst in wanted:
        write = isinstance(burst.words, list)
        length = len(burst.words) if isinstance(burst.words, list) else burst.words
        asked = port.aw if write else port.ar
        yield asked.addr.eq(burst.address)
        yield asked.id.eq(burst.number)
        yield asked.len.eq(length - 1)
        yield asked.valid.eq(1)
        yield
        yield from until(asked.ready)
        yield asked.valid.eq(0)
        for beat in range(length):
            yield from pause()
            if isinstance(burst.words, list):
                yield port.w.data.eq(burst.words[beat])
                yield port.w.strb.eq(15)
                yield port.w.last.eq(beat == length - 1)
                yield port.w.valid.eq(1)
                yield
                yield from until(port.w.ready)
                yield port.w.valid.eq(0)
            else:
                yield port.r.ready.eq(1)
                yield
                yield from until(port.r.valid)
                seen.append(((yield port.r.data), (yield port.r.id), (yield port.r.last), (yield port.r.resp)))
                yield port.r.ready.eq(0)
        if write:
            yield port.b.ready.eq(1)
            yield
            yield from until(port.b.valid)
            seen.append(((yield port.b.id), (yield port.b.resp)))
            yield port.b.ready.eq(0)
        yield from pause()


def slave(registers: Any, memory: dict[int, int], seed: int) -> Iterator[Any]:
    """Registers that take a write's address and its data in either order, as the machine's do, or late.

    Addresses from 64 on answer SLVERR."""
    drawn = random.Random(seed)
    address = data = asked = None
    while True:
        for channel, free in ((registers.aw, address is None), (registers.w, data is None),
                              (registers.ar, asked is None)):
            yield channel.ready.eq(free and drawn.random() < 0.5)
        yield
        if (yield registers.aw.valid) and (yield registers.aw.ready):
            address = yield registers.aw.addr
        if (yield registers.w.valid) and (yield registers.w.ready):
            data = yield registers.w.data
        if (yield registers.ar.valid) and (yield registers.ar.ready):
            asked = yield registers.ar.addr
        for channel in (registers.aw, registers.w, registers.ar):
            yield channel.ready.eq(0)
        if address is not None and data is not None:
            if address < 64:
                memory[address] = data
            yield registers.b.resp.eq(2 * (address >= 64))
            yield registers.b.valid.eq(1)
            yield
            while not (yield registers.b.ready):
                yield
            yield registers.b.valid.eq(0)
            address = data = None
        if asked is not None:
            yield registers.r.data.eq(memory.get(asked, 0))
            yield registers.r.resp.eq(2 * (asked >= 64))
            yield registers.r.valid.eq(1)
            yield
            while not (yield registers.r.ready):
                yield
            yield registers.r.valid.eq(0)
            asked = None


@pytest.mark.parametrize("seed", range(4))
def test_bursts_reach_the_registers_word_by_word(seed: int) -> None:
    migen = pytest.importorskip("migen.sim", reason="needs the extra bitstream")
    from litex.soc.interconnect import axi

    from weft.boards.openxc7.zynq import CONTROL_ID_BITS, RegistersBridge

    port = axi.AXIInterface(data_width=32, address_width=32, id_width=CONTROL_ID_BITS, version="axi3")
    registers = axi.AXILiteInterface(data_width=32, address_width=32)
    memory: dict[int, int] = {}
    seen: list[Any] = []
    wanted = bursts(seed)
    end: list[bool] = []

    def master() -> Iterator[Any]:
        yield from processors(port, wanted, seen, seed)
        end.append(True)

    migen.run_simulation(RegistersBridge(port, registers), [master(), migen.passive(slave)(registers, memory, seed)])
    assert end
    expected: list[Any] = []
    held: dict[int, int] = {}
    for burst in wanted:
        length = len(burst.words) if isinstance(burst.words, list) else burst.words
        places = [burst.address + 4 * beat for beat in range(length)]
        if isinstance(burst.words, list):
            held |= {place: word for place, word in zip(places, burst.words, strict=True) if place < 64}
            expected.append((burst.number, 2 * any(place >= 64 for place in places)))
        else:
            expected += [(held.get(place, 0), burst.number, int(place == places[-1]), 2 * (place >= 64))
                         for place in places]
    assert seen == expected and memory == held


@pytest.mark.parametrize(("changed", "said"), [
    ({"axi_max_burst": 32}, "axi_max_burst on board pynq_z1: found 32; allowed: up to 16 beats"),
    ({"axi_data_width": 128, "stream_width": 128}, r"m_axi_dram0 of 128 bits.*allowed: up to 4 of 64 bits")])
def test_a_machine_that_the_hp_ports_do_not_take(changed: dict[str, int], said: str) -> None:
    pytest.importorskip("litex", reason="needs the extra bitstream")
    from weft.boards.openxc7.zynq import check_ports

    arch = TINY.replace(**changed)
    with pytest.raises(WeftError, match=said):
        check_ports(BOARDS["pynq_z1"], arch, Machine(with_ports(arch)[1]))


def shell_in(folder: Path, key: str) -> Path:
    """A board's shell around a small machine, as the first step of a build leaves it."""
    toolchain.setup()
    folder.mkdir()
    (folder / "weft.tarch").write_text(json.dumps(TINY.to_dict()))
    bitstream.generate(BOARDS[key], folder, "openxc7")
    return folder


@pytest.mark.wide
def test_yosys_knows_every_pin_of_the_processors(installed: Installed, tmp_path: Path) -> None:
    """All pins that are joined are there, as wide as they are, and driven."""
    folder = shell_in(tmp_path / "made", "pynq_z2")
    synthesis.run_yosys("\n".join(["read_verilog -lib +/xilinx/cells_sim.v",
                                   "read_verilog -lib +/xilinx/cells_xtra.v", "read_rtlil machine.il",
                                   "read_verilog shell.v", "hierarchy -check -top shell", "proc", "select shell",
                                   "check -assert"]) + "\n", folder, "read")
    assert not re.findall(r"Resizing cell port shell\.(?:PS7|weft_top).*", (folder / "read.log").read_text())


@pytest.mark.long
@pytest.mark.parametrize("key", ["pynq_z2", "arty_a7_35"])
def test_litex_and_yosys_make_a_netlist_of_one_module(key: str, installed: Installed, tmp_path: Path) -> None:
    """All but place and route is real."""
    folder = shell_in(tmp_path / "made", key)
    constraints = (folder / "shell.xdc").read_text()
    assert re.findall(r"create_clock .*get_ports (\w+)", constraints) == [
        "sys_clk" if BOARDS[key].processor else "clk100"]
    assert ("LOC" in constraints) == (BOARDS[key].shell is not None)
    synthesis.synthesize_shell(folder, "machine.il", "shell", TINY.number.width, "xc7", TINY.packing)
    netlist = json.loads((folder / "xc7.json").read_text())
    own = {name: module for name, module in netlist["modules"].items()
           if not int(module["attributes"].get("blackbox", "0"), 2)
           and not int(module["attributes"].get("whitebox", "0"), 2)}
    assert list(own) == ["shell"]
    kinds = {cell["type"] for cell in own["shell"]["cells"].values()}
    assert not {kind for kind in kinds if kind.startswith("$")} and {"BUFG", "FDRE", "LUT6", "CARRY4"} <= kinds
    if BOARDS[key].processor:
        pins, = ({pin for pin, bits in cell["connections"].items() if any(bit != "x" for bit in bits)}
                 for cell in own["shell"]["cells"].values() if cell["type"] == "PS7")
        assert {"FCLKCLK", "FCLKRESETN", "IRQF2P", "MAXIGP0ARADDR", "SAXIHP0WDATA", "SAXIHP1RDATA",
                "SAXIHP2ARADDR"} <= pins and not {pin for pin in pins if pin.startswith("SAXIHP3")}
