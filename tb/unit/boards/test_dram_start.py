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
from weft.hw.contract.errors import WeftError
from weft.runtime.driver import uartbone
from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.dram_start import (
    ACTIVATE,
    HARDWARE,
    PRECHARGE,
    READ,
    SOFTWARE,
    WRITE,
    DramController,
    Setting,
    best,
    check_memory,
)
from weft.runtime.driver.links import litex_target, shell_map
from weft.runtime.driver.memory_map import place
from weft.runtime.driver.shell_file import ShellFile

LANES, PHASES, BITSLIPS, DELAYS, BYTES = 2, 2, 4, 8, 8
MEMORY_BASE, MEMORY_BYTES = 0x4000_0000, 1 << 20


def shell(leveling: bool = True, artix: bool = False) -> dict[str, Any]:
    """Of an ECP5's DDR3: two phases of 64 bits, two byte lanes. ``artix``: with the registers of that one's PHY."""
    own = ("wdly_dq_bitslip_rst", "wdly_dq_bitslip") if artix else ("burstdet_clr", "burstdet_seen")
    names = ["ctrl_scratch", "sdram_dfii_control",
             *(f"dram_phy_{name}" for name in ("dly_sel", "rdly_dq_rst", "rdly_dq_inc", "rdly_dq_bitslip_rst",
                                               "rdly_dq_bitslip", *own)),
             *(f"sdram_dfii_pi{phase}_{name}" for phase in range(PHASES)
               for name in ("command", "command_issue", "address", "baddress", "wrdata", "rddata"))]
    words = {name: 2 if name.endswith("data") else 1 for name in names}
    places, at = {}, 0x800
    for name in names:
        places[name] = {"address": at, "words": words[name]}
        at += 4 * words[name]
    step = {"what": "", "address": 0, "bank": 0, "wait": 10}
    return {"board": "model", "clock_hz": 75_000_000, "machine_base": 0x9000_0000,
            "memory": {"base": MEMORY_BASE, "bytes": MEMORY_BYTES}, "registers": places, "arch": {},
            "dram": {"kind": "DDR3", "phases": PHASES, "data_bits": 8 * LANES, "read_phase": 0, "write_phase": 1,
                     "bitslips": BITSLIPS if leveling else 0, "delays": DELAYS if leveling else 0,
                     "start": [{**step, "control": True, "command": 12}, {**step, "control": True, "command": SOFTWARE},
                               {**step, "control": False, "command": 15, "address": 800, "bank": 2}]}}


class Model:
    """A transport to the registers. A lane reads right with the bitslip of its window and the delays in it; with
    ``write_turns``, of each lane, only what was written with so many turns."""

    name, most_words = "model", 64

    def __init__(self, windows: list[tuple[int, range]], stuck: int | None = None,
                 write_turns: list[int] | None = None) -> None:
        self.places = shell(artix=write_turns is not None)["registers"]
        self.names = {place["address"] + 4 * word: (name, word)
                      for name, place in self.places.items() for word in range(place["words"])}
        self.windows, self.stuck = windows, stuck
        self.needed, self.turns = write_turns or [0] * LANES, [0] * LANES
        self.words: dict[int, int] = {}
        self.settings = [Setting(0, 0)] * LANES
        self.row_open = False
        self.commands: list[tuple[int, int]] = []
        self.array, self.burst = bytes(PHASES * BYTES), bytes(PHASES * BYTES)
        self.seen = 0

    # -- the bus -------------------------------------------------------------------------------------------------------
    def read(self, address: int, count: int) -> np.ndarray:
        return np.array([self._word(address + 4 * at) for at in range(count)], np.uint32)

    def write(self, address: int, words: np.ndarray) -> None:
        for at, word in enumerate(words):
            self._put(address + 4 * at, int(word))

    def resynchronise(self) -> bool:
        return False

    def pause(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass

    def _place(self, address: int) -> int:
        """In memory, an address bit may be stuck at 0."""
        return address if self.stuck is None or address < MEMORY_BASE else address & ~(1 << self.stuck)

    def _word(self, address: int) -> int:
        name, word = self.names.get(address, ("", 0))
        if name.endswith("_rddata"):
            phase = int(name[len("sdram_dfii_pi")])
            value = int.from_bytes(self.burst[phase * BYTES:(phase + 1) * BYTES], "little")
            return value >> 32 * (1 - word) & 0xFFFF_FFFF
        return self.seen if name == "dram_phy_burstdet_seen" else self.words.get(self._place(address), 0)

    def _put(self, address: int, word: int) -> None:
        name, _ = self.names.get(address, ("", 0))
        kept = self.register(name) if name.startswith("dram_phy") else None
        if name.startswith("dram_phy_rdly"):
            self._turn(name.removeprefix("dram_phy_rdly_"))
        elif name.startswith("dram_phy_wdly"):
            for lane in range(LANES):
                if self.register("dram_phy_dly_sel") >> lane & 1:
                    self.turns[lane] = 0 if name.endswith("_rst") else self.turns[lane] + 1
        elif name == "dram_phy_burstdet_clr":
            self.seen = 0
        elif name.endswith("_command_issue"):
            self._command(int(name[len("sdram_dfii_pi")]))
        elif kept is None or name == "dram_phy_dly_sel":
            self.words[self._place(address)] = word

    def register(self, name: str) -> int:
        place = self.places[name]
        return sum(self.words.get(place["address"] + 4 * word, 0) << 32 * (place["words"] - 1 - word)
                   for word in range(place["words"]))

    # -- the PHY and the chip ------------------------------------------------------------------------------------------
    def _turn(self, what: str) -> None:
        for lane in range(LANES):
            if self.register("dram_phy_dly_sel") >> lane & 1:
                bitslip, delay = self.settings[lane].bitslip, self.settings[lane].delay
                self.settings[lane] = {
                    "dq_rst": Setting(bitslip, 0), "dq_inc": Setting(bitslip, (delay + 1) % DELAYS),
                    "dq_bitslip_rst": Setting(0, delay), "dq_bitslip": Setting((bitslip + 1) % BITSLIPS, delay)}[what]

    def _command(self, phase: int) -> None:
        assert self.register("sdram_dfii_control") == SOFTWARE, "the controller has the chip"
        command = self.register(f"sdram_dfii_pi{phase}_command")
        self.commands.append((phase, command))
        if command in (ACTIVATE, PRECHARGE):
            self.row_open = command == ACTIVATE
        elif command == WRITE:
            assert self.row_open and phase == 1
            self.array = b"".join(self.register(f"sdram_dfii_pi{each}_wrdata").to_bytes(BYTES, "little")
                                  for each in range(PHASES))
        elif command == READ:
            assert self.row_open and phase == 0
            works = [setting.bitslip == bitslip and setting.delay in delays and turns == needed
                     for setting, (bitslip, delays), turns, needed in
                     zip(self.settings, self.windows, self.turns, self.needed, strict=True)]
            self.burst = bytes(byte if works[at % LANES] else byte ^ 0x41 for at, byte in enumerate(self.array))
            self.seen = sum(1 << lane for lane, right in enumerate(works) if right)


def test_each_lane_is_left_in_the_middle_of_its_widest_window() -> None:
    model = Model([(2, range(1, 6)), (0, range(5, 8))])
    controller = DramController(Bridge(model), ShellFile.of(shell()))
    assert not controller.started
    found = controller.start()
    assert model.settings == list(found.chosen) == [Setting(2, 3), Setting(0, 6)]
    assert controller.started and model.register("sdram_dfii_control") == HARDWARE
    assert str(found).splitlines()[2] == "byte lane 0, bitslip 2: .##O##.." and len(str(found).splitlines()) == 8
    assert (0, 15) in model.commands, "the mode register"


def test_writes_are_turned_where_the_phy_can() -> None:
    model = Model([(2, range(1, 6)), (0, range(5, 8))], write_turns=[2, 0])
    found = DramController(Bridge(model), ShellFile.of(shell(artix=True))).start()
    assert model.turns == [2, 0] and model.settings == list(found.chosen) == [Setting(2, 3), Setting(0, 6)]


def test_memory_that_never_reads_right_is_named() -> None:
    model = Model([(1, range(2, 5)), (9, range(0))])
    with pytest.raises(WeftError, match="byte lane 1 of the memory: found no setting"):
        DramController(Bridge(model), ShellFile.of(shell())).start()
    assert model.register("sdram_dfii_control") == HARDWARE and not model.words.get(0x800)


def test_memory_without_leveling_is_only_started() -> None:
    model = Model([(0, range(0))] * LANES)
    found = DramController(Bridge(model), ShellFile.of(shell(leveling=False))).start()
    assert found.chosen == () and "needs no leveling" in str(found) and len(model.commands) == 1


def test_the_widest_window_wins() -> None:
    works = [[True, True, False, True], [False] * 4, [False, True, True, True]]
    assert best(0, works) == Setting(2, 2)


@pytest.mark.parametrize("stuck", [None, 12, 19])
def test_a_stuck_address_line_is_found(stuck: int | None) -> None:
    bridge = Bridge(Model([], stuck))
    if stuck is None:
        check_memory(bridge, MEMORY_BASE, MEMORY_BYTES)
    else:
        with pytest.raises(WeftError, match=r"memory at 0x4"):
            check_memory(bridge, MEMORY_BASE, MEMORY_BYTES)


@pytest.mark.parametrize(("board", "code", "says"), [
    ("ulx3s", 0, "byte lane 1, bitslip 0: .....#O#"), ("ulx3s", 1, "memory at 0x4"), ("ecpix5", 0, "BOARD of device")])
def test_weft_board_memory(board: str, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capfd: pytest.CaptureFixture[str]) -> None:
    """Of an ulx3s; ``code`` 1: with a stuck address line."""
    model = Model([(2, range(1, 6)), (0, range(5, 8))], stuck=12 if code else None)
    registers = {"IDENTITY": IDENTITY, "STATUS": 1 << Status.IDLE, "BOARD": board_code("ulx3s")}
    model.words |= {0x9000_0000 + CONTROL_REGISTERS[name].offset: value for name, value in registers.items()}
    monkeypatch.setattr(uartbone, "open_serial", lambda port, baud: model)
    (tmp_path / board).mkdir()
    (tmp_path / board / "shell.json").write_text(json.dumps({**shell(), "board": board}))
    assert exit_code(["board", "memory", "serial:/dev/null", "--board", board, "-o", str(tmp_path)]) == (says[0] != "b")
    said = capfd.readouterr()
    assert says in said.out + said.err
    assert ("1 MiB tested at every address bit: fine" in said.out) == (says[0] == "b")


def on_chip() -> dict[str, Any]:
    """Of a board without DRAM: 8, 32 and 16 KiB."""
    sizes = {"dram0": 8 << 10, "dram1": 32 << 10, "program": 16 << 10}
    kept = {key: value for key, value in shell().items() if key != "dram"}
    return {**kept, "board": "tang_nano_20k", "memory": {"base": MEMORY_BASE, "bytes": 0x24000},
            "windows": {name: {"base": MEMORY_BASE + number * 0x10000, "bytes": size}
                        for number, (name, size) in enumerate(sizes.items())}}


@pytest.mark.parametrize(("stuck", "says"), [(None, "56 KiB tested at every address bit: fine"), (12, "memory at 0x4")])
def test_on_chip_memory_is_only_tested(stuck: int | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capfd: pytest.CaptureFixture[str]) -> None:
    model = Model([], stuck)
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
    file.write_text(json.dumps({**shell(), **change}))
    with pytest.raises(WeftError, match=says):
        ShellFile.load(file)
    file.write_text("[1]")
    with pytest.raises(WeftError, match="build/boards"):
        ShellFile.load(file)
