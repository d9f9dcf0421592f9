# SPDX-License-Identifier: Apache-2.0
"""Measure in RTL how close the units come to the cycles that are physically possible.

    python scripts/bench_units.py [--quick]        # quick: without the 32-lane machines

DRAM answers as ``EXPECTED`` of hw/contract/dram.py says. The script prints a table and writes
build/bench/units.json; exit code 1 if a bar is missed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from weft.golden.dram import Dram, differences
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.instructions import DataFlow, Instruction, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.schemes import FixedPointEveryStep
from weft.hw.contract.timing import ALU_LATENCY, execute_latency
from weft.runtime.session import RTL, Session
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import run_many_on_rtl
from weft.tmodel.manifest import TModel

ROOT = Path(__file__).parents[1]
MEMORY = MemorySettings(read_latency=EXPECTED.read_latency, write_latency=EXPECTED.read_latency)
WEIGHTS = 8192
"""The address of the weights in local memory."""
TILE = 1024

Program = list[Instruction]


class Case(NamedTuple):
    """A program to measure. ``best``: the fewest possible cycles; ``bar``: the most that are allowed, None for no bar.

    ``lone``: another case, whose cycles beyond its own best (fetching, first weights, draining) are not counted
    here: what is left goes from the first vector to the last."""

    name: str
    program: Program
    best: int
    bar: Callable[[dict[str, int]], float] | None = None
    lone: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    machine: str
    case: str
    cycles: int
    best: int
    bar: float | None

    @property
    def good(self) -> bool:
        """Whether the bar is met."""
        return self.bar is None or self.cycles <= self.bar


def passes(isa: Isa, count: int, vectors: int) -> Program:
    """Return ``count`` MatMuls, each with its own weights."""
    rows = isa.arch.array_size + 1
    return [each for k in range(count) for each in (
        isa.load_weight(WEIGHTS + rows * k, rows),
        isa.mat_mul(vectors * k % WEIGHTS // TILE * TILE, vectors * k % 4096 // TILE * TILE, vectors))]


def pass_cases(isa: Isa, count: int, vectors: int, busy: float) -> list[Case]:
    """Return two cases: one pass alone, and many that keep the array busy.

    ``busy``: the share of the cycles from the first to the last vector in which the array works."""
    lone = f"1 MatMul of {vectors}, weights"
    return [Case(lone, passes(isa, 1, vectors), vectors),
            Case(f"{count} MatMul of {vectors}, weights each", passes(isa, count, vectors), count * vectors,
                 lambda _: count * vectors / busy, lone)]


def array_cases(isa: Isa) -> list[Case]:
    """Return the cases of passes and of short MatMuls."""
    return [*pass_cases(isa, 8, TILE, 0.98), *pass_cases(isa, 64, 49, 0.95), short_case(isa)]


def short_case(isa: Isa) -> Case:
    """Return the case of MatMuls of few vectors."""
    return Case("200 MatMul of 7", [isa.mat_mul(7 * k, 7 * k, 7) for k in range(200)], 1400, lambda _: 1400 / 0.90)


def move_cases(isa: Isa) -> list[Case]:
    """Return the cases of four units at once, each on memory of its own."""
    beats = TILE * isa.arch.vector_bytes * 8 // isa.arch.axi_data_width
    alone = {
        "MatMul alone": isa.mat_mul(0, 0, TILE),
        "acc->local alone": isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 4096, 2048, TILE),
        "local->DRAM0 alone": isa.data_move(DataFlow.LOCAL_TO_DRAM0, WEIGHTS, 0, TILE),
        "DRAM1->local alone": isa.data_move(DataFlow.DRAM1_TO_LOCAL, 12288, 0, TILE),
    }
    return [
        *(Case(name, [each], beats if "DRAM" in name else TILE) for name, each in alone.items()),
        Case("all four at once", list(alone.values()), beats,
             lambda cycles: 1.15 * max(cycles[name] for name in alone)),
        Case("DRAM read of 4096", [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 4096)], 4 * beats,
             lambda _: 4 * beats / 0.95 + MEMORY.read_latency),
        Case("DRAM write of 4096", [isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, 0, 4096)], 4 * beats,
             lambda _: 4 * beats / 0.95 + MEMORY.write_latency),
    ]


def residual_cases(isa: Isa) -> list[Case]:
    """Return the cases of MatMul, accumulate from local, and move out to local, on three tiles in turn."""
    def pattern(accumulate: bool) -> Program:
        return [each for k in range(8) for each in (
            isa.mat_mul(0, TILE * (k % 3), TILE, accumulate=accumulate),
            isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 2048, TILE * ((k + 1) % 3), TILE),
            isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 4096, TILE * ((k + 2) % 3), TILE))]

    accumulates = isa.arch.accumulator_banks >= 4
    most = 1.2 if accumulates else 1.1
    return [
        Case("8 MatMul", [isa.mat_mul(0, TILE * (k % 3), TILE) for k in range(8)], 8 * TILE),
        Case(f"residual pattern{', accumulating' if accumulates else ''}", pattern(accumulates), 8 * TILE,
             lambda cycles: most * cycles["8 MatMul"]),
    ]


def loop_case(isa: Isa) -> Case:
    """Return the case of a SIMD loop.

    Beyond its vectors it may take 30 cycles, and what lookup tables add to the SIMD unit's pipeline."""
    body = [isa.simd(SimdSub(SimdOpcode.ABS, destination=1), read=0),
            isa.simd(SimdSub(SimdOpcode.ADD, 1, 0, 1), read=TILE),
            isa.simd(SimdSub(SimdOpcode.MAX, 1, 0), read=0, write=2 * TILE)]
    most = 3 * TILE + 30 + execute_latency(isa.arch) - ALU_LATENCY
    return Case("SIMDLoop of 3 over 1024", [isa.simd_loop(TILE, 3), *body], 3 * TILE, lambda _: most)


def measure(machine: str, arch: Arch, cases: list[Case]) -> list[Row]:
    """Run the cases in one simulation, check the memories against golden, and return a row for each."""
    isa = Isa(arch)
    hardware, golden = [(Dram(arch), Dram(arch)) for _ in range(2)]
    vectors = np.random.default_rng(0).integers(-100, 100, (4096, arch.array_size))
    for dram in (*hardware, *golden):
        dram.write(0, vectors)
    programs = [isa.assemble(case.program) for case in cases]
    results = run_many_on_rtl(arch, programs, *hardware, memories=[MEMORY] * len(programs))
    reference = Machine(arch, *golden)
    for program in programs:
        reference.soft_reset()
        reference.run(program)
    for ours, theirs in zip(golden, hardware, strict=True):
        if differences(ours, theirs, 1):
            sys.exit(f"{machine}: the hardware's DRAM differs from golden's")
    cycles = {case.name: result.cycles for case, result in zip(cases, results, strict=True)}
    best = {case.name: case.best for case in cases}
    ends = {case.name: cycles[case.lone] - best[case.lone] if case.lone else 0 for case in cases}
    return [Row(machine, case.name, cycles[case.name] - ends[case.name], case.best, case.bar and case.bar(cycles))
            for case in cases]


def published_vectors() -> list[Row]:
    """Return the row of the program of the original tools, if it is there.

    All logits must be exact; the cycles are those of the first image."""
    folder = ROOT.parent / "shared" / "vectors" / "resnet20v2_zcu104"
    if not folder.exists():
        return []
    model = TModel.load(next(folder.glob("*.tmodel")))
    data = np.load(folder / "images.npz")
    vectors = np.zeros((len(data["images"]), 1024, 32), np.int64)
    vectors[:, :, :3] = data["images"].reshape(len(data["images"]), 3, 1024).transpose(0, 2, 1)
    arch = model.arch.replace(mac_rounding=FixedPointEveryStep.name, axi_data_width=128, deep_queues=1)
    session = Session(model, arch)
    name = model.inputs[0].name
    done = session.run({name: vectors}, on=RTL, raw=True, check=False, memory=MEMORY)
    logits = next(iter(done.outputs.values())).reshape(len(vectors), 32)[:, :10]
    if not np.array_equal(logits, data["logits"]):
        sys.exit("published vectors: the hardware's logits differ")
    assert done.cycles is not None
    return [Row("32 lanes, every_step", "published ResNet-20 v2, per image", done.cycles // len(vectors), 0, 600_000)]


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table("machine", "case", "cycles", "of best", "bar", "")
    for row in rows:
        share = f"{row.best / row.cycles:.1%}" if row.best else ""
        bar = f"{row.bar:.0f}" if row.bar else ""
        table.add_row(row.machine, row.case, str(row.cycles), share, bar, "" if row.good else "[red]missed")
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def machines(quick: bool) -> Iterator[tuple[str, Arch, list[Case]]]:
    """Yield the machines to measure and their cases.

    They are ``ultra96`` with accumulators for four tiles side by side. The bars hold for deep queues: in short
    queues short operations wait for a place."""
    lanes16 = Arch.load("ultra96").replace(accumulator_depth=4 * TILE, deep_queues=1)
    isa = Isa(lanes16)
    yield "16 lanes", lanes16, [*array_cases(isa), *move_cases(isa), *residual_cases(isa), loop_case(isa)]
    yield "16 lanes, short queues", lanes16.replace(deep_queues=0), [short_case(isa)._replace(bar=None)]
    banks4 = lanes16.replace(accumulator_banks=4)
    yield "16 lanes, 4 acc banks", banks4, residual_cases(Isa(banks4))
    if not quick:
        lanes32 = Arch.load("zcu104")
        yield "32 lanes", lanes32, pass_cases(Isa(lanes32), 16, 36, 0.95)


def main(quick: Annotated[bool, typer.Option(help="without the 32-lane machines")] = False) -> None:
    """Measure the units; exit with code 1 if a bar is missed."""
    rows = [row for machine in machines(quick) for row in measure(*machine)]
    if not quick:
        rows += published_vectors()
    file = ROOT / "build" / "bench" / "units.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".tmp").write_text(json.dumps([{**asdict(row), "good": row.good} for row in rows], indent=1))
    file.with_suffix(".tmp").replace(file)
    show(rows)
    if not all(row.good for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
