# SPDX-License-Identifier: Apache-2.0
"""Random programs on the hardware against the golden machine: every word of local memory, accumulators and DRAM.

A case is a machine and a seed. The seed decides the program, legal or with one illegal instruction, what the DRAMs
hold and how their buses behave. On the hardware each case runs as three programs of one simulation: one that clears
what a power-up would clear, the case itself, and the dump that makes local memory, accumulators and weights visible
in DRAM.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.golden.dram import Dram, differences
from weft.golden.machine import Machine, MachineStop
from weft.hw.contract.arch import Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.simulate.job import Job, JobResult, MemorySettings, ProgramRun, run_job
from weft.simulate.sim_top import MEMORIES
from weft.simulate.simulation import Simulation, SimulationError
from weft.tb.random.dump_program import dump_program
from weft.tb.random.random_program import possible_causes, random_illegal, random_program, random_vectors

DRAM_VECTORS = 300
"""Vectors of each DRAM that start with random content."""
LONGEST = 60
"""Instructions of a random program, about."""
ILLEGAL_SHARE = 0.2
CYCLE_LIMIT_OF_A_CASE = 400_000
DRAMS = ("dram0", "dram1")


@dataclass(frozen=True)
class Case:
    """One random program and its surroundings."""

    arch: Arch
    seed: int
    program: tuple[Instruction, ...]
    reset_at_end: bool = False
    """A soft reset at the very end of the program, which must be legal: its cause is not seen."""
    broken_off: tuple[Instruction, ...] = ()
    """A program before all others, which a soft reset breaks off ``reset_after`` cycles behind its start."""
    reset_after: int = 0

    @classmethod
    def of(cls, arch: Arch, seed: int) -> Case:
        rng = random.Random(f"case {seed}")
        length = rng.randint(4, LONGEST)
        if rng.random() < ILLEGAL_SHARE:
            program, _ = random_illegal(arch, seed, rng.choice(possible_causes(arch)), length)
        else:
            program = random_program(arch, seed, length)
        return cls(arch, seed, tuple(program))

    def content(self, dram: str) -> bytes:
        """Return what a DRAM holds at the start, from address 0."""
        vectors = random_vectors(self.arch, 2 * self.seed + DRAMS.index(dram), DRAM_VECTORS)
        return vectors.astype(self.arch.number.storage_dtype).tobytes()

    def settings(self) -> dict[str, MemorySettings]:
        """Return how the buses behave.

        A third of the cases is undisturbed, the others have random latencies and stalls."""
        rng = random.Random(f"bus {self.seed}")

        def one() -> MemorySettings:
            if rng.random() < 0.33:
                return MemorySettings(read_latency=rng.choice([2, 5, 30]), write_latency=rng.choice([2, 5, 30]))
            stalls = {f"stall_{channel}": rng.choice([0, 20, 90, 200]) for channel in ("ar", "r", "aw", "w", "b")}
            return MemorySettings(read_latency=rng.randint(2, 60), write_latency=rng.randint(2, 60),
                                  jitter=rng.choice([0, 10, 50]), **stalls)

        return {memory: one() for memory in MEMORIES}


@dataclass(frozen=True)
class Mismatch:
    """A difference between hardware and golden machine, in words."""

    case: Case
    text: str

    def __str__(self) -> str:
        lines = [f"seed {self.case.seed}: {self.text}", f"arch {self.case.arch.to_dict()}"]
        isa = Isa(self.case.arch)
        program = [f"  {number:3} {instruction_text(isa, each)}" for number, each in enumerate(self.case.program)]
        return "\n".join([*lines, *program])


@dataclass(frozen=True)
class Golden:
    """The golden machine after the case and the dump; cause and program counter of the case's error."""

    machine: Machine
    cause: Cause
    program_counter: int


def run_golden(case: Case) -> Golden:
    machine = Machine(case.arch)
    for dram in DRAMS:
        machine.drams[dram].load_bytes(0, case.content(dram))
    cause, program_counter = Cause.NONE, 0
    try:
        machine.run(Isa(case.arch).assemble(case.program))
    except MachineStop as stop:
        cause, program_counter = stop.cause, stop.program_counter
    machine.soft_reset()
    machine.run(Isa(case.arch).assemble(dump_program(case.arch)))
    return Golden(machine, cause, program_counter)


def clear_program(arch: Arch) -> list[Instruction]:
    """Return the program that clears what a power-up clears, with DRAM0 all zero.

    It clears local memory, accumulators, weights and tables."""
    isa = Isa(arch)
    program = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, arch.local_depth)]
    for start in range(0, arch.accumulator_depth, arch.local_depth):
        size = min(arch.local_depth, arch.accumulator_depth - start)
        program.append(isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, start, size))
    program += [isa.load_scale(0)] if arch.scheme.per_lane else []
    program += [isa.load_activation_table(0, table + 1) for table in range(arch.activation_tables)]
    program += [isa.load_lut(0, table) for table in range(arch.lut_count + 1)] if arch.lut_count else []
    return [*program, isa.load_weight(0, arch.array_size + 1, zeroes=True), isa.mat_mul(0, 0, 1, zeroes=True)]


def run_cases(simulation: Simulation, cases: Sequence[Case]) -> list[Mismatch]:
    """Run the cases, all of one machine, in one simulation; what differed, empty when all is well."""
    with tempfile.TemporaryDirectory(prefix="weft-lockstep-") as name:
        folder = Path(name)
        expected = [run_golden(case) for case in cases]
        results = _run_on_rtl(simulation, cases, folder)
        found = (_compare(case, golden, results[index], folder / f"{index}")
                 for index, (case, golden) in enumerate(zip(cases, expected, strict=True)))
        return [mismatch for mismatch in found if mismatch]


def _run_on_rtl(simulation: Simulation, cases: Sequence[Case], folder: Path) -> list[JobResult]:
    """Return each case's result; its DRAMs are in files ``<index>.dram0`` and ``<index>.dram1``."""
    arch, isa = cases[0].arch, Isa(cases[0].arch)
    files = {memory: folder / f"{memory}.bin" for memory in MEMORIES}
    for dram in DRAMS:
        Dram(arch, files[dram])
    (folder / "zero").write_bytes(b"")
    image = bytearray()
    programs: list[ProgramRun] = []

    def add(instructions: Iterable[Instruction], **options: Any) -> None:
        code = isa.assemble(instructions)
        programs.append(ProgramRun(size=len(code), address=len(image), **options))
        image.extend(code + bytes(-len(code) % 4096))

    own: list[int] = []
    for index, case in enumerate(cases):
        for dram in DRAMS:
            (folder / f"{index}.{dram}.start").write_bytes(case.content(dram))
        if case.broken_off:
            add(case.broken_off, content={dram: str(folder / f"{index}.{dram}.start") for dram in DRAMS},
                memories=case.settings(), reset_after=case.reset_after)
        own.append(len(programs) + 1)
        add(clear_program(arch), content={dram: str(folder / "zero") for dram in DRAMS})
        add(case.program, content={dram: str(folder / f"{index}.{dram}.start") for dram in DRAMS},
            memories=case.settings(), reset_at_end=case.reset_at_end)
        add(dump_program(arch), snapshots={dram: str(folder / f"{index}.{dram}") for dram in DRAMS})
    files["program"].write_bytes(image + bytes(4096))
    job = Job(programs=programs, cycle_limit=CYCLE_LIMIT_OF_A_CASE * len(cases), seed=cases[0].seed)
    results = run_job(simulation, job, directory=folder, files=files)
    return [results[number] for number in own]


def _compare(case: Case, golden: Golden, result: JobResult, files: Path) -> Mismatch | None:
    told = Cause(result.error_cause), result.error_program_counter
    if told != (golden.cause, golden.program_counter):
        return Mismatch(case, f"hardware stopped with {told[0].name} at {told[1]}, golden with {golden.cause.name} "
                              f"at {golden.program_counter}")
    for dram in DRAMS:
        found = differences(golden.machine.drams[dram], Dram(case.arch, files.with_suffix(f".{dram}")), 5)
        if found:
            return Mismatch(case, f"{dram}: (byte address, golden, hardware) {found}")
    return None


def _fails(simulation: Simulation, case: Case) -> Mismatch | None:
    try:
        return next(iter(run_cases(simulation, [case])), None)
    except SimulationError as error:
        return Mismatch(case, error.reason)


def shrink(simulation: Simulation, mismatch: Mismatch, rounds: int = 40) -> Mismatch:
    """Return a shorter program that still differs: ever smaller pieces are left out."""
    piece = max(len(mismatch.case.program) // 2, 1)
    while piece and rounds:
        start, shorter = 0, None
        while start < len(mismatch.case.program) and rounds and not shorter:
            rounds -= 1
            program = mismatch.case.program[:start] + mismatch.case.program[start + piece:]
            shorter = _fails(simulation, Case(mismatch.case.arch, mismatch.case.seed, program)) if program else None
            start += piece
        mismatch, piece = (shorter, piece) if shorter else (mismatch, piece // 2)
    return mismatch
