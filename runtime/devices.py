# SPDX-License-Identifier: Apache-2.0
"""Machines that run programs, behind one small interface: the golden machine and the simulated hardware.

Boards implement it too (driver/register_machine.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.fair_lock import FairLock
from weft.support.errors import Mismatch, WeftError, explain

if TYPE_CHECKING:
    from weft.golden.system import GoldenSystem
    from weft.simulate.job import MemorySettings
    from weft.tmodel.manifest import TModel

GOLDEN, RTL = "golden", "rtl"
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""A function that is told what happens now, how much of it is done, and of how much (0: not known)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """The result of a program's run.

    ``cycles`` is None if the machine does not count them, ``seconds`` is its time alone. ``cause``: why it stopped
    before the end, at ``program_counter``. ``operations``: on request, a row of ``hw.contract.units.OPERATION`` for
    each operation."""

    instructions: int
    cycles: int | None
    seconds: float
    cause: Cause = Cause.NONE
    program_counter: int = 0
    operations: np.ndarray | None = None
    samples: np.ndarray | None = None
    """On request, words of the sample port (samples.py)."""
    flags: tuple[str, ...] = ()
    """The flags that a device was asked for and saw: ``timeout``, ``tracepoint``."""
    saturated: Mapping[int, int] | None = None
    """Numbers that saturated when they were requantized, by instruction of the program.

    It is None if the machine does not count them."""


class Backend(Protocol):
    """A machine with its two DRAMs ("dram0", "dram1"), whose content stays between two runs.

    ``most_images``: how many images one run may hold, each with a window of its own; ``fair_lock``: held by whoever
    writes, runs and reads."""

    name: str
    arch: Arch
    most_images: int
    fair_lock: FairLock

    def write(self, memory: str, address: int, vectors: np.ndarray, offset_blocks: int = 0) -> None:
        """Write scalars [size, lanes] to a window's vectors from ``address`` on; it starts at a block of 64 KiB."""

    def read(self, memory: str, address: int, size: int, offset_blocks: int = 0) -> np.ndarray:
        """Return int64 [size, lanes] of a window from ``address`` on; the window starts at block ``offset_blocks``."""

    def run(self, groups: Sequence[Sequence[bytes]], progress: Progress = no_progress) -> list[list[Done]]:
        """Run groups one after another, the programs of each side by side, one a core from core 0 on.

        Between groups registers are reset, memories stay. Raise WeftError for an illegal program if the machine knows
        the instruction, for programs whose order would matter, and if the machine cannot be made. Raise Mismatch if a
        program does not come to an end."""


class Local:
    """A backend whose DRAMs are in this process, all zero at first."""

    most_images = 1 << 30
    reference: Golden | None = None
    """The golden machine, if the backend has run all programs on it too."""

    def __init__(self, arch: Arch) -> None:
        self.arch, self.fair_lock = arch, FairLock()
        self.drams = {"dram0": Dram(arch), "dram1": Dram(arch)}

    def write(self, memory: str, address: int, vectors: np.ndarray, offset_blocks: int = 0) -> None:
        """Write scalars [size, lanes] to a window's vectors from ``address`` on."""
        self.drams[memory].write(address, vectors, offset_blocks)

    def read(self, memory: str, address: int, size: int, offset_blocks: int = 0) -> np.ndarray:
        """Return int64 [size, lanes] of a window from ``address`` on."""
        return self.drams[memory].read(address, size, offset_blocks)


class Golden(Local):
    """The machine in numpy. An illegal instruction raises MachineStop."""

    name = GOLDEN

    def run(self, groups: Sequence[Sequence[bytes]], progress: Progress = no_progress) -> list[list[Done]]:
        """Run programs one after another; return how each ended."""
        from weft.golden.system import GoldenSystem

        system = GoldenSystem(self.arch, self.drams["dram0"], self.drams["dram1"])
        return [_on_golden(system, programs, progress) for programs in groups]


def _on_golden(system: GoldenSystem, programs: Sequence[bytes], progress: Progress) -> list[Done]:
    """Run a group from reset. The time is that of all of its cores together."""
    before = []
    for core in system.cores:
        before.append(core.instruction_count)
        core.soft_reset()
        core.saturated.clear()
    began = time.monotonic()
    system.run(programs, partial(progress, "golden machine"))
    seconds = time.monotonic() - began
    return [Done(instructions=core.instruction_count - start, cycles=None, seconds=seconds,
                 saturated={at - start: count for at, count in core.saturated.items()})
            for core, start, _ in zip(system.cores, before, programs, strict=False)]


class Simulation(Local):
    """The Verilog under Verilator.

    ``memory`` says how its memories behave, ``options`` are those of ``simulate.rtl.run_groups_on_rtl``.
    ``sample_interval``: cycles between two samples, 0 for none; two instructions before each program set it."""

    name = RTL

    def __init__(self, arch: Arch, memory: MemorySettings | None = None, sample_interval: int = 0,
                 **options: Any) -> None:
        super().__init__(arch)
        self.memory, self.options = memory, options
        if sample_interval:
            self.options["samples"] = True
        self._before = sampling(arch, sample_interval)

    def run(self, groups: Sequence[Sequence[bytes]], progress: Progress = no_progress) -> list[list[Done]]:
        """Run programs one after another in one simulation; return how each ended."""
        from weft.simulate.rtl import run_groups_on_rtl

        memories = None if self.memory is None else [self.memory] * len(groups)
        before = len(self._before) // Isa(self.arch).instruction_bytes
        sampled = [[self._before + program for program in programs] for programs in groups]
        results = simulated(partial(run_groups_on_rtl, self.arch, sampled, *self.drams.values(), memories=memories,
                                    stage=lambda stage: progress(stage, 0, 0), **self.options))
        return [[Done(instructions=result.instructions - before, cycles=result.cycles, seconds=result.seconds,
                      cause=result.error_cause, program_counter=result.error_program_counter,
                      operations=result.operations, samples=result.samples) for result in group] for group in results]


def simulated(run: Callable[[], Result]) -> Result:
    """Run a simulation and return its result. Raise WeftError if it cannot be built, Mismatch if it fails."""
    from weft.simulate.make import BuildError
    from weft.simulate.simulation import SimulationError
    from weft.simulate.toolchain import ToolchainError

    try:
        return run()
    except (BuildError, ToolchainError) as error:
        raise WeftError(str(error)) from None
    except SimulationError as error:
        raise Mismatch(f"the simulation failed: {error}") from None


def sampling(arch: Arch, interval: int) -> bytes:
    """Return the instructions that ask for samples every ``interval`` cycles and reset the program counter.

    There are none for an interval of 0."""
    isa = Isa(arch)
    asks = [isa.configure(Register.SAMPLE_INTERVAL, interval), isa.configure(Register.PROGRAM_COUNTER, 0)]
    return isa.assemble(asks) if interval else b""


def machine(on: str | Backend, arch: Arch, options: dict[str, Any], model: TModel | None = None) -> Backend:
    """Return a new backend by name, GOLDEN or RTL (with ``options``), or the backend that was given.

    With the option ``pieces`` RTL runs the programs of ``model`` in pieces. Raise WeftError for another name."""
    if not isinstance(on, str):
        return on
    if on == GOLDEN:
        return Golden(arch)
    if on != RTL:
        raise WeftError(explain("machine", repr(on), f"{GOLDEN}, {RTL}, or a Device that Device.open gave",
                                "name one of them"))
    if "pieces" in options and model is not None:
        from weft.runtime.piecewise import Piecewise

        return Piecewise(arch, model, **options)
    return Simulation(arch, **options)
