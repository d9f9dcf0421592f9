"""The golden machine behind a register map and one memory: what a driver sees of a board, word by word."""

from __future__ import annotations

from weft.golden.check import MachineStop
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import CONTROL_REGISTERS, Access, Command, Status, parameter_values
from weft.runtime.driver.memory_map import MemoryMap, Region

NAMES = {register.offset: name for name, register in CONTROL_REGISTERS.items()}
NOTHING = 0xFFFF_FFFF
CYCLES_OF_AN_INSTRUCTION = 7
"""Of this model; it is no timing model."""


class RegisterModel:
    """``read`` and ``write`` of words at bus addresses. A program has run when STATUS was read ``patience`` times;
    ``hangs``: none ever ends."""

    def __init__(self, arch: Arch, memory_map: MemoryMap, patience: int = 2, hangs: bool = False) -> None:
        self.arch, self.map, self.patience, self.hangs = arch, memory_map, patience, hangs
        self.region = memory_map.regions["dram0"]
        self.power_on()

    def power_on(self) -> None:
        """Everything is as at first: what memory held is lost."""
        self.dram = Dram(self.arch)
        self.machine = Machine(self.arch, self.dram, self.dram)
        self.values = dict.fromkeys(CONTROL_REGISTERS, 0) | parameter_values(self.arch)
        self.status, self.looks, self.programs = 1 << Status.IDLE, 0, 0

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
        before = self.machine.counters["instructions"]
        self.status = 1 << Status.IDLE | 1 << Status.DONE
        try:
            self.machine.run(program)
        except MachineStop as stop:
            self.status = 1 << Status.IDLE | 1 << Status.ERROR
            self.values |= {"ERROR_CAUSE": Cause(stop.cause), "ERROR_PROGRAM_COUNTER": stop.program_counter}
        self.values["PROGRAM_COUNTER"] = self.machine.program_counter
        self._count(self.machine.counters["instructions"] - before)

    def _count(self, instructions: int) -> None:
        cycles = instructions * CYCLES_OF_AN_INSTRUCTION
        for name, value in (("INSTRUCTIONS", instructions), ("CYCLES", cycles)):
            self.values |= {f"{name}_LOW": value & NOTHING, f"{name}_HIGH": value >> 32}


def litex_model(arch: Arch, size: int = 1 << 20, **options: object) -> RegisterModel:
    """Behind the map of a LiteX shell, with so many bytes of memory."""
    region = Region(bus=0x4000_0000, machine=0, size=size)
    return RegisterModel(arch, MemoryMap.shared(0x9000_0000, region), **options)  # type: ignore[arg-type]
