"""Machines that run programs, behind one small interface: the golden machine and the simulated hardware.

Boards are behind it too (driver/register_machine.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from weft.support.errors import Mismatch, WeftError

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.fair_lock import FairLock

if TYPE_CHECKING:
    from weft.simulate.job import MemorySettings

GOLDEN, RTL = "golden", "rtl"
PIECE_INSTRUCTIONS = 1 << 16
"""The golden machine takes some hundred bytes for each instruction that it is given at once."""

Progress = Callable[[str, int, int], None]
"""Told what happens now, how much of it is done, and of how much (0: not known)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a program ended. ``cycles`` is None where the machine does not count them, ``seconds`` is its time alone.
    ``cause``: why it stopped before the end, at ``program_counter``. ``operations``: on request, a row of
    ``hw.contract.units.OPERATION`` for each operation."""

    instructions: int
    cycles: int | None
    seconds: float
    cause: Cause = Cause.NONE
    program_counter: int = 0
    operations: np.ndarray | None = None
    samples: np.ndarray | None = None
    """On request, words of the sample port (samples.py)."""
    saturated: Mapping[int, int] | None = None
    """Numbers that saturated as they left the accumulators, by instruction of the program; None where the machine does
    not count them."""


class Backend(Protocol):
    """A machine with its two DRAMs ("dram0", "dram1"). Between two runs they stay as they are.

    ``most_images``: how many images one program may hold, each with a window of its own; ``turn``: held by whoever
    writes, runs and reads.
    """

    name: str
    arch: Arch
    most_images: int
    fair_lock: FairLock

    def write(self, memory: str, address: int, vectors: np.ndarray, offset_blocks: int = 0) -> None:
        """Scalars [size, lanes] to vectors address.. of the window that starts at block ``offset_blocks`` (64 KiB)."""

    def read(self, memory: str, address: int, size: int, offset_blocks: int = 0) -> np.ndarray:
        """int64 [size, lanes] from there."""

    def run(self, programs: Sequence[bytes], progress: Progress = no_progress) -> list[Done]:
        """Run programs one after another; between them registers are reset, memories stay.

        Raises WeftError for an illegal program where the machine knows the instruction, and where it cannot be made;
        Mismatch where it does not come to an end."""


class Local:
    """A backend whose DRAMs are here, all zero at first."""

    most_images = 1 << 30

    def __init__(self, arch: Arch) -> None:
        self.arch, self.fair_lock = arch, FairLock()
        self.drams = {"dram0": Dram(arch), "dram1": Dram(arch)}

    def write(self, memory: str, address: int, vectors: np.ndarray, offset_blocks: int = 0) -> None:
        self.drams[memory].write(address, vectors, offset_blocks)

    def read(self, memory: str, address: int, size: int, offset_blocks: int = 0) -> np.ndarray:
        return self.drams[memory].read(address, size, offset_blocks)


class Golden(Local):
    """The machine in numpy. An illegal instruction raises MachineStop."""

    name = GOLDEN

    def run(self, programs: Sequence[bytes], progress: Progress = no_progress) -> list[Done]:
        from weft.golden.machine import Machine

        machine = Machine(self.arch, self.drams["dram0"], self.drams["dram1"])
        size = machine.isa.instruction_bytes
        done = []
        for program in programs:
            began, before = time.monotonic(), machine.counters.copy()
            total = int(machine.isa.counts(program).sum())
            machine.soft_reset()
            machine.saturated.clear()
            for first in range(0, len(program), PIECE_INSTRUCTIONS * size):
                done_before = machine.counters["instructions"] - before["instructions"]

                def tell(count: int, _: int, first: int = done_before, total: int = total) -> None:
                    progress("golden machine", first + count, total)

                machine.run(program[first:first + PIECE_INSTRUCTIONS * size], tell)
            done.append(Done(instructions=total, cycles=None, seconds=time.monotonic() - began,
                             saturated={at - before["instructions"]: count for at, count in machine.saturated.items()}))
        return done


class Simulation(Local):
    """The Verilog under Verilator. ``memory`` says how its memories behave, ``options`` are those of
    ``simulate.rtl.run_many_on_rtl``. ``sample_interval``: cycles between two samples, 0 for none; two instructions
    before each program set it."""

    name = RTL

    def __init__(self, arch: Arch, memory: MemorySettings | None = None, sample_interval: int = 0,
                 **options: Any) -> None:
        super().__init__(arch)
        self.memory, self.options = memory, options
        if sample_interval:
            self.options["samples"] = True
        self._before = sampling(arch, sample_interval)

    def run(self, programs: Sequence[bytes], progress: Progress = no_progress) -> list[Done]:
        from weft.simulate.make import BuildError
        from weft.simulate.rtl import run_many_on_rtl
        from weft.simulate.simulation import SimulationError
        from weft.simulate.toolchain import ToolchainError

        memories = None if self.memory is None else [self.memory] * len(programs)
        try:
            before = len(self._before) // Isa(self.arch).instruction_bytes
            sampled = [self._before + program for program in programs]
            results = run_many_on_rtl(self.arch, sampled, self.drams["dram0"], self.drams["dram1"], memories=memories,
                                      stage=lambda stage: progress(stage, 0, 0), **self.options)
        except (BuildError, ToolchainError) as error:
            raise WeftError(str(error)) from None
        except SimulationError as error:
            raise Mismatch(f"the simulation failed: {error}") from None
        return [Done(instructions=result.instructions - before, cycles=result.cycles, seconds=result.seconds,
                     cause=result.error_cause, program_counter=result.error_program_counter,
                     operations=result.operations, samples=result.samples) for result in results]


def sampling(arch: Arch, interval: int) -> bytes:
    """The instructions that ask for samples, and let the program count from 0; none for an interval of 0."""
    isa = Isa(arch)
    asks = [isa.configure(Register.SAMPLE_INTERVAL, interval), isa.configure(Register.PROGRAM_COUNTER, 0)]
    return isa.assemble(asks) if interval else b""


def machine(on: str | Backend, arch: Arch, options: dict[str, Any]) -> Backend:
    """The backend of a name, GOLDEN or RTL (with ``options``), new; or the one given."""
    if not isinstance(on, str):
        return on
    return Golden(arch) if on == GOLDEN else Simulation(arch, **options)
