# SPDX-License-Identifier: Apache-2.0
"""A machine behind control registers and memories that a bridge reaches: boards, and the simulated one alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from weft.golden.check import MachineStop
from weft.hw.contract.arch import Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import SYSTEM_PAGE, SYSTEM_REGISTERS, Command, Status
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.system import page_address
from weft.runtime.devices import Done, Progress, no_progress
from weft.runtime.driver.bridge import Bridge, read_bytes, write_bytes
from weft.runtime.driver.memory_map import MemoryMap, place
from weft.runtime.driver.needs import PAGE_BYTES, moved, own_window, written
from weft.runtime.driver.registers import (
    LONGEST_PAUSE,
    RESET_SECONDS,
    DeviceError,
    Registers,
    check_cores,
    check_machine,
)
from weft.runtime.driver.sample_ring import SampleRing
from weft.runtime.driver.transport import PROGRAM_SECONDS, WORD_BYTES
from weft.runtime.fair_lock import FairLock
from weft.runtime.run_settings import RunSettings
from weft.support.errors import explain

COMMANDS = 5
"""The attempts of a command."""
LOOKS = 3
"""The readings of STATUS after which a start counts as lost."""
RUNS = 5
"""The attempts of a program that link faults disturb."""
SHORTEST_PAUSE = 1e-4
"""The shortest seconds between two readings of STATUS."""
NOTICED = 0.01
"""The share of a program's length by which its end may be noticed late, besides the time of a reading."""
MOST_PROGRAMS = 64
"""The most programs of which the driver remembers what it worked out."""

GROUP_COMMANDS = {Command.START: "GROUP_START", Command.SOFT_RESET: "GROUP_RESET"}
"""The register with a bit for each core, on a system of several cores."""

ENDED = 1 << Status.DONE | 1 << Status.ERROR
ALIVE = ENDED | 1 << Status.RUNNING


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


@dataclass
class _Program:
    """A program as the driver analysed it, once.

    ``content``: the program for this device, with ``before`` instructions put before it; ``count``: all instructions.
    ``written``: (address, words) of what it may write. ``ran``: the seconds after which its last run was still seen to
    go on. ``cycles``: those of its last run, 0 before it."""

    content: bytes
    before: int
    count: int
    written: Sequence[tuple[int, int]]
    ran: float = 0.0
    cycles: int = 0


@dataclass(frozen=True)
class _Placed:
    """A program in the device's memory, and its address for the machine."""

    address: int
    program: _Program


class RegisterMachine:
    """A backend for models of ``arch`` (runtime/devices.py): an image a core at a time.

    ``needs``: bytes of each memory, for model ``owner``. ``settings``: what each program finds set; ``ring``: where
    samples wait, if these are asked for. ``clock_hz``: the machine's clock, if it is known."""

    def __init__(self, bridge: Bridge, memory_map: MemoryMap, arch: Arch, needs: Mapping[str, int], owner: str,
                 seconds: float = PROGRAM_SECONDS, settings: RunSettings = RunSettings(),  # noqa: B008 - it is frozen
                 ring: SampleRing | None = None, clock_hz: float | None = None) -> None:
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
        self.settings, self._registers_set, self.ring = settings, settings.registers(arch), ring
        self._clock_hz, self._look_seconds = clock_hz, math.inf
        self._last: _Run | None = None
        self._programs: dict[bytes, _Program] = {}
        self._there: dict[int, tuple[int, object]] = {}
        """Address -> end, and the constants or program that were written there, which never change."""

    # -- memory ----------------------------------------------------------------------------------------------------
    def write(self, memory: str, address: int, vectors: np.ndarray, offset_blocks: int = 0) -> None:
        """Write scalars [size, lanes] to vectors from ``address`` on.

        Those of an array that nobody can write to are not looked at again while they are there."""
        self._put(self._at(memory, address, offset_blocks), vectors, lambda: vectors.astype(
            self.arch.number.storage_dtype, copy=False).tobytes(), len(vectors) * self.arch.vector_bytes)

    def _put(self, start: int, source: object, content: Callable[[], bytes], size: int) -> None:
        """Write ``content`` at ``start``, unless ``source`` never changes and the bridge knows that it is there."""
        end, changes = start + size, isinstance(source, np.ndarray) and source.flags.writeable
        first = start // WORD_BYTES * WORD_BYTES
        its_end, known = self._there.get(start, (0, None))
        if its_end == end and known is source and self.bridge.shadow.keeps(first, -(-(end - first) // WORD_BYTES)):
            return
        for other, (its_end, _) in list(self._there.items()):
            if other < end and start < its_end:
                del self._there[other]
        write_bytes(self.bridge, start, content())
        if not changes:
            self._there[start] = end, source

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
            before = [kept for group in placed for each in group for kept in self._release(each.program)]
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
            for program in map(self._worked_out, programs):
                self._put(self.places.bus("program") + offset, program, partial(bytes, program.content),
                          len(program.content))
                placed[-1].append(_Placed(self.places.machine("program") + offset, program))
                offset += -(-len(program.content) // PAGE_BYTES) * PAGE_BYTES
        return placed

    def _worked_out(self, program: bytes) -> _Program:
        """Return a program as it is written to this device; each program is analysed once."""
        if program not in self._programs:
            while len(self._programs) >= MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            content, before = moved(self.isa, program, self.places, self._registers_set)
            window, ranges = {"dram0": own_window(self.isa, program) or 0}, []
            for memory, first, end in written(program, self.arch):
                blocks = window.get(memory, 0)
                start = self._at(memory, first, blocks) // WORD_BYTES * WORD_BYTES
                ranges.append((start, -(-(self._at(memory, end, blocks) - start) // WORD_BYTES)))
            self._programs[program] = _Program(content, before, int(self.isa.counts(content).sum()), ranges)
        return self._programs[program]

    def _check_kept(self) -> None:
        """Write all memory again if the machine was without power or used by others."""
        if self.registers.read("SCRATCH") != self.bridge.mark:
            self.bridge.doubt()
        self.bridge.settle()

    def _release(self, program: _Program) -> list[tuple[int, np.ndarray]]:
        """Release the words that a program may write; return those that were kept there."""
        before = [kept for place in program.written for kept in self.bridge.shadow.within(*place)]
        for start, words in program.written:
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
                                "PROGRAM_ADDRESS_HIGH": placed.address >> 32,
                                "PROGRAM_BYTES": len(placed.program.content),
                                "INTERRUPT_ENABLE": ENDED}.items():
                registers.write(name, value)
        if self.ring:
            self.ring.start()
        seconds = self.bridge.transport.seconds
        began = seconds()
        self._command(cores, Command.START, lambda status: bool(status & ALIVE), LOOKS)
        looked = seconds() - self._look_seconds  # STATUS was asked for at once behind the start
        for core, status in enumerate(self._wait(cores, group, max(began, looked))):
            if status >> Status.ERROR & 1:
                raise self._stopped(core, group[core])
        return self._done(cores, group, seconds() - began)

    def _done(self, cores: Sequence[Registers], group: Sequence[_Placed], seconds: float) -> list[Done] | None:
        found = []
        for registers, placed in zip(cores, group, strict=True):
            program = placed.program
            cycles, instructions = registers.counters()
            if instructions != program.count:
                self.bridge.doubt()
                return None
            program.cycles = cycles
            samples = (self.ring.ended(cycles, self.settings.sample_cycles)
                       if self.ring and registers is self.registers else None)
            found.append(Done(instructions=program.count - program.before, cycles=cycles, seconds=seconds,
                              samples=samples, flags=self._flags(registers)))
        return found

    def _flags(self, registers: Registers) -> tuple[str, ...]:
        """Return the names of the flags that a program has set, if somebody wants to know."""
        if not self.settings.watched:
            return ()
        seen = registers.read("INTERRUPT_STATUS")
        return tuple(flag.name.lower() for flag in (Status.TIMEOUT, Status.TRACEPOINT) if seen >> flag & 1)

    def _reset(self, cores: Sequence[Registers]) -> None:
        """Reset the machine."""
        looks = int(RESET_SECONDS / LONGEST_PAUSE)
        self._command(cores, Command.SOFT_RESET, lambda status: status == 1 << Status.IDLE, looks)
        for registers in cores:
            registers.command("INTERRUPT_STATUS", ENDED | 1 << Status.TIMEOUT | 1 << Status.TRACEPOINT)

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
            self.bridge.settle()  # what the command needs may be lost, such as the program's length
        status = ", ".join(f"{registers.read('STATUS'):#x}" for registers in cores)
        raise DeviceError(explain(f"device {self.name}", f"no effect of {command.name}, {COMMANDS} times, STATUS "
                                  f"{status}", "a machine that obeys its registers",
                                  "reset the board, or load its bitstream again"))

    def _wait(self, cores: Sequence[Registers], group: Sequence[_Placed], began: float) -> list[int]:
        """Wait until all programs have ended and the cores are drained; return STATUS of each.

        ``began``: when the programs started. A program that ran before is left alone as long as it is expected to run.
        The wait ends too if a core shows none of ALIVE: it forgot its program, or it is in the cycle before DONE. Its
        counters tell which."""
        seconds, faults = self.bridge.transport.seconds, self.bridge.faults
        rest = began + max(self._expected(placed.program) for placed in group) - seconds()
        if rest > 0 and not self.ring:
            self.bridge.pause(min(rest, self.seconds))
        while True:
            asked = seconds()
            found = [registers.read("STATUS") for registers in cores]
            self._look_seconds = min(self._look_seconds, seconds() - asked)
            if self.ring:
                self.ring.drain()
            left = [core for core, status in enumerate(found) if not status & ENDED or status >> Status.RUNNING & 1]
            elapsed = seconds() - began
            is_clean = elapsed <= self.seconds and self.bridge.faults == faults
            for placed in [group[core] for core in left] if is_clean else group:
                placed.program.ran = asked - began if is_clean else 0.0
            if not left or not all(status & ALIVE for status in found):
                return found
            if elapsed > self.seconds:
                raise self._timeout(left[0], group[left[0]], found[left[0]])
            longest = SHORTEST_PAUSE if self.ring else LONGEST_PAUSE
            self.bridge.pause(min(max(NOTICED * elapsed, SHORTEST_PAUSE), longest))

    def _expected(self, program: _Program) -> float:
        """Return the seconds after which a program will soon have ended, or just has; 0 before its first run.

        If the clock is known they follow from its cycles, with some more for the DRAM's refresh: a look that comes too
        soon costs the time of another one. Else they are nearly those after which it was last seen to run. It was not
        if link faults, or a time-out, were part of that time."""
        if self._clock_hz and program.cycles:
            return (1 + NOTICED / 2) * program.cycles / self._clock_hz
        return (1 - NOTICED) * program.ran

    # -- errors ----------------------------------------------------------------------------------------------------
    def _text(self, placed: _Placed, counter: int) -> str:
        """Return the instruction at a program counter as text."""
        rows = self.isa.split(placed.program.content)[:, placed.program.before + counter:][:, :1].T.tolist()
        return instruction_text(self.isa, Instruction(*rows[0])) if rows else "none: behind the end of the program"

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
