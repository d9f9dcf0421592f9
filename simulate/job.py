# SPDX-License-Identifier: Apache-2.0
"""A job of the simulated machine and its results: plain data, exchanged as JSON.

``run_job`` is the parent's side, ``run_program.py`` the simulator's."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.hw.contract.dram import EXPECTED
from weft.simulate.build import DRAM_SOURCES, PACED_SOURCES, TRACE_SOURCES, build_simulation
from weft.simulate.sim_top import MEMORIES, public_vlt, weft_sim
from weft.simulate.simulation import Simulation, run_simulation

SLVERR = 2
"""The AXI response of a slave that failed."""
__all__ = ["Job", "JobResult", "MemorySettings", "ProgramRun", "build_machine", "run_groups", "run_job"]


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """The behaviour of one memory in cycles, and stalls per 256 cycles; sv/axi_dram.sv explains each."""

    read_latency: int = EXPECTED.read_latency
    write_latency: int = EXPECTED.read_latency
    jitter: int = 0
    stall_ar: int = 0
    stall_r: int = 0
    stall_aw: int = 0
    stall_w: int = 0
    stall_b: int = 0
    error_lo: int = 0
    error_hi: int = 0
    error_response: int = SLVERR


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """A run of ``size`` bytes of the program memory from ``address``, with given behaviour of the memories."""

    size: int
    address: int = 0
    group: Sequence[tuple[int, int]] = ()
    """For several cores: (address, size) of the program of each, from core 0 on, of size 0 if it rests."""
    memories: Mapping[str, MemorySettings] = field(default_factory=dict)
    """Memory (sim_top.MEMORIES) -> its behaviour; others behave by default."""
    reset: bool = True
    """Whether there is a soft reset before it (the first program needs none)."""
    reset_at_end: bool = False
    """Whether there is a soft reset at its interrupt, before its registers are read.

    They then tell nothing of the program."""
    reset_after: int = 0
    """The cycles from its start to a soft reset that breaks it off, 0 for none. Its registers then tell nothing."""
    content: Mapping[str, str] = field(default_factory=dict)
    """Memory -> file with its content when the program starts, zeros beyond; others stay as they are."""
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """Memory -> file that its content is copied to, sparsely, when the program has ended."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Programs that run one after another in one simulation, on the same memories."""

    programs: Sequence[ProgramRun]
    cycle_limit: int = 100_000_000
    """The cycles of the whole simulation after which it counts as hung."""
    seed: int = 0
    """The seed of the memories' random stalls and latencies."""
    start_cycles: int = 0
    """The cycles, beside a few of register accesses, for which the machine rests after reset."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The registers of the machine and the counters of the memories after a program, when the machine is idle."""

    done: bool
    error: bool
    timeout: bool
    tracepoint: bool
    error_cause: int
    error_program_counter: int
    program_counter: int
    cycles: int
    """The machine's own count, from the first instruction accepted to the last write response."""
    instructions: int
    simulation_cycles: int
    """The cycles from reset to idle, with register accesses."""
    wall_seconds: float
    sample_words: int
    memories: dict[str, dict[str, int]]
    """Memory -> read_beats, write_beats, first_cycle, last_cycle (sv/axi_dram.sv)."""


def build_machine(
    weft_top_verilog: str,
    *,
    axi_data_width: int,
    axi_address_width: int,
    stream_width: int,
    shared_dram: bool = False,
    cores: int = 1,
    memory_ports: int = 1,
    controller: str = "",
    trace: bool = False,
    random_start: bool = False,
) -> Simulation:
    """Return the simulation of module `weft_top`, which has its trace port, with its three memories.

    ``controller``: the Verilog of a board's memory controller that decides when memories answer
    (boards/shell/controller.py). ``random_start``: what has no initial value begins random."""
    top = weft_sim(axi_data_width=axi_data_width, axi_address_width=axi_address_width, stream_width=stream_width,
                   shared_dram=shared_dram, paced=bool(controller), cores=cores, memory_ports=memory_ports)
    return build_simulation(
        weft_top_verilog + "\n" + top + controller,
        top="weft_sim",
        sources=[*(PACED_SOURCES if controller else DRAM_SOURCES), *TRACE_SOURCES],
        public_vlt=public_vlt(),
        trace=trace,
        random_start=random_start,
    )


def run_job(simulation: Simulation, job: Job, **options: Any) -> list[JobResult]:
    """Return the result of core 0 for each program of a job; options are those of :func:`run_groups`."""
    return [group[0] for group in run_groups(simulation, job, **options)]


def run_groups(
    simulation: Simulation,
    job: Job,
    *,
    directory: Path,
    files: Mapping[str, Path],
    samples: Path | None = None,
    operations: Path | None = None,
    bases: Mapping[str, int] | None = None,
    timeout_seconds: float = 600,
    trace: bool = False,
) -> list[list[JobResult]]:
    """Run `job` in `directory`; return, for each program, the results of each core that it started.

    Memories lie in `files` (by name; the file's size is the memory's), which change in place. ``bases``: where each
    memory begins in a board's own, with a controller. `samples` and `operations`: files to write, see sim_top.weft_sim.
    Raise SimulationError if the machine breaks an AXI rule, hangs or outlasts `timeout_seconds`. A machine that reports
    an error in its registers has run, and the result says so."""
    directory.mkdir(parents=True, exist_ok=True)
    job_file, result_file = directory / "job.json", directory / "result.json"
    text: dict[str, Any] = dataclasses.asdict(job)
    for program, entry in zip(job.programs, text["programs"], strict=True):
        settings = {name: program.memories.get(name, MemorySettings()) for name in MEMORIES}
        entry["memories"] = {name: dataclasses.asdict(value) for name, value in settings.items()}
    text |= {"result": str(result_file.resolve()), "files": {name: str(files[name].resolve()) for name in MEMORIES}}
    job_file.write_text(json.dumps(text, indent=1))
    plusargs = [f"+{name}={Path(files[name]).resolve()}" for name in MEMORIES]
    plusargs += [f"+{name}_base={base}" for name, base in (bases or {}).items()]
    if samples is not None:
        plusargs.append(f"+samples={samples.resolve()}")
    if operations is not None:
        plusargs.append(f"+operations={operations.resolve()}")
    run_simulation(
        simulation,
        "weft.simulate.run_program",
        directory=directory,
        environment={"WEFT_JOB": str(job_file.resolve())},
        plusargs=plusargs,
        seed=job.seed,
        timeout_seconds=timeout_seconds,
        trace=trace,
    )
    return [[JobResult(**result) for result in group] for group in json.loads(result_file.read_text())]
