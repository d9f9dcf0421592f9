# SPDX-License-Identifier: Apache-2.0
"""The golden machine behind a register map and one memory: what a driver sees of a board, word by word."""

from __future__ import annotations

from dataclasses import replace

from weft.golden.check import MachineStop
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import (
    CONTROL_REGISTERS,
    SYSTEM_PAGE,
    SYSTEM_REGISTERS,
    Access,
    Command,
    Status,
    parameter_values,
)
from weft.hw.contract.system import page_address
from weft.runtime.driver.memory_map import MemoryMap, Region

NAMES = {register.offset: name for name, register in CONTROL_REGISTERS.items()}
SYSTEM_NAMES = {register.offset: name for name, register in SYSTEM_REGISTERS.items()}
NOTHING = 0xFFFF_FFFF
CYCLES_OF_AN_INSTRUCTION = 7
"""The cycles of an instruction in this model, which is no timing model."""


class RegisterModel:
    """A board: ``read`` and ``write`` of words at bus addresses.

    A program has run when STATUS was read ``patience`` times; ``hangs``: none ever ends."""

    def __init__(self, arch: Arch, memory_map: MemoryMap, patience: int = 2, hangs: bool = False) -> None:
        self.arch, self.map, self.patience, self.hangs = arch, memory_map, patience, hangs
        self.region = memory_map.regions["dram0"]
        self.power_on()

    def power_on(self) -> None:
        """Make everything as at first: what memory held is lost."""
        self.dram = Dram(self.arch)
        self.machine = Machine(self.arch, self.dram, self.dram)
        self.values = dict.fromkeys(CONTROL_REGISTERS, 0) | parameter_values(self.arch)
        self.status, self.looks, self.programs = 1 << Status.IDLE, 0, 0

    def share(self, dram: Dram) -> None:
        """Another core's memory instead of its own."""
        self.dram, self.machine = dram, Machine(self.arch, dram, dram)

    # -- the bus ---------------------------------------------------------------------------------------------------
    def read(self, address: int) -> int:
        name = NAMES.get(address - self.map.registers)
        if name is not None:
            return self._register(name)
        offset = self._offset(address)
        return NOTHING if offset is None else int(self.dram.bytes[offset:offset + 4].view("<u4")[0])

    def write(self, address: int, word: int) -> None:
        name = NAMES.get(address - self.map.registers)
        offset = self._offset(address)
        if name == "CONTROL":
            self._command(word)
        elif name == "INTERRUPT_STATUS":
            self.values[name] &= ~word
        elif name is not None and CONTROL_REGISTERS[name].access is Access.READ_WRITE:
            self.values[name] = word
        elif offset is not None:
            self.dram.bytes[offset:offset + 4].view("<u4")[0] = word

    def _offset(self, address: int) -> int | None:
        """Of a memory's word, as the machine's ports count."""
        offset = address - self.region.bus
        return self.region.machine + offset if 0 <= offset < self.region.size else None

    def _register(self, name: str) -> int:
        if name == "STATUS":
            self.looks += 1
            if self.status >> Status.RUNNING & 1 and self.looks > self.patience and not self.hangs:
                self._run()
            return self.status
        if name == "CONTROL":
            return 0
        return self.values[name] & NOTHING

    # -- programs --------------------------------------------------------------------------------------------------
    def _command(self, word: int) -> None:
        if word >> Command.SOFT_RESET & 1:
            self.machine.soft_reset()
            self.values |= {"ERROR_CAUSE": 0, "ERROR_PROGRAM_COUNTER": 0, "PROGRAM_COUNTER": 0}
            self.status = 1 << Status.IDLE
        elif word >> Command.START & 1:
            self._count(0)
            if self.values["PROGRAM_BYTES"] and not self.status >> Status.ERROR & 1:
                self.status, self.looks = 1 << Status.RUNNING, 0

    def _run(self) -> None:
        self.programs += 1
        start = self.values["PROGRAM_ADDRESS_LOW"] | self.values["PROGRAM_ADDRESS_HIGH"] << 32
        program = self.dram.bytes[start:start + self.values["PROGRAM_BYTES"]].tobytes()
        before = self.machine.instruction_count
        self.status = 1 << Status.IDLE | 1 << Status.DONE
        try:
            self.machine.run(program)
        except MachineStop as stop:
            self.status = 1 << Status.IDLE | 1 << Status.ERROR
            self.values |= {"ERROR_CAUSE": Cause(stop.cause), "ERROR_PROGRAM_COUNTER": stop.program_counter}
        self.values["PROGRAM_COUNTER"] = self.machine.program_counter
        self._count(self.machine.instruction_count - before)

    def _count(self, instructions: int) -> None:
        cycles = instructions * CYCLES_OF_AN_INSTRUCTION
        for name, value in (("INSTRUCTIONS", instructions), ("CYCLES", cycles)):
            self.values |= {f"{name}_LOW": value & NOTHING, f"{name}_HIGH": value >> 32}


class SystemModel:
    """The same of several cores: a page of registers for each, and the system's own."""

    def __init__(self, arch: Arch, memory_map: MemoryMap, patience: int = 2) -> None:
        self.arch, self.map = arch, memory_map
        self.cores = [RegisterModel(arch, replace(memory_map, registers=memory_map.registers + page_address(core)),
                                    patience) for core in range(arch.cores)]
        for core in self.cores[1:]:
            core.share(self.cores[0].dram)
        self._system = memory_map.registers + page_address(SYSTEM_PAGE)
        self.groups: list[int] = []
        """The cores that each start was for, a bit each."""

    def read(self, address: int) -> int:
        name = SYSTEM_NAMES.get(address - self._system)
        return self._core(address).read(address) if name is None else self._register(name)

    def write(self, address: int, word: int) -> None:
        name = SYSTEM_NAMES.get(address - self._system)
        command = {"GROUP_START": Command.START, "GROUP_RESET": Command.SOFT_RESET}.get(name or "")
        if name is None:
            self._core(address).write(address, word)
        elif command is not None:
            self.groups += [word] if command is Command.START else []
            for number, core in enumerate(self.cores):
                core.write(core.map.registers + CONTROL_REGISTERS["CONTROL"].offset, (word >> number & 1) << command)

    def _core(self, address: int) -> RegisterModel:
        """The core whose page an address is in; the first for memory, which is that of all."""
        page = (address - self.map.registers) // page_address(1)
        return self.cores[page if 0 <= page < len(self.cores) else 0]

    def _register(self, name: str) -> int:
        if name in ("CORES", "MEMORY_PORTS"):
            return getattr(self.arch, name.lower())
        bit = Status[name.removeprefix("GROUP_")] if name in ("GROUP_DONE", "GROUP_ERROR", "GROUP_IDLE") else None
        return 0 if bit is None else sum((core.status >> bit & 1) << number for number, core in enumerate(self.cores))


def litex_system(arch: Arch, size: int = 1 << 20) -> SystemModel:
    """Several cores behind the map of a LiteX shell, with so many bytes of memory."""
    region = Region(bus=0x4000_0000, machine=0, size=size)
    return SystemModel(arch, MemoryMap.shared(0x9000_0000, region))


def litex_model(arch: Arch, size: int = 1 << 20, **options: object) -> RegisterModel:
    """Return a model behind the map of a LiteX shell, with so many bytes of memory."""
    region = Region(bus=0x4000_0000, machine=0, size=size)
    return RegisterModel(arch, MemoryMap.shared(0x9000_0000, region), **options)  # type: ignore[arg-type]
