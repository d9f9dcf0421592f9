# SPDX-License-Identifier: Apache-2.0
"""The host's start of a board's DRAM, against a model of LiteDRAM's registers and a PHY with windows of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import CONTROL_REGISTERS, IDENTITY, Status, board_code
from weft.runtime.driver import uartbone
from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.dram_start import (
    HARDWARE,
    TEST_WORDS,
    DramController,
    Setting,
    best,
    check_memory,
)
from weft.runtime.driver.links import litex_target, shell_map
from weft.runtime.driver.memory_map import place
from weft.runtime.driver.shell_file import ShellFile
from weft.support.errors import WeftError
from weft.tb.bench.dram_model import LANES, MEMORY_BASE, MEMORY_BYTES, DramModel, description


def test_each_lane_is_left_in_the_middle_of_its_widest_window() -> None:
    model = DramModel([(2, range(1, 6)), (0, range(5, 8))])
    controller = DramController(Bridge(model), ShellFile.of(description()))
    assert not controller.started
    found = controller.start()
    assert model.settings == list(found.chosen) == [Setting(2, 3), Setting(0, 6)]
    assert controller.started and model.register("sdram_dfii_control") == HARDWARE
    assert str(found).splitlines()[2] == "byte lane 0, bitslip 2: .##O##.." and len(str(found).splitlines()) == 8
    assert (0, 15) in model.commands, "the mode register"


def test_writes_are_turned_where_the_phy_can() -> None:
    model = DramModel([(2, range(1, 6)), (0, range(5, 8))], write_turns=[2, 0])
    found = DramController(Bridge(model), ShellFile.of(description(artix=True))).start()
    assert model.turns == [2, 0] and model.settings == list(found.chosen) == [Setting(2, 3), Setting(0, 6)]


def test_memory_that_never_reads_right_is_named() -> None:
    model = DramModel([(1, range(2, 5)), (9, range(0))])
    with pytest.raises(WeftError, match="byte lane 1 of the memory: found no setting"):
        DramController(Bridge(model), ShellFile.of(description())).start()
    assert model.register("sdram_dfii_control") == HARDWARE and not model.words.get(0x800)


def test_memory_without_leveling_is_only_started() -> None:
    model = DramModel([(0, range(0))] * LANES)
    found = DramController(Bridge(model), ShellFile.of(description(leveling=False))).start()
    assert found.chosen == () and "needs no leveling" in str(found) and len(model.commands) == 1


def test_the_widest_window_wins() -> None:
    works = [[True, True, False, True], [False] * 4, [False, True, True, True]]
    assert best(0, works) == Setting(2, 2)


@pytest.mark.parametrize("stuck", [None, 12, 19])
def test_a_stuck_address_line_is_found(stuck: int | None) -> None:
    bridge = Bridge(DramModel([], stuck))
    if stuck is None:
        check_memory(bridge, MEMORY_BASE, MEMORY_BYTES)
    else:
        with pytest.raises(WeftError, match=r"memory at 0x4"):
            check_memory(bridge, MEMORY_BASE, MEMORY_BYTES)


def test_the_check_writes_what_it_reads_whatever_was_written_before() -> None:
    """Memory that lost the same words since then holds them again."""
    model = DramModel([])
    bridge = Bridge(model)
    bridge.write(MEMORY_BASE, np.random.default_rng(0).integers(0, 1 << 32, TEST_WORDS, np.uint32))
    model.words.clear()
    check_memory(bridge, MEMORY_BASE, MEMORY_BYTES)


def test_the_check_ends_with_the_last_word_of_memory() -> None:
    model = DramModel([])
    check_memory(Bridge(model), MEMORY_BASE, MEMORY_BYTES)
    written = [address for address in model.words if address >= MEMORY_BASE]
    assert (min(written), max(written)) == (MEMORY_BASE, MEMORY_BASE + MEMORY_BYTES - 4)


@pytest.mark.parametrize(("board", "code", "says"), [
    ("ulx3s", 0, "byte lane 1, bitslip 0: .....#O#"), ("ulx3s", 1, "memory at 0x4"), ("ecpix5", 0, "BOARD of device")])
def test_weft_board_memory(board: str, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capfd: pytest.CaptureFixture[str]) -> None:
    """Of an ulx3s; ``code`` 1: with a stuck address line."""
    model = DramModel([(2, range(1, 6)), (0, range(5, 8))], stuck=12 if code else None)
    registers = {"IDENTITY": IDENTITY, "STATUS": 1 << Status.IDLE, "BOARD": board_code("ulx3s")}
    model.words |= {0x9000_0000 + CONTROL_REGISTERS[name].offset: value for name, value in registers.items()}
    monkeypatch.setattr(uartbone, "open_serial", lambda port, baud: model)
    (tmp_path / board).mkdir()
    (tmp_path / board / "shell.json").write_text(json.dumps({**description(), "board": board}))
    assert exit_code(["board", "memory", "serial:/dev/null", "--board", board, "-o", str(tmp_path)]) == (says[0] != "b")
    said = capfd.readouterr()
    assert says in said.out + said.err
    assert ("1 MiB tested at every address bit: fine" in said.out) == (says[0] == "b")


def on_chip() -> dict[str, Any]:
    """Of a board without DRAM: 8, 32 and 16 KiB."""
    sizes = {"dram0": 8 << 10, "dram1": 32 << 10, "program": 16 << 10}
    kept = {key: value for key, value in description().items() if key != "dram"}
    return {**kept, "board": "tang_nano_20k", "memory": {"base": MEMORY_BASE, "bytes": 0x24000},
            "windows": {name: {"base": MEMORY_BASE + number * 0x10000, "bytes": size}
                        for number, (name, size) in enumerate(sizes.items())}}


@pytest.mark.parametrize(("stuck", "says"), [(None, "56 KiB tested at every address bit: fine"), (12, "memory at 0x4")])
def test_on_chip_memory_is_only_tested(stuck: int | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capfd: pytest.CaptureFixture[str]) -> None:
    model = DramModel([], stuck)
    model.words |= {0x9000_0000 + CONTROL_REGISTERS[name].offset: value
                    for name, value in {"IDENTITY": IDENTITY, "STATUS": 1 << Status.IDLE}.items()}
    monkeypatch.setattr(uartbone, "open_serial", lambda port, baud: model)
    (tmp_path / "tang_nano_20k").mkdir()
    file = tmp_path / "tang_nano_20k" / "shell.json"
    file.write_text(json.dumps(on_chip()))
    code = exit_code(["board", "memory", "serial:/dev/null", "--board", "tang_nano_20k", "-o", str(tmp_path)])
    said = capfd.readouterr()
    assert says in said.out + said.err and code == (stuck is not None) and not model.commands
    litex_target(model, {"shell": str(file), "seconds": 1.0}).close()
    assert not model.commands, "nothing has to start"


def test_a_model_too_large_for_a_window_names_it() -> None:
    memory_map, arch = shell_map(ShellFile.of(on_chip())), Arch.load("tang_nano_20k")
    needs = {"dram0": 8 << 10, "dram1": 32 << 10, "program": 16 << 10}
    places = place(memory_map, needs, arch, "digits")
    assert [places.machine(name) for name in needs] == [0, 0x10000, 0x20000]
    with pytest.raises(WeftError, match=r"found 16385 bytes \(program 16385\); allowed: 16384 bytes of memory"):
        place(memory_map, {**needs, "program": (16 << 10) + 1}, arch, "digits")


@pytest.mark.parametrize(("change", "says"), [
    ({"dram": None}, "on-chip memory dram0"), ({"dram": 3}, "dram"), ({"registers": {}}, "no register"),
    ({"more": 1}, "more"), ({"clock_hz": "fast"}, "clock_hz")])
def test_a_shell_file_that_is_none_is_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    file = tmp_path / "shell.json"
    file.write_text(json.dumps({**description(), **change}))
    with pytest.raises(WeftError, match=says):
        ShellFile.load(file)
    file.write_text("[1]")
    with pytest.raises(WeftError, match="build/boards"):
        ShellFile.load(file)
