# SPDX-License-Identifier: Apache-2.0
"""Parts of a shell, each by itself: what a whole build, or the simulation of a shell, meets only in the end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from litedram.common import LiteDRAMNativePort
from litex.build.sim import SimPlatform
from litex.soc.interconnect.axi import AXIInterface
from migen import ClockDomain, Signal, run_simulation

from weft.boards import BOARDS
from weft.boards.board import Memory
from weft.boards.shell import paced, simulated, soc, standalone
from weft.boards.shell.core import silent
from weft.boards.shell.machine import Machine
from weft.boards.shell.narrow import NarrowPort
from weft.boards.shell.soc import ShellSoC
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram, Spread
from weft.hw.system import with_ports


@pytest.mark.parametrize(("width", "parts"), [(64, 2), (32, 4), (16, 8)])
def test_a_narrow_port_writes_its_part_of_the_word(width: int, parts: int) -> None:
    """Of a controller's word of 128 bits at address 5: only the bytes of that part are enabled."""
    wide = LiteDRAMNativePort("both", 24, 128)
    narrow = NarrowPort(wide, width)
    assert 1 << len(narrow.port.cmd.addr) == parts << 24
    part, word, found = parts - 1, 5, []

    def master() -> Generator[Any, Any, None]:
        yield narrow.port.cmd.addr.eq(word * parts + part)
        yield from [narrow.port.cmd.valid.eq(1), narrow.port.cmd.we.eq(1), wide.cmd.ready.eq(1)]
        yield
        found.append((yield wide.cmd.addr))
        yield narrow.port.cmd.valid.eq(0)
        yield from [narrow.port.wdata.valid.eq(1), narrow.port.wdata.we.eq((1 << width // 8) - 1)]
        yield
        yield
        found.append((yield wide.wdata.we))

    run_simulation(narrow, master())
    assert found == [word, ((1 << width // 8) - 1) << width // 8 * part]


def test_a_narrow_port_knows_the_parts_of_all_reads_that_may_be_under_way() -> None:
    """LiteDRAMAXI2Native asks for 17 beats before the first has come. Each then is its part of its word."""
    wide, count, found = LiteDRAMNativePort("both", 24, 64), 17, list[int]()
    narrow = NarrowPort(wide, 16)
    parts = [number % 3 for number in range(count)]

    def master() -> Generator[Any, Any, None]:
        yield from [wide.cmd.ready.eq(1), narrow.port.rdata.ready.eq(1), narrow.port.cmd.valid.eq(1)]
        for part in parts:
            yield narrow.port.cmd.addr.eq(part)
            yield
        yield narrow.port.cmd.valid.eq(0)
        yield
        yield wide.rdata.valid.eq(1)
        yield wide.rdata.data.eq(0x3_0002_0001_0000)
        for _ in range(count):
            yield
            found.append((yield narrow.port.rdata.data))

    run_simulation(narrow, master())
    assert found == parts


@pytest.mark.parametrize("seed", range(2))
def test_a_narrow_port_keeps_parts_and_words_together_whoever_waits(seed: int) -> None:
    """Both directions at once: data come when they like, the controller takes and gives when it likes."""
    wide, count, rng = LiteDRAMNativePort("both", 24, 64), 12, Random(seed)
    narrow, written, read = NarrowPort(wide, 16), list[tuple[int, int]](), list[int]()
    writes, reads = ([rng.randrange(4) for _ in range(count)] for _ in range(2))
    bits, port = 0x3_0002_0001_0000, narrow.port

    def master() -> Generator[Any, Any, None]:
        yield from [wide.cmd.ready.eq(1), port.rdata.ready.eq(1), port.cmd.valid.eq(1), port.wdata.we.eq(3)]
        for is_write, parts in ((1, writes), (0, reads)):
            for part in parts:
                yield from [port.cmd.we.eq(is_write), port.cmd.addr.eq(part)]
                yield
        yield port.cmd.valid.eq(0)
        yield
        while len(written) < count or len(read) < count:
            valid, ready, given = rng.randrange(2), rng.randrange(2), rng.randrange(2) and len(read) < count
            yield from [port.wdata.valid.eq(valid), port.wdata.data.eq(len(written)), wide.wdata.ready.eq(ready),
                        wide.rdata.valid.eq(given), wide.rdata.data.eq(bits)]
            yield
            if valid and ready and len(written) < count:
                written.append(((yield wide.wdata.we), (yield wide.wdata.data) & 0xFFFF))
            if given:
                read.append((yield port.rdata.data))

    run_simulation(narrow, master())
    assert written == [(3 << 2 * part, number) for number, part in enumerate(writes)] and read == reads


def weft_pins(name: str) -> dict[str, int]:
    """What drives the inputs of a machine that a LiteX design leaves open."""
    machine = Machine(with_ports(Arch.load(name))[1])
    return silent(machine, {})


@pytest.mark.parametrize("name", ["arty", "ecpix5_2x4"])
def test_samples_that_nobody_takes_drain(name: str) -> None:
    """Of each core; all else that nobody drives is 0."""
    pins = weft_pins(name)
    drains = {f"i_{port}" for port in with_ports(Arch.load(name))[1] if re.fullmatch(r"m_axis_sample\d*_tready", port)}
    assert drains and {pin for pin, value in pins.items() if value} == drains


def test_a_simulated_serial_line_moves_a_byte_at_a_time() -> None:
    line = SimPlatform("SIM", simulated.IO).request("serial")
    for side in ("source", "sink"):
        assert [len(getattr(line, f"{side}_{name}")) for name in ("valid", "ready", "data")] == [1, 1, 8]


@pytest.mark.parametrize(("asked", "taken"), [((), "vivado"), (("openxc7",), "openxc7")])
def test_a_shell_without_a_host_is_made_with_the_boards_usual_toolchain(asked: tuple[str, ...], taken: str,
                                                                       monkeypatch: pytest.MonkeyPatch,
                                                                       tmp_path: Path) -> None:
    took: list[str] = []

    def build(board: object, arch: object, folder: Path, toolchain: str) -> tuple[None, None]:
        took.append(toolchain)
        return None, None

    monkeypatch.setattr(standalone, "for_board", build)
    monkeypatch.setattr(standalone, "description", lambda *_: {})
    assert BOARDS["arty_a7_35"].toolchains == ("vivado", "openxc7")
    standalone.main("arty_a7_35", str(tmp_path), BOARDS["arty_a7_35"].arch, "40e6", *asked)
    assert took == [taken] and (tmp_path / "soc.json").exists()


def test_a_simulated_memory_has_the_controller_that_a_process_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for the ports of the machine, with the bits of each."""
    def write(command: list[str], **_: Any) -> None:
        module, board, folder, *masters = command[2:]
        (Path(folder) / paced.FILE).write_text(" ".join([module, board, *masters]))

    monkeypatch.setattr(subprocess, "run", write)
    machine = Arch.load("ulx3s")
    said = paced.controller_of(BOARDS["ulx3s"], machine).split()
    assert said[:2] == ["weft.boards.shell.controller", "ulx3s"]
    assert {each.partition("=")[0] for each in said[2:]} >= {"m_axi_program"}
    assert f"m_axi_program={machine.stream_width}" in said


def test_a_board_has_ethernet_but_beside_the_presets_without_it() -> None:
    found = set()
    for board in BOARDS.values():
        for name in (board.arch, *board.others):
            wanted = board.shell is not None and board.shell.ethernet is not None and name not in board.uart_alone
            assert board.has_ethernet(Arch.load(name)) == wanted, (board.key, name)
            found.add(wanted)
    with_it = [board for board in BOARDS.values() if board.shell and board.shell.ethernet]
    assert any(board.uart_alone for board in with_it) and found == {False, True}


def test_estimates_take_the_typical_case_of_a_memory_that_is_not_known_to_the_cycle() -> None:
    for board in BOARDS.values():
        if board.processor:
            assert board.dram == board.processor.memory.typical
        elif board.shell and isinstance(board.shell.memory, Memory):
            assert board.dram == (board.shell.memory.dram or EXPECTED)
        else:
            assert board.dram == EXPECTED
    spread = Spread(*(IdealDram(read_latency=cycles) for cycles in (1, 2, 3)))
    assert [memory.read_latency for memory in spread.cases.values()] == [1, 2, 3]


def test_only_a_master_that_does_not_write_is_kept_from_writing() -> None:
    """Its address and data never come, and nobody waits for a response; another one drives these itself."""
    machine = Machine(with_ports(Arch.load("ulx3s"))[1])
    reading = {name for name in machine.masters() if f"{name}_bready" not in machine.ports}
    assert reading and reading != set(machine.masters())
    for name in machine.masters():
        port = AXIInterface(data_width=machine.width(name), address_width=32, id_width=1)
        shell = SimpleNamespace(windows={}, dram_port=lambda machine, name, port=port: port, comb=[])
        pins = ShellSoC.master_pins(cast(ShellSoC, shell), machine, name)
        driven = port.b.ready, port.aw.valid, port.w.valid
        assert [id(each.l) for each in shell.comb] == [id(signal) for signal in driven if name in reading]
        assert (f"o_{name}_awvalid" in pins) == (name not in reading)


@pytest.mark.parametrize("own", [True, False])
def test_each_clock_of_an_ethernet_phy_is_constrained_once(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some send with the clock that they receive."""
    monkeypatch.setattr(soc, "Ethernet", lambda phy: SimpleNamespace(bus=None))
    receive, told, apart = Signal(), list[tuple[Any, float]](), list[Any]()
    send, clock = Signal() if own else receive, ClockDomain("sys")
    phy = SimpleNamespace(crg=SimpleNamespace(cd_eth_rx=SimpleNamespace(clk=receive),
                                              cd_eth_tx=SimpleNamespace(clk=send)), rx_clk_freq=125e6, tx_clk_freq=25e6)
    shell: Any = SimpleNamespace(
        crg=SimpleNamespace(cd_sys=clock, pll=SimpleNamespace(create_clkout=lambda *args, **options: None)),
        bus=SimpleNamespace(add_master=lambda **options: None), platform=SimpleNamespace(
            add_period_constraint=lambda clock, period: told.append((clock, period)),
            add_false_path_constraints=lambda *clocks: apart.extend(clocks)))
    ShellSoC.add_ethernet(shell, phy)
    wanted = [(receive, 8.0), *([(send, 40.0)] if own else [])]
    assert [(id(clock), period) for clock, period in told] == [(id(clock), period) for clock, period in wanted]
    assert [id(each) for each in apart] == [id(each) for each in (
        clock.clk, shell.cd_ethernet.clk, receive, *([send] if own else []))]
