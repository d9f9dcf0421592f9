# SPDX-License-Identifier: Apache-2.0
"""A system of machines: its cores, the memory ports that they share, and the places of their registers.

An ``Arch`` describes one core and says how many there are. A system of one core is that core, with ports of its own."""

from __future__ import annotations

from dataclasses import dataclass

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import ADDRESS_WIDTH, SYSTEM_PAGE
from weft.hw.contract.units import Memory


@dataclass(frozen=True)
class NamedMemory:
    """A memory of a core, of ``depth`` vectors."""

    kind: Memory
    core: int
    depth: int


@dataclass(frozen=True)
class System:
    """The system of ``arch``'s cores, numbered from 0."""

    arch: Arch

    @property
    def cores(self) -> range:
        """The numbers of all cores."""
        return range(self.arch.cores)

    @property
    def ports(self) -> range:
        """The numbers of all memory ports."""
        return range(self.arch.memory_ports)

    def port_of(self, core: int) -> int:
        """Return the memory port that carries a core's reads, writes and program."""
        return core % self.arch.memory_ports

    def cores_of(self, port: int) -> tuple[int, ...]:
        """Return the cores behind a memory port, in ascending order, in which they take turns."""
        return tuple(core for core in self.cores if self.port_of(core) == port)

    def memories_of(self, core: int) -> dict[str, NamedMemory]:
        """Return the memories of a core, by the names that the core's own program has for them."""
        depths = {Memory.LOCAL: self.arch.local_depth, Memory.ACCUMULATORS: self.arch.accumulator_depth,
                  Memory.DRAM0: self.arch.dram0_depth, Memory.DRAM1: self.arch.dram1_depth}
        return {kind.value: NamedMemory(kind, core, depth) for kind, depth in depths.items()}

    @property
    def memories(self) -> dict[str, NamedMemory]:
        """Every memory of all cores by a name of its own: ``local``, or ``core1.local`` where there are several."""
        return {name if self.is_single else f"core{core}.{name}": memory
                for core in self.cores for name, memory in self.memories_of(core).items()}

    @property
    def is_single(self) -> bool:
        """Whether there is only one core, which has ports and registers as if there were no system."""
        return self.arch.cores == 1


def page_address(page: int) -> int:
    """Return the byte address of a page of control registers.

    ``page``: a core's number, or ``SYSTEM_PAGE``."""
    assert 0 <= page <= SYSTEM_PAGE
    return page << ADDRESS_WIDTH
