"""What one run of a program on the simulated machine is told and tells: plain data, exchanged as JSON.

``run_job`` is the parent's side, ``run_program.py`` the simulator's.
"""

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

__all__ = ["Job", "JobResult", "MemorySettings", "ProgramRun", "build_machine", "run_groups", "run_job"]


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """The behaviour of one memory; the meaning of each is in sv/axi_dram.sv. Cycles; stalls per 256 cycles."""

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


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """``size`` bytes of the program memory from ``address``, run with the memories behaving as told."""

    size: int
    address: int = 0
    group: Sequence[tuple[int, int]] = ()
    """Of several cores instead: (address, size) of the program of each, from core 0 on, of size 0 where it rests."""
    memories: Mapping[str, MemorySettings] = field(default_factory=dict)
    """By name (sim_top.MEMORIES); those left out behave by default."""
    reset: bool = True
    """Soft reset before it (the first one needs none)."""
    reset_at_end: bool = False
    """Soft reset at its interrupt, before its registers are read: they then tell nothing of the program."""
    content: Mapping[str, str] = field(default_factory=dict)
    """Memory -> file whose bytes it holds when the program starts, zeros beyond; the others stay as they are."""
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """Memory -> file that its content is copied to, sparsely, when the program has ended."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Programs run one after another in one simulation, on the same memories."""

    programs: Sequence[ProgramRun]
    cycle_limit: int = 100_000_000
    """Cycles of the whole simulation after which it counts as hung."""
    seed: int = 0
    """Of the memories' random stalls and latencies."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What the machine's registers and the memories' counters say when a program has ended and the machine is idle."""

    done: bool
    error: bool
    timeout: bool
    tracepoint: bool
    error_cause: int
    error_program_counter: int
    program_counter: int
    cycles: int
    """The machine's own count, first instruction accepted to last write response."""
    instructions: int
    simulation_cycles: int
    """From reset to idle, register access included."""
    wall_seconds: float
    sample_words: int
    memories: dict[str, dict[str, int]]
    """Per memory: read_beats, write_beats, first_cycle, last_cycle (sv/axi_dram.sv)."""


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
    coverage: bool = False,
) -> Simulation:
    """The simulation of module `weft_top`, which has its trace port, with its three memories. ``controller``: the
    Verilog of a board's memory controller that paces them (boards/shell/controller.py)."""
    top = weft_sim(axi_data_width=axi_data_width, axi_address_width=axi_address_width, stream_width=stream_width,
                   shared_dram=shared_dram, paced=bool(controller), cores=cores, memory_ports=memory_ports)
    return build_simulation(
        weft_top_verilog + "\n" + top + controller,
        top="weft_sim",
        sources=[*(PACED_SOURCES if controller else DRAM_SOURCES), *TRACE_SOURCES],
        public_vlt=public_vlt(),
        trace=trace,
        coverage=coverage,
    )


def run_job(simulation: Simulation, job: Job, **options: Any) -> list[JobResult]:
    """Return what :func:`run_groups` gives, with its options, of core 0."""
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
    """Runs `job` in `directory`; of each program the results of each core that it started, on memories held by
    `files` (by name; the file's size is the memory's).

    ``bases``: where each memory begins in a board's own, with a controller.
    `samples` and `operations`: files to write, see sim_top.weft_sim. The files change in place. Raises SimulationError
    when the machine breaks an AXI rule, hangs or outlasts `timeout_seconds`; a machine that reports an error in its
    registers has run, and the result says so.
    """
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
