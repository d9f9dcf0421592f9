# SPDX-License-Identifier: Apache-2.0
"""The file ``shell.json``: what the driver must know of a board's shell; it is made with the bitstream.

``boards/shell/generate.py`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from weft.runtime.driver.memory_map import MEMORIES
from weft.support.errors import WeftError, explain
from weft.support.strict_json import read_object
from weft.support.structs import Meta, Struct, convert

BUILT = Path("build/boards")
"""The folder in which ``weft board build`` leaves a folder for each board."""
NAME = "shell.json"
LEAST_BAUD, MOST_BAUD = 1_200, 12_000_000
BAUD = 3_000_000
"""The rate of shells whose file does not state another one."""
REACH = 1 << 32
"""The bytes that the bus addresses."""

Address = Annotated[int, Meta(ge=0, lt=REACH, multiple_of=4)]
Word = Annotated[int, Meta(ge=0, lt=REACH)]


class MemoryPlace(Struct, frozen=True):
    """Memory on the bus, in bytes."""

    base: Address
    bytes: Annotated[int, Meta(ge=4096, le=REACH, multiple_of=4)]


class RegisterPlace(Struct, frozen=True):
    """A register on the bus, its highest word first."""

    address: Address
    words: Annotated[int, Meta(ge=1, le=64)]


class StartStep(Struct, frozen=True):
    """One step of the memory chip's start.

    It is a command to the chip, or with ``control`` a value of the controller's own register; then ``wait`` clock
    cycles."""

    what: str
    address: Word
    bank: Word
    control: bool
    command: Word
    wait: Annotated[int, Meta(ge=0, le=1_000_000)]


class DramChip(Struct, frozen=True):
    """The DRAM of a board as the driver starts it.

    ``bitslips`` and ``delays``: settings of each byte lane that leveling has to try, 0 for memory without leveling."""

    kind: str
    phases: Annotated[int, Meta(ge=1, le=8)]
    data_bits: Annotated[int, Meta(ge=8, le=128, multiple_of=8)]
    read_phase: Annotated[int, Meta(ge=0, le=7)] | None
    write_phase: Annotated[int, Meta(ge=0, le=7)] | None
    bitslips: Annotated[int, Meta(ge=0, le=16)]
    delays: Annotated[int, Meta(ge=0, le=64)]
    start: Annotated[list[StartStep], Meta(max_length=32)]


class ShellFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``shell.json``.

    ``memory``: what the machine sees from address 0. ``windows``: on-chip memories within it, by MEMORIES; a board has
    either these or ``dram``. ``baud``: of its UART. ``arch``: the machine's parameters. ``witness``: the
    place of the witness of the host's accesses (``witness.py``), ``samples``: that of the ring of samples
    (``sample_ring.py``); shells of 0.1 have none."""

    board: Annotated[str, Meta(min_length=1, max_length=200)]
    clock_hz: Annotated[int, Meta(ge=1_000_000, le=1_000_000_000)]
    machine_base: Address
    memory: MemoryPlace
    registers: dict[str, RegisterPlace]
    arch: dict[str, Any]
    dram: DramChip | None = None
    windows: dict[str, MemoryPlace] = {}
    baud: Annotated[int, Meta(ge=LEAST_BAUD, le=MOST_BAUD)] = BAUD
    witness: Address | None = None
    samples: Address | None = None

    @property
    def places(self) -> list[MemoryPlace]:
        """All memories."""
        return list(self.windows.values()) or [self.memory]

    @classmethod
    def load(cls, path: Path) -> ShellFile:
        """Return the content of a file. Raise WeftError if it is no shell.json."""
        allowed, way_out = f"the {NAME} of a bitstream", f"give the one in {BUILT}/BOARD, beside the bitstream"
        content = read_object(path, "shell", allowed, way_out)
        try:
            return cls.of(content)
        except ValueError as error:
            raise WeftError(explain(f"shell {path}", str(error), allowed, way_out)) from None

    @classmethod
    def of(cls, content: dict[str, Any]) -> ShellFile:
        """Return the content of an object. Raise ValueError if it is wrong."""
        found = convert(content, cls)
        for fault in found._faults():
            raise ValueError(fault)
        return found

    def _faults(self) -> Iterator[str]:
        """Yield faults of fields that fit each alone but not together."""
        missing = sorted(self._needed() - set(self.registers))
        if missing:
            yield f"no register {missing[0]}"
        absent = sorted(set(MEMORIES) - set(self.windows))
        if self.dram is None and absent:
            yield f"neither a DRAM nor an on-chip memory {absent[0]}"
        if self.dram is not None and self.windows:
            yield "a DRAM and on-chip memories"
        unknown = sorted(set(self.windows) - set(MEMORIES))
        if unknown:
            yield f"an on-chip memory {unknown[0]}"
        if any(place.base + place.bytes > REACH for place in (self.memory, *self.windows.values())):
            yield f"memory beyond {REACH:#x}"
        inside = sorted((place.base, place.base + place.bytes) for place in self.windows.values())
        if any(end > start for (_, end), (start, _) in pairwise(inside)) or inside and (
                inside[0][0] < self.memory.base or inside[-1][1] > self.memory.base + self.memory.bytes):
            yield "on-chip memories that overlap, or lie outside memory"
        phases = self.dram.phases if self.dram else 1
        if self.dram and max(self.dram.read_phase or 0, self.dram.write_phase or 0) >= phases:
            yield f"a phase for reads or writes beyond the {phases} that there are"

    def _needed(self) -> set[str]:
        """Return the names of the registers that the start of the memory uses."""
        if self.dram is None:
            return set()
        needed = {"ctrl_scratch", "sdram_dfii_control",
                  *(f"sdram_dfii_pi{phase}_{name}" for phase in range(self.dram.phases)
                    for name in ("command", "command_issue", "address", "baddress", "wrdata", "rddata"))}
        if self.dram.bitslips:
            needed |= {f"dram_phy_{name}" for name in ("dly_sel", "rdly_dq_rst", "rdly_dq_inc", "rdly_dq_bitslip_rst",
                                                       "rdly_dq_bitslip")}
        return needed
