# SPDX-License-Identifier: Apache-2.0
"""Machines behind a bridge, as targets of a device string."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.hw.contract.arch import Arch
from weft.runtime.devices import Backend
from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.built_shells import shell_of
from weft.runtime.driver.checked_bridge import CheckedBridge
from weft.runtime.driver.dram_start import DramController, Leveling, check_memory
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.driver.needs import needs_of
from weft.runtime.driver.register_machine import RegisterMachine
from weft.runtime.driver.registers import Registers, check_board, check_there
from weft.runtime.driver.sample_ring import SampleRing
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.driver.simulated import SimulatedTransport
from weft.runtime.driver.transport import PROGRAM_SECONDS, Transport
from weft.runtime.run_settings import RunSettings
from weft.support.errors import WeftError, explain
from weft.tmodel.network import Network


def litex_map(options: Mapping[str, Any]) -> MemoryMap:
    """Return the memory map of a LiteX shell, from a device's options."""
    region = Region(bus=options["memory"], machine=0, size=options["bytes"])
    return MemoryMap.shared(options["registers"], region)


def shell_map(shell: ShellFile) -> MemoryMap:
    """Return the memory map of a shell, from the file beside its bitstream."""
    if shell.windows:
        return MemoryMap(shell.machine_base, {
            name: Region(bus=place.base, machine=place.base - shell.memory.base, size=place.bytes)
            for name, place in shell.windows.items()})
    return litex_map({"registers": shell.machine_base, "memory": shell.memory.base, "bytes": shell.memory.bytes})


def litex_target(transport: Transport, options: Mapping[str, Any]) -> LinkTarget:
    """Return a board behind a link; its DRAM is started unless it was started since the bitstream was loaded.

    The option ``shell`` names the ``shell.json`` of the bitstream, which says where everything is. Without it the board
    says which one is its own. Raise WeftError if the board is not there."""
    try:
        given = ShellFile.load(Path(options["shell"])) if options["shell"] else None
    except BaseException:
        transport.close()
        raise
    target = LinkTarget(transport, shell_map(given) if given else litex_map(options), options["seconds"])
    try:
        target.use(given or shell_of(target.registers, target.name))
    except BaseException:
        target.close()
        raise
    return target


class SimulatedTarget:
    """The simulated hardware, which starts when its machine is known."""

    def __init__(self, name: str, arch: Arch | None, seconds: float,
                 settings: RunSettings = RunSettings()) -> None:  # noqa: B008 - it is frozen
        self.name, self.arch, self._seconds, self.settings = name, arch, seconds, settings
        self._links: dict[Arch, LinkTarget] = {}

    def backend(self, model: Network, arch: Arch) -> Backend:
        """Return the simulated machine ``arch``; a simulation of another machine ends."""
        if arch not in self._links:
            self.close()
            transport = SimulatedTransport(arch)
            self._links[arch] = LinkTarget(transport, transport.memory_map, self._seconds)
            self._links[arch].settings = self.settings
        return self._links[arch].backend(model, arch)

    def close(self) -> None:
        """End the simulation."""
        while self._links:
            self._links.popitem()[1].close()


class LinkTarget:
    """A machine behind a bridge. Opening it raises WeftError if it is not there, or is used by others."""

    arch: Arch | None = None
    shell: ShellFile | None = None
    clock_hz: float | None = None
    """The machine's clock, if a shell says it."""
    settings = RunSettings()
    """What each program finds set."""
    leveling: Leveling | None = None
    """The leveling of the DRAM; None if it was started before, or nothing has to start."""

    def __init__(self, transport: Transport, memory_map: MemoryMap, seconds: float = PROGRAM_SECONDS) -> None:
        bridge = Bridge(transport)
        self.bridge: Bridge = bridge
        self.name, self.memory_map, self._seconds = bridge.name, memory_map, seconds
        self.registers = Registers(bridge, memory_map.registers)
        try:
            check_there(self.registers, self.name)
            self.registers.write("SCRATCH", bridge.mark)
        except BaseException:
            bridge.close()
            raise

    def use(self, shell: ShellFile | None) -> None:
        """Take a shell and start its DRAM, unless it was started. Raise WeftError."""
        if shell is None:
            return
        check_board(self.registers, shell.board, self.name)
        self.take(shell)
        if shell.dram and not DramController(self.bridge, shell).started:
            self.start(shell)

    def take(self, shell: ShellFile) -> None:
        """Set the memory map that the shell describes. If it has a witness, the bridge uses it from now on."""
        self.shell, self.memory_map, self.clock_hz = shell, shell_map(shell), shell.clock_hz
        if shell.witness is not None:
            self.watch(shell.witness)

    def watch(self, witness: int) -> None:
        """Use the witness at an address of the bus from now on."""
        self.bridge = CheckedBridge(self.bridge, witness)
        self.registers = Registers(self.bridge, self.memory_map.registers)

    def start(self, shell: ShellFile) -> None:
        """Start the DRAM and test it. Raise WeftError if it fails."""
        self.leveling = DramController(self.bridge, shell).start()
        check_memory(self.bridge, shell.memory.base, shell.memory.bytes)

    def backend(self, model: Network, arch: Arch) -> Backend:
        """Return the machine as a backend for a model. Raise WeftError if it is another machine."""
        return RegisterMachine(self.bridge, self.memory_map, arch, needs_of(model, arch.cores), model.name,
                               self._seconds, self.settings, self._ring(), self.clock_hz)

    def _ring(self) -> SampleRing | None:
        """Return the ring of samples if they are asked for. Raise WeftError if the shell has none."""
        if not self.settings.sample_cycles:
            return None
        if self.shell is None or self.shell.samples is None:
            raise WeftError(explain(f"samples on device {self.name}", "no ring of samples in its shell",
                                    "a LiteX board whose shell.json names one", "build its bitstream again, or take "
                                    "samples on rtl (weft run --on rtl --samples CYCLES)"))
        return SampleRing(self.bridge, self.shell.samples)

    def close(self) -> None:
        """Close the link."""
        self.bridge.close()
