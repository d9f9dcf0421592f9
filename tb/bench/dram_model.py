# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's registers, a PHY with windows of its own and its chip: what the host's start of a board's DRAM sees.

``BoardModel`` puts the golden machine behind them: a whole board, whose memory holds nothing until it was started."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import board_code
from weft.runtime.driver.dram_start import ACTIVATE, HARDWARE, PRECHARGE, READ, SOFTWARE, WRITE, Setting
from weft.tb.bench.register_model import NOTHING, litex_model

LANES, PHASES, BITSLIPS, DELAYS, BYTES = 2, 2, 4, 8, 8
MEMORY_BASE, MEMORY_BYTES = 0x4000_0000, 1 << 20


def description(leveling: bool = True, artix: bool = False) -> dict[str, Any]:
    """Return the shell.json of an ECP5's DDR3: two phases of 64 bits, two byte lanes.

    ``artix``: with the registers of an Artix's PHY."""
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
    return {"board": "model", "clock_hz": 75_000_000, "baud": 3_000_000, "machine_base": 0x9000_0000,
            "memory": {"base": MEMORY_BASE, "bytes": MEMORY_BYTES}, "registers": places, "arch": {},
            "dram": {"kind": "DDR3", "phases": PHASES, "data_bits": 8 * LANES, "read_phase": 0, "write_phase": 1,
                     "bitslips": BITSLIPS if leveling else 0, "delays": DELAYS if leveling else 0,
                     "start": [{**step, "control": True, "command": 12}, {**step, "control": True, "command": SOFTWARE},
                               {**step, "control": False, "command": 15, "address": 800, "bank": 2}]}}


class DramModel:
    """A transport to the registers.

    A lane reads right with the bitslip of its window and the delays in it. With ``write_turns`` it reads right only
    what was written with that many turns of the lane."""

    name, most_words = "model", 64

    def __init__(self, windows: list[tuple[int, range]], stuck: int | None = None,
                 write_turns: list[int] | None = None) -> None:
        self.places = description(artix=write_turns is not None)["registers"]
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
        return np.array([self.word(address + 4 * at) for at in range(count)], np.uint32)

    def write(self, address: int, words: np.ndarray) -> None:
        for at, word in enumerate(words):
            self.put(address + 4 * at, int(word))

    def resynchronise(self) -> bool:
        return False

    def seconds(self) -> float:
        return 0.0

    def pause(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass

    def _place(self, address: int) -> int:
        """Return the place of an address in memory, where an address bit may be stuck at 0."""
        return address if self.stuck is None or address < MEMORY_BASE else address & ~(1 << self.stuck)

    def word(self, address: int) -> int:
        name, word = self.names.get(address, ("", 0))
        if name.endswith("_rddata"):
            phase = int(name[len("sdram_dfii_pi")])
            value = int.from_bytes(self.burst[phase * BYTES:(phase + 1) * BYTES], "little")
            return value >> 32 * (1 - word) & 0xFFFF_FFFF
        return self.seen if name == "dram_phy_burstdet_seen" else self.words.get(self._place(address), 0)

    def put(self, address: int, word: int) -> None:
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
        if self.register("sdram_dfii_control") != SOFTWARE:
            return  # the controller has the chip
        command = self.register(f"sdram_dfii_pi{phase}_command")
        self.commands.append((phase, command))
        if command in (ACTIVATE, PRECHARGE):
            self.row_open = command == ACTIVATE
        elif command == WRITE and phase == 1:
            assert self.row_open
            self.array = b"".join(self.register(f"sdram_dfii_pi{each}_wrdata").to_bytes(BYTES, "little")
                                  for each in range(PHASES))
        elif command == READ and phase == 0:
            assert self.row_open
            works = [setting.bitslip == bitslip and setting.delay in delays and turns == needed
                     for setting, (bitslip, delays), turns, needed in
                     zip(self.settings, self.windows, self.turns, self.needed, strict=True)]
            self.burst = bytes(byte if works[at % LANES] else byte ^ 0x41 for at, byte in enumerate(self.array))
            self.seen = sum(1 << lane for lane, right in enumerate(works) if right)


class BoardModel:
    """A Bus: the board ``name`` with a machine of ``arch``, just after its bitstream was loaded."""

    def __init__(self, arch: Arch, name: str) -> None:
        self.machine = litex_model(arch, MEMORY_BYTES)
        self.machine.values["BOARD"] = board_code(name)
        self.dram = DramModel([(2, range(1, 6)), (0, range(5, 8))])
        self.values = self.machine.values

    @property
    def started(self) -> bool:
        """Whether the controller has a chip that is read as it was written."""
        return self.dram.register("sdram_dfii_control") == HARDWARE and all(
            setting.bitslip == bitslip and setting.delay in delays
            for setting, (bitslip, delays) in zip(self.dram.settings, self.dram.windows, strict=True))

    def read(self, address: int) -> int:
        if address in self.dram.names:
            return self.dram.word(address)
        return self.machine.read(address) if self.started or not _in_memory(address) else NOTHING

    def write(self, address: int, word: int) -> None:
        if address in self.dram.names:
            self.dram.put(address, word)
        elif self.started or not _in_memory(address):
            self.machine.write(address, word)


def _in_memory(address: int) -> bool:
    return MEMORY_BASE <= address < MEMORY_BASE + MEMORY_BYTES


def board_description(arch: Arch, name: str, **changes: Any) -> dict[str, Any]:
    """Return the shell.json of a BoardModel."""
    return {**description(), "board": name, "arch": arch.to_dict(), **changes}
