"""``shell.json``: what a board's shell tells the driver; made with the bitstream (``boards/shell/generate.py``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from weft.hw.contract.errors import WeftError, explain
from weft.hw.contract.strict_json import read_object
from weft.runtime.driver.memory_map import MEMORIES


class MemoryPlace(msgspec.Struct, frozen=True):
    """Memory on the bus, in bytes."""

    base: int
    bytes: int


class RegisterPlace(msgspec.Struct, frozen=True):
    """A register on the bus, its highest word first."""

    address: int
    words: int


class StartStep(msgspec.Struct, frozen=True):
    """One step of the chip's start: a command to it, or with ``control`` a value of the controller's own register; then
    ``wait`` clock cycles."""

    what: str
    address: int
    bank: int
    control: bool
    command: int
    wait: int


class DramChip(msgspec.Struct, frozen=True):
    """``bitslips`` and ``delays``: settings of each byte lane that leveling has to try, 0 for memory without."""

    kind: str
    phases: int
    data_bits: int
    read_phase: int | None
    write_phase: int | None
    bitslips: int
    delays: int
    start: list[StartStep]


class ShellFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``memory``: what the machine sees from address 0. ``windows``: on-chip memories within it, by MEMORIES; a board
    has either these or ``dram``."""

    board: str
    clock_hz: int
    machine_base: int
    memory: MemoryPlace
    registers: dict[str, RegisterPlace]
    arch: dict[str, Any]
    dram: DramChip | None = None
    windows: dict[str, MemoryPlace] = {}

    @property
    def places(self) -> list[MemoryPlace]:
        """All memory that there is."""
        return list(self.windows.values()) or [self.memory]

    @classmethod
    def load(cls, path: Path) -> ShellFile:
        """Raises WeftError."""
        allowed, way_out = "the shell.json of a bitstream", "give the one in build/boards/BOARD, beside the bitstream"
        content = read_object(path, "shell", allowed, way_out)
        try:
            return cls.of(content)
        except ValueError as error:
            raise WeftError(explain(f"shell {path}", str(error), allowed, way_out)) from None

    @classmethod
    def of(cls, content: dict[str, Any]) -> ShellFile:
        """Raises ValueError."""
        found = msgspec.convert(content, cls)
        if found.dram is None:
            missing = sorted(set(MEMORIES) - set(found.windows))
            if missing:
                raise ValueError(f"neither a DRAM nor an on-chip memory {missing[0]}")
            return found
        phases = range(found.dram.phases)
        needed = {"ctrl_scratch", "sdram_dfii_control",
                  *(f"sdram_dfii_pi{phase}_{name}" for phase in phases
                    for name in ("command", "command_issue", "address", "baddress", "wrdata", "rddata"))}
        if found.dram.bitslips:
            needed |= {f"dram_phy_{name}" for name in ("dly_sel", "rdly_dq_rst", "rdly_dq_inc", "rdly_dq_bitslip_rst",
                                                       "rdly_dq_bitslip")}
        missing = sorted(needed - set(found.registers))
        if missing or not 1 <= found.dram.phases <= 8 or found.dram.data_bits < 8:
            raise ValueError(f"no register {missing[0]}" if missing else "a memory without phases or byte lanes")
        return found
