# SPDX-License-Identifier: Apache-2.0
"""Starts a board's DRAM from the host: the chip's mode registers, read leveling, memory test.

LiteDRAM's controller has no processor here to do so. Until it has the chip, the host gives the chip's commands by
hand, one at a time, through the controller's registers. What ``shell.json`` says is all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.shell_file import ShellFile
from weft.support.errors import WeftError, explain

SOFTWARE, HARDWARE = 0b1110, 0b0001
"""The values of ``sdram_dfii_control``: the host drives the chip, or the controller does.

The host's value sets clock enable and termination, without reset."""
STARTED = 0x4452_414D
"""The mark of a started memory, "DRAM" in ASCII."""
CHIP_SELECT, WRITE_ENABLE, COLUMN, ROW, DATA_OUT, DATA_IN = (1 << bit for bit in range(6))
ACTIVATE, PRECHARGE = ROW | CHIP_SELECT, ROW | WRITE_ENABLE | CHIP_SELECT
WRITE, READ = COLUMN | WRITE_ENABLE | CHIP_SELECT | DATA_OUT, COLUMN | CHIP_SELECT | DATA_IN
PATTERNS = 3
"""The number of pseudo-random bursts that a setting must read back."""
WRITE_TURN = "wdly_dq_bitslip"
"""The register of PHYs that shift the serial data that they write."""
WORD_BITS = 32
TEST_WORDS = 256
"""The words of each place that the memory test checks."""


@dataclass(frozen=True)
class Setting:
    """The setting of a byte lane: bits by which its serial data are shifted, and taps of its delay line."""

    bitslip: int
    delay: int


Works = tuple[tuple[bool, ...], ...]
"""The settings of a lane that work: [bitslip][delay]."""


@dataclass(frozen=True)
class Leveling:
    """The settings that work, and the chosen one, for each lane; empty for memory without leveling."""

    works: tuple[Works, ...]
    chosen: tuple[Setting, ...]

    def __str__(self) -> str:
        """Return a map, one row for each lane and bitslip: # works, . does not, O is chosen."""
        rows = []
        for lane, bitslips in enumerate(self.works):
            for bitslip, delays in enumerate(bitslips):
                marks = ["#" if works else "." for works in delays]
                if self.chosen[lane].bitslip == bitslip:
                    marks[self.chosen[lane].delay] = "O"
                rows.append(f"byte lane {lane}, bitslip {bitslip}: {''.join(marks)}")
        return "\n".join(rows) or "this memory needs no leveling"


class DramController:
    """The registers of LiteDRAM and its PHY, behind a bridge."""

    def __init__(self, bridge: Bridge, shell: ShellFile) -> None:
        """Take the ``shell`` of a board with DRAM."""
        assert shell.dram is not None
        self.bridge, self.registers, self.dram, self.clock_hz = bridge, shell.registers, shell.dram, shell.clock_hz
        self.lanes = self.dram.data_bits // 8

    # -- registers -----------------------------------------------------------------------------------------------------
    def read(self, name: str) -> int:
        """Return a register's value; of several words the highest comes first."""
        place = self.registers[name]
        words = self.bridge.read(place.address, place.words)
        return sum(int(word) << WORD_BITS * at for at, word in enumerate(reversed(words)))

    def write(self, name: str, value: int) -> None:
        """Write a register; of several words the highest comes first."""
        place = self.registers[name]
        words = [value >> WORD_BITS * at & 0xFFFF_FFFF for at in reversed(range(place.words))]
        self.bridge.write(place.address, np.array(words, np.uint32))

    def pulse(self, name: str) -> None:
        """Write a register that acts when it is written, and keeps nothing."""
        self.bridge.command(self.registers[name].address, 1)

    def wait(self, cycles: int) -> None:
        """Wait for some clock cycles of the machine."""
        self.bridge.pause(cycles / self.clock_hz)

    def command(self, phase: int, command: int, address: int = 0, bank: int = 0) -> None:
        """Give the chip one command."""
        self.write(f"sdram_dfii_pi{phase}_address", address)
        self.write(f"sdram_dfii_pi{phase}_baddress", bank)
        self.write(f"sdram_dfii_pi{phase}_command", command)
        self.pulse(f"sdram_dfii_pi{phase}_command_issue")

    # -- start ---------------------------------------------------------------------------------------------------------
    @property
    def started(self) -> bool:
        """Whether the memory was started since the bitstream was loaded; a scratch register tells."""
        return self.read("ctrl_scratch") == STARTED

    def start(self) -> Leveling:
        """Start the chip and give it to the controller; return the leveling.

        Raise WeftError if no setting reads back what was written."""
        self.write("sdram_dfii_control", SOFTWARE)
        for step in self.dram.start:
            if step.control:
                self.write("sdram_dfii_control", step.command)
            else:
                self.command(0, step.command, step.address, step.bank)
            self.wait(step.wait)
        try:
            found = self.level()
        finally:
            self.write("sdram_dfii_control", HARDWARE)
        self.write("ctrl_scratch", STARTED)
        return found

    # -- leveling ------------------------------------------------------------------------------------------------------
    def level(self) -> Leveling:
        """Try every setting of every lane, and set each lane to the middle of its widest window."""
        if not self.dram.bitslips:
            return Leveling((), ())
        works = tuple(self._scan_lane(lane) for lane in range(self.lanes))
        chosen = tuple(best(lane, each) for lane, each in enumerate(works))
        for lane, setting in enumerate(chosen):
            self._set(lane, setting)
        return Leveling(works, chosen)

    def _scan_lane(self, lane: int) -> Works:
        """Return the settings of a lane that work.

        A PHY that also shifts its write data (that of Artix) is left with the write shift that reads back best."""
        if f"dram_phy_{WRITE_TURN}" not in self.registers:
            return self._scan_reads(lane)
        found = {}
        for turns in range(0, self.dram.bitslips, 2):  # a turn is an edge, and data begin with a whole clock
            self._repeat(lane, WRITE_TURN, f"{WRITE_TURN}_rst", turns)
            found[turns] = self._scan_reads(lane)
        turns = max(found, key=lambda each: widest(found[each])[0])
        self._repeat(lane, WRITE_TURN, f"{WRITE_TURN}_rst", turns)
        return found[turns]

    def _scan_reads(self, lane: int) -> Works:
        """Return the read settings of a lane that work."""
        return tuple(tuple(self._scan(lane, bitslip)) for bitslip in range(self.dram.bitslips))

    def _scan(self, lane: int, bitslip: int) -> Iterator[bool]:
        """Yield for each delay whether it works, with this bitslip."""
        self._set(lane, Setting(bitslip, 0))
        for delay in range(self.dram.delays):
            if delay:
                self._turn(lane, "rdly_dq_inc")
            yield all(self._comes_back(lane, seed) for seed in range(PATTERNS))

    def _set(self, lane: int, setting: Setting) -> None:
        """Set the bitslip and delay of a lane."""
        self._repeat(lane, "rdly_dq_bitslip", "rdly_dq_bitslip_rst", setting.bitslip)
        self._repeat(lane, "rdly_dq_inc", "rdly_dq_rst", setting.delay)

    def _repeat(self, lane: int, what: str, back: str, times: int) -> None:
        """Reset a lane's setting by the register ``back``, then increment it ``times`` times."""
        self._turn(lane, back)
        for _ in range(times):
            self._turn(lane, what)

    def _turn(self, lane: int, what: str) -> None:
        """Pulse a PHY register for one lane."""
        self.write("dram_phy_dly_sel", 1 << lane)
        self.pulse(f"dram_phy_{what}")
        self.write("dram_phy_dly_sel", 0)

    def _comes_back(self, lane: int, seed: int) -> bool:
        """Tell whether one burst into the first row is read as it was written, in the bytes of a lane."""
        phases = range(self.dram.phases)
        size = self.registers["sdram_dfii_pi0_wrdata"].words * WORD_BITS // 8
        bursts = np.random.default_rng(seed).bytes(size * len(phases))
        patterns = [bursts[size * phase:size * (phase + 1)] for phase in phases]
        self.command(0, ACTIVATE)
        for phase in phases:
            self.write(f"sdram_dfii_pi{phase}_wrdata", int.from_bytes(patterns[phase], "little"))
        self.command(self.dram.write_phase or 0, WRITE)
        watched = "dram_phy_burstdet_seen" in self.registers  # the PHY of ECP5 says whether it saw a burst at all
        if watched:
            self.pulse("dram_phy_burstdet_clr")
        self.command(self.dram.read_phase or 0, READ)
        found = [self.read(f"sdram_dfii_pi{phase}_rddata").to_bytes(size, "little") for phase in phases]
        seen = not watched or self.read("dram_phy_burstdet_seen") >> lane & 1
        self.command(0, PRECHARGE)
        return bool(seen) and all(there[lane::self.lanes] == wanted[lane::self.lanes]
                                  for there, wanted in zip(found, patterns, strict=True))


def widest(works: Sequence[Sequence[bool]]) -> tuple[int, Setting]:
    """Return the length and the middle of the longest run of working delays of all bitslips; length 0 if none works."""
    windows = [(0, Setting(0, 0))]
    for bitslip, delays in enumerate(works):
        for good, run in groupby(range(len(delays)), key=delays.__getitem__):
            places = list(run)
            if good:
                windows.append((len(places), Setting(bitslip, places[len(places) // 2])))
    return max(windows, key=lambda window: window[0])


def best(lane: int, works: Sequence[Sequence[bool]]) -> Setting:
    """Return the middle of the widest window. Raise WeftError if there is none."""
    width, setting = widest(works)
    if not width:
        raise WeftError(explain(f"byte lane {lane} of the memory", "no setting that reads what was written",
                                "one window of delays", "load the bitstream again; lower the clock (--mhz)"))
    return setting


def check_memory(bridge: Bridge, base: int, size: int, seed: int = 0) -> None:
    """Write and read random words at every power of two and at the end. Raise WeftError with the first wrong bits.

    All places are written before the first is read, so that stuck address lines show as words of another place."""
    places = sorted({0, size - 4 * TEST_WORDS, *(1 << bit for bit in range(10, (size - 1).bit_length()))})
    random = np.random.default_rng(seed)
    contents = {place: random.integers(0, 1 << WORD_BITS, TEST_WORDS, np.uint32) for place in places}
    for place, words in contents.items():
        bridge.release(base + place, TEST_WORDS)
        bridge.write(base + place, words)
    for place, words in contents.items():
        found = bridge.read(base + place, TEST_WORDS)
        wrong = np.flatnonzero(found != words)
        if len(wrong):
            at = int(wrong[0])
            raise WeftError(explain(
                f"memory at {base + place + 4 * at:#x}",
                f"{found[at]:#010x} ({len(wrong)} of {TEST_WORDS} words differ)",
                f"{words[at]:#010x}, which was written", "start the memory again; lower the clock (--mhz)"))
        bridge.release(base + place, TEST_WORDS)
