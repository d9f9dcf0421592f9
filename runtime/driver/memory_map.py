# SPDX-License-Identifier: Apache-2.0
"""Addresses of a machine's registers and memories, for the host's side of the bridge and for the machine's ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.registers import Register
from weft.support.errors import WeftError, explain

MEMORIES = ("dram0", "dram1", "program")
OFFSETS = {"dram0": Register.DRAM0_OFFSET, "dram1": Register.DRAM1_OFFSET}
"""DRAM window -> the register that moves it."""


@dataclass(frozen=True)
class Region:
    """A region of ``size`` bytes of memory: at ``bus`` for the host, at ``machine`` for the machine's ports."""

    bus: int
    machine: int
    size: int


@dataclass(frozen=True)
class MemoryMap:
    """The places of registers and memories.

    ``registers``: byte address of the control registers for the host. ``regions``: of each of MEMORIES; several may
    share one region."""

    registers: int
    regions: Mapping[str, Region]

    @classmethod
    def shared(cls, registers: int, region: Region) -> MemoryMap:
        """Return the map with one memory for everything."""
        return cls(registers, dict.fromkeys(MEMORIES, region))


LITEX_REGISTERS, LITEX_MEMORY, LITEX_BYTES = 0x9000_0000, 0x4000_0000, 32 << 20
"""The places in LiteX shells: the machine's registers, the DRAM, and the DRAM of the smallest board."""


@dataclass(frozen=True)
class Places:
    """The first address of each memory within its region; for the machine these are multiples of DRAM_OFFSET_BYTES."""

    memory_map: MemoryMap
    starts: Mapping[str, int]

    def bus(self, memory: str) -> int:
        """Return the host's byte address of a memory."""
        return self.memory_map.regions[memory].bus + self.starts[memory]

    def machine(self, memory: str) -> int:
        """Return the machine's byte address of a memory."""
        return self.memory_map.regions[memory].machine + self.starts[memory]

    def blocks(self, memory: str) -> int:
        """Return the value of a window's offset register."""
        return self.machine(memory) // DRAM_OFFSET_BYTES


def place(memory_map: MemoryMap, needs: Mapping[str, int], arch: Arch, owner: str) -> Places:
    """Return places with ``needs`` bytes for each memory, one after another if they share a region.

    Raise WeftError if the model ``owner`` does not fit."""
    starts: dict[str, int] = {}
    ends: dict[Region, int] = {}
    for memory in MEMORIES:
        region = memory_map.regions[memory]
        machine = region.machine + ends.get(region, 0)
        starts[memory] = -(-machine // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES - region.machine
        ends[region] = starts[memory] + needs[memory]
        if ends[region] > region.size:
            sharing = [each for each in MEMORIES if memory_map.regions[each] == region]
            raise WeftError(explain(
                f"model {owner}", f"{sum(needs[each] for each in sharing)} bytes "
                f"({', '.join(f'{each} {needs[each]}' for each in sharing)})",
                f"{region.size} bytes of memory of this device", "use a board with more memory, or a smaller model"))
    places = Places(memory_map, starts)
    for memory, register in OFFSETS.items():
        most = Isa(arch).registers[register].maximum
        if places.blocks(memory) > most:
            raise WeftError(explain(f"{memory} of model {owner}", f"address {places.machine(memory):#x}",
                                    f"up to {most * DRAM_OFFSET_BYTES:#x}, for the whole window must lie within "
                                    f"{arch.axi_address_width} address bits", f"lower {memory}_depth"))
    return places
