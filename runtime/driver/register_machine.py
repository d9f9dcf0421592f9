# SPDX-License-Identifier: Apache-2.0
"""A machine behind control registers and memories that a bridge reaches: boards, and the simulated one alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.golden.check import MachineStop
from weft.hw.contract.arch import DRAM_OFFSET_BYTES, Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import (
    CONTROL_REGISTERS,
    IDENTITY,
    SYSTEM_PAGE,
    SYSTEM_REGISTERS,
    Command,
    ControlRegister,
    Status,
    board_code,
    parameter_values,
)
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.system import page_address
from weft.runtime.devices import Done, Progress, no_progress
from weft.runtime.driver.bridge import Bridge, read_bytes, write_bytes
from weft.runtime.driver.memory_map import MemoryMap, place
from weft.runtime.driver.needs import PAGE_BYTES, moved, own_window, written
from weft.runtime.driver.transport import PROGRAM_SECONDS, WORD_BYTES
from weft.runtime.fair_lock import FairLock
from weft.support.errors import WeftError, explain

RESET_SECONDS = 1.0
COMMANDS = 5
"""The attempts of a command."""
LOOKS = 3
"""The readings of STATUS after which a start counts as lost."""
RUNS = 5
"""The attempts of a program that link faults disturb."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1e-4, 0.05
"""Seconds between two readings of STATUS: from the first on, each time twice as long."""

GROUP_COMMANDS = {Command.START: "GROUP_START", Command.SOFT_RESET: "GROUP_RESET"}
"""Of a system of several cores, the register with a bit for each core."""

ENDED = 1 << Status.DONE | 1 << Status.ERROR
ALIVE = ENDED | 1 << Status.RUNNING


class DeviceError(WeftError):
    """The error for a device that is not the one meant, is busy, or does not do what it is told."""


class DeviceTimeout(DeviceError):
    """The error for a program that did not end in time.

    ``program_counter`` is that of the next ``instruction``, as text."""

    def __init__(self, text: str, program_counter: int, instruction: str) -> None:
        super().__init__(text)
        self.program_counter, self.instruction = program_counter, instruction


@dataclass(frozen=True)
class _Run:
    """The last run: where its programs are, and the words that they may have overwritten, as they were before."""

    groups: Sequence[Sequence[bytes]]
    before: list[tuple[int, np.ndarray]]
    strays: int


@dataclass(frozen=True)
class _Placed:
    """A program in the device's memory: its address for the machine, and its content.

    ``before``: how many of its instructions were put before it."""

    address: int
    content: bytes
    before: int


class Registers:
    """Control registers by name, from byte ``base`` on: a core's, or those of a system of several."""

    def __init__(self, bridge: Bridge, base: int, table: Mapping[str, ControlRegister] = CONTROL_REGISTERS) -> None:
        self.bridge, self.base, self.table = bridge, base, table

    def read(self, name: str) -> int:
        """Return a register's value."""
        return int(self.bridge.read(self._at(name), 1)[0])

    def read_wide(self, name: str) -> int:
        """Return the value of a counter in two halves, which must stand still."""
        return self.read(f"{name}_LOW") | self.read(f"{name}_HIGH") << 32

    def write(self, name: str, value: int) -> None:
        """Write a register that keeps its value."""
        self.bridge.write(self._at(name), np.array([value], np.uint32))

    def command(self, name: str, value: int) -> None:
        """Write a register that acts when it is written."""
        self.bridge.command(self._at(name), value)

    def _at(self, name: str) -> int:
        """Return the byte address of a register."""
        return self.base + self.table[name].offset


def check_there(registers: Registers, name: str) -> None:
    """Raise DeviceError unless a weft machine answers that nobody else uses."""
    found = registers.read("IDENTITY")
    if found != IDENTITY:
        raise DeviceError(explain(f"device {name}", f"{found:#010x} in IDENTITY", f"{IDENTITY:#010x}: a weft machine",
                                  "load the bitstream, and check the address of the registers"))
    until = time.monotonic() + RESET_SECONDS
    while registers.read("STATUS") >> Status.RUNNING & 1:
        if time.monotonic() > until:
            raise DeviceError(explain(f"device {name}", "a program that runs", "a machine that rests",
                                      "wait for the other user, or reset the board"))
        registers.bridge.pause(LONGEST_PAUSE)


def check_machine(registers: Registers, arch: Arch, name: str) -> None:
    """Raise DeviceError if the machine does not run programs for ``arch``."""
    for register, wanted in parameter_values(arch).items():
        found = registers.read(register)
        if found != wanted:
            raise DeviceError(explain(f"{register} of device {name}", f"{found:#x}", f"{wanted:#x}, which the model "
                                      "was compiled for", "compile the model for the machine of this device, or load "
                                      "the bitstream of the model's"))


def check_cores(system: Registers, arch: Arch, name: str) -> None:
    """Raise DeviceError if the machine has not as many cores as ``arch``."""
    found = system.read("CORES")
    if found != arch.cores:
        raise DeviceError(explain(f"CORES of device {name}", f"{found:#x}", f"{arch.cores:#x}, which the model was "
                                  "compiled for", "compile the model for the machine of this device, or load the "
                                  "bitstream of the model's"))


def check_board(registers: Registers, board: str, name: str) -> None:
    """Raise DeviceError if the bitstream is for another board; 0 names none, for designs made by other means."""
    found = registers.read("BOARD")
    if found not in (0, board_code(board)):
        raise DeviceError(explain(
            f"BOARD of device {name}", f"{found:#010x}", f"{board_code(board):#010x}: {board}", "name the board, or "
            f"give the shell.json, that the bitstream was made for; or load the bitstream of {board}"))


class RegisterMachine:
    """A backend for models of ``arch`` (runtime/devices.py): an image a core at a time.

    ``needs``: bytes of each memory, for model ``owner``."""

    def __init__(self, bridge: Bridge, memory_map: MemoryMap, arch: Arch, needs: Mapping[str, int], owner: str,
                 seconds: float = PROGRAM_SECONDS) -> None:
        """Raise WeftError if the machine is another one, or has too little memory."""
        self.name, self.arch, self.bridge, self.seconds = bridge.name, arch, bridge, seconds
        self.fair_lock = FairLock()
        self.isa = Isa(arch)
        self.most_images = arch.cores
        self.cores = [Registers(bridge, memory_map.registers + page_address(core)) for core in range(arch.cores)]
        self.registers = self.cores[0]
        check_machine(self.registers, arch, self.name)
        if arch.cores > 1:
            self.system = Registers(bridge, memory_map.registers + page_address(SYSTEM_PAGE), SYSTEM_REGISTERS)
            check_cores(self.system, arch, self.name)
        self.places = place(memory_map, needs, arch, owner)
        self._last: _Run | None = None

    # -- memory ----------------------------------------------------------------------------------------------------
    def write(self, memory: str, address: int, vectors: np.ndarray, offset_blocks: int = 0) -> None:
        """Write scalars [size, lanes] to vectors from ``address`` on."""
        content = vectors.astype(self.arch.number.storage_dtype).tobytes()
        write_bytes(self.bridge, self._at(memory, address, offset_blocks), content)

    def read(self, memory: str, address: int, size: int, offset_blocks: int = 0) -> np.ndarray:
        """Return int64 [size, lanes] from ``address`` on.

        If a link fault has disturbed memory since the last program, that program runs again first."""
        start = self._at(memory, address, offset_blocks)
        for _ in range(RUNS):
            content = read_bytes(self.bridge, start, size * self.arch.vector_bytes)
            if self._last is None or self._last.strays == self.bridge.strays:
                stored = np.frombuffer(content, self.arch.number.storage_dtype).reshape(size, self.arch.array_size)
                return self.arch.number.truncate(stored.astype(np.int64))
            self._restore(self._last)
            self._run(self._last.groups, no_progress)
        raise self._disturbed()

    def _at(self, memory: str, address: int, offset_blocks: int = 0) -> int:
        """Return the host's byte address of a vector."""
        return self.places.bus(memory) + offset_blocks * DRAM_OFFSET_BYTES + address * self.arch.vector_bytes

    # -- programs --------------------------------------------------------------------------------------------------
    def run(self, groups: Sequence[Sequence[bytes]], progress: Progress = no_progress) -> list[list[Done]]:
        """Run programs one after another; return how each ended.

        Raise MachineStop, DeviceError, DeviceTimeout or LinkError."""
        return self._run(groups, progress)

    def _run(self, groups: Sequence[Sequence[bytes]], progress: Progress) -> list[list[Done]]:
        """Place and run programs; run them again if link faults disturbed them."""
        progress(f"running on {self.name}", 0, 0)
        placed = self._place(groups)
        self._check_kept()
        for _ in range(RUNS):
            before = [kept for programs in groups for program in programs for kept in self._release(program)]
            self._last = _Run(groups, before, self.bridge.strays)
            done = [self._execute(group) for group in placed]
            if self._last.strays == self.bridge.strays and None not in done:
                return [each for each in done if each is not None]
            self._restore(self._last)
        raise self._disturbed()

    def _place(self, groups: Sequence[Sequence[bytes]]) -> list[list[_Placed]]:
        """Write each program into memory; return where they are."""
        placed: list[list[_Placed]] = []
        offset = 0
        for programs in groups:
            placed.append([])
            for program in programs:
                content, before = moved(self.isa, program, self.places)
                write_bytes(self.bridge, self.places.bus("program") + offset, content)
                placed[-1].append(_Placed(self.places.machine("program") + offset, content, before))
                offset += -(-len(content) // PAGE_BYTES) * PAGE_BYTES
        return placed

    def _check_kept(self) -> None:
        """Write all memory again if the machine was without power or used by others."""
        if self.registers.read("SCRATCH") != self.bridge.mark:
            self.bridge.doubt()
        self.bridge.settle()

    def _release(self, program: bytes) -> list[tuple[int, np.ndarray]]:
        """Release the words that a program may write; return those that were kept there."""
        before, window = [], {"dram0": own_window(self.isa, program) or 0}
        for memory, first, end in written(program, self.arch):
            blocks = window.get(memory, 0)
            start = self._at(memory, first, blocks) // WORD_BYTES * WORD_BYTES
            words = -(-(self._at(memory, end, blocks) - start) // WORD_BYTES)
            before += self.bridge.shadow.within(start, words)
            self.bridge.release(start, words)
        return before

    def _restore(self, run: _Run) -> None:
        """Restore the words that a run may have overwritten."""
        for address, words in run.before:
            self.bridge.write(address, words)
        self.bridge.repair()

    # -- one group -------------------------------------------------------------------------------------------------
    def _execute(self, group: Sequence[_Placed]) -> list[Done] | None:
        """Run a group of programs; return how each ended, or None if the cores did not run exactly these once."""
        cores = self.cores[:len(group)]
        self._reset(cores)
        for registers, placed in zip(cores, group, strict=True):
            for name, value in {"PROGRAM_ADDRESS_LOW": placed.address & 0xFFFF_FFFF,
                                "PROGRAM_ADDRESS_HIGH": placed.address >> 32, "PROGRAM_BYTES": len(placed.content),
                                "INTERRUPT_ENABLE": ENDED}.items():
                registers.write(name, value)
        began = time.monotonic()
        self._command(cores, Command.START, lambda status: bool(status & ALIVE), LOOKS)
        for core, status in enumerate(self._wait(cores, group, began)):
            if status >> Status.ERROR & 1:
                raise self._stopped(core, group[core])
        seconds = time.monotonic() - began
        return self._done(cores, group, seconds)

    def _done(self, cores: Sequence[Registers], group: Sequence[_Placed], seconds: float) -> list[Done] | None:
        found = []
        for registers, placed in zip(cores, group, strict=True):
            count = int(self.isa.counts(placed.content).sum())
            instructions = registers.read_wide("INSTRUCTIONS")
            cycles = registers.read_wide("CYCLES")
            if instructions != count:
                self.bridge.doubt()
                return None
            found.append(Done(instructions=count - placed.before, cycles=cycles, seconds=seconds))
        return found

    def _reset(self, cores: Sequence[Registers]) -> None:
        """Reset the machine."""
        looks = int(RESET_SECONDS / LONGEST_PAUSE)
        self._command(cores, Command.SOFT_RESET, lambda status: status == 1 << Status.IDLE, looks)
        for registers in cores:
            registers.command("INTERRUPT_STATUS", ENDED)

    def _command(self, cores: Sequence[Registers], command: Command, is_done: Callable[[int], bool],
                 looks: int) -> None:
        """Give a command to ``cores`` until STATUS of each shows it. Raise DeviceError if it does not."""
        for _ in range(COMMANDS):
            if self.arch.cores == 1:
                self.registers.command("CONTROL", 1 << command)
            else:
                self.system.command(GROUP_COMMANDS[command], (1 << len(cores)) - 1)
            for look in range(looks):
                if all(is_done(registers.read("STATUS")) for registers in cores):
                    return
                self.bridge.pause(min(SHORTEST_PAUSE * 2 ** min(look, 20), LONGEST_PAUSE))
            self.bridge.doubt()
        status = ", ".join(f"{registers.read('STATUS'):#x}" for registers in cores)
        raise DeviceError(explain(f"device {self.name}", f"no effect of {command.name}, {COMMANDS} times, STATUS "
                                  f"{status}", "a machine that obeys its registers",
                                  "reset the board, or load its bitstream again"))

    def _wait(self, cores: Sequence[Registers], group: Sequence[_Placed], began: float) -> list[int]:
        """Wait until all programs have ended and the cores are drained; return STATUS of each."""
        pause = SHORTEST_PAUSE
        while True:
            found = [registers.read("STATUS") for registers in cores]
            left = [core for core, status in enumerate(found) if not status & ENDED or status >> Status.RUNNING & 1]
            if not left:
                return found
            if time.monotonic() - began > self.seconds:
                raise self._timeout(left[0], group[left[0]], found[left[0]])
            self.bridge.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    # -- errors ----------------------------------------------------------------------------------------------------
    def _text(self, placed: _Placed, counter: int) -> str:
        """Return the instruction at a program counter as text."""
        rows = self.isa.split(placed.content)[:, placed.before + counter:][:, :1].T.tolist()
        return self.isa.text(Instruction(*rows[0])) if rows else "none: behind the end of the program"

    def _stopped(self, core: int, placed: _Placed) -> MachineStop:
        """Return the MachineStop that the registers describe."""
        cause = Cause(self.cores[core].read("ERROR_CAUSE"))
        counter = self.cores[core].read("ERROR_PROGRAM_COUNTER")
        stop = MachineStop(cause, counter, self._text(placed, counter), f"what {self.name} can run")
        return stop.of_core(core) if self.arch.cores > 1 else stop

    def _timeout(self, core: int, placed: _Placed, status: int) -> DeviceTimeout:
        """Return the error for a program that did not end in time."""
        counter = self.cores[core].read("PROGRAM_COUNTER")
        text = self._text(placed, counter)
        whose = f" of core {core}" if self.arch.cores > 1 else ""
        flags = ", ".join(bit.name.lower() for bit in Status if status >> bit & 1) or "nothing"
        return DeviceTimeout(explain(
            f"program{whose} on device {self.name}", f"no end after {self.seconds:g} s: status {flags}, "
            f"next instruction {counter} ({text})", f"an end within {self.seconds:g} s",
            "give it more time, or reset the board"), counter, text)

    def _disturbed(self) -> DeviceError:
        """Return the error for a link with faults in every run."""
        return DeviceError(explain(f"link {self.name}", f"faults in each of {RUNS} runs", "a link that comes through",
                                   "look at the cable, or lower the baud rate"))
