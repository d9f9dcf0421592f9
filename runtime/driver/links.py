"""Machines behind a bridge, as targets of a device string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.hw.contract.arch import Arch
from weft.runtime.devices import Backend
from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.driver.needs import needs_of
from weft.runtime.driver.register_machine import RegisterMachine, Registers, check_there
from weft.runtime.driver.simulated import SimulatedTransport
from weft.runtime.driver.transport import PROGRAM_SECONDS, Transport
from weft.runtime.network import Network


def litex_map(options: Mapping[str, Any]) -> MemoryMap:
    """Of a shell in boards/, with a device's options."""
    region = Region(bus=options["memory"], machine=0, size=options["bytes"])
    return MemoryMap.shared(options["registers"], region)


class SimulatedTarget:
    """The simulated hardware, which starts when its machine is known."""

    def __init__(self, name: str, arch: Arch | None, seconds: float) -> None:
        self.name, self.arch, self._seconds = name, arch, seconds
        self._links: dict[Arch, LinkTarget] = {}

    def backend(self, model: Network, arch: Arch) -> Backend:
        if arch not in self._links:
            self.close()
            transport = SimulatedTransport(arch)
            self._links[arch] = LinkTarget(transport, transport.memory_map, self._seconds)
        return self._links[arch].backend(model, arch)

    def close(self) -> None:
        while self._links:
            self._links.popitem()[1].close()


class LinkTarget:
    """A machine behind a bridge. Raises WeftError when it is not there, or is used by others."""

    arch: Arch | None = None

    def __init__(self, transport: Transport, memory_map: MemoryMap, seconds: float = PROGRAM_SECONDS) -> None:
        self.bridge = bridge = Bridge(transport)
        self.name, self.memory_map, self._seconds = bridge.name, memory_map, seconds
        try:
            check_there(Registers(bridge, memory_map.registers), self.name)
        except BaseException:
            bridge.close()
            raise

    def backend(self, model: Network, arch: Arch) -> Backend:
        return RegisterMachine(self.bridge, self.memory_map, arch, needs_of(model), model.name, self._seconds)

    def close(self) -> None:
        self.bridge.close()
