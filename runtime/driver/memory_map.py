"""Where a machine's registers and memories are, for the host's side of the bridge and for the machine's ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.support.errors import WeftError, explain

from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register

MEMORIES = ("dram0", "dram1", "program")
OFFSETS = {"dram0": Register.DRAM0_OFFSET, "dram1": Register.DRAM1_OFFSET}
"""The register that moves a window."""


@dataclass(frozen=True)
class Region:
    """``size`` bytes of memory: at ``bus`` for the host, at ``machine`` for the machine's ports."""

    bus: int
    machine: int
    size: int


@dataclass(frozen=True)
class MemoryMap:
    """``registers``: byte address of the control registers for the host. ``regions``: of each of MEMORIES; several may
    share one region."""

    registers: int
    regions: Mapping[str, Region]

    @classmethod
    def shared(cls, registers: int, region: Region) -> MemoryMap:
        """One memory for everything."""
        return cls(registers, dict.fromkeys(MEMORIES, region))


LITEX_REGISTERS, LITEX_MEMORY, LITEX_BYTES = 0x9000_0000, 0x4000_0000, 32 << 20
"""Of the shells in boards/: the machine's registers, the DRAM, and as much of it as the smallest board has."""


@dataclass(frozen=True)
class Places:
    """Where each memory begins, within its region; multiples of DRAM_OFFSET_BYTES for the machine."""

    memory_map: MemoryMap
    starts: Mapping[str, int]

    def bus(self, memory: str) -> int:
        return self.memory_map.regions[memory].bus + self.starts[memory]

    def machine(self, memory: str) -> int:
        return self.memory_map.regions[memory].machine + self.starts[memory]

    def blocks(self, memory: str) -> int:
        """What the window's offset register must hold."""
        return self.machine(memory) // DRAM_OFFSET_BYTES


def place(memory_map: MemoryMap, needs: Mapping[str, int], arch: Arch, owner: str) -> Places:
    """Room for ``needs`` bytes of each memory, one behind another where they share a region.

    Raises WeftError where the model ``owner`` does not fit.
    """
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
