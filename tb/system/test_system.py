# SPDX-License-Identifier: Apache-2.0
"""Several cores on shared memory ports: RTL leaves what the golden machines leave, in any order of theirs, takes the
cycles of the estimate, and an error is that of its core."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from weft.cycles.errors import EstimateError
from weft.cycles.replay import estimate
from weft.cycles.system import estimate_system
from weft.golden.dram import Dram, differences
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import MODIFIABLE, Register
from weft.hw.contract.units import OPERATION
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import RtlResult, run_groups_on_rtl
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_system import random_programs
from weft.tb.random.signals_rule import CYCLE_LIMIT, LENGTH, filled, run_on_golden, stalls
from weft.tb.random.signals_rule import SYSTEMS as SIGNALLED

CASES = 8
JOINED = lockstep_archs()["lanes2"].replace(dram_ports=SHARED, cores=3, join_cycles=200)
SYSTEMS = {**SIGNALLED, "three on one port, reads joined": JOINED}
"""Name -> machine of several cores."""


def run(arch: Arch, groups: list[list[bytes]], drams: list[Dram], memories: list[MemorySettings],
        **options: Any) -> list[list[RtlResult]]:
    return run_groups_on_rtl(arch, groups, *drams, memories=memories, cycle_limit=CYCLE_LIMIT, timeout_seconds=300,
                             **options)


@pytest.mark.parametrize("name", SYSTEMS)
def test_random_programs_leave_what_golden_leaves_in_any_order(name: str) -> None:
    """Every word of the memory, in which each program leaves its core's memories too."""
    arch = SYSTEMS[name]
    groups = [random_programs(arch, seed, LENGTH) for seed in range(CASES)]
    ours, theirs = filled(arch, 1), filled(arch, 1)
    done = run(arch, groups, theirs, [stalls(seed) for seed in range(CASES)])
    assert all(each.error_cause is Cause.NONE for group in done for each in group)
    run_on_golden(arch, ours, dict(enumerate(groups)))
    assert [differences(a, b, 3) for a, b in zip(ours, theirs, strict=True)] == [[], []]


@pytest.mark.wide_cases("2-*")
@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("latency", [2, 30])
def test_random_programs_take_the_cycles_of_the_estimate(name: str, latency: int) -> None:
    """Each operation of each core; some groups leave cores at rest."""
    arch = SYSTEMS[name]
    groups = [random_programs(arch, 100 + seed, LENGTH)[:arch.cores - seed % 2] for seed in range(CASES)]
    settings = MemorySettings(read_latency=latency, write_latency=latency)
    done = run(arch, groups, filled(arch, 2), [settings] * CASES, trace_operations=True)
    for seed, (group, results) in enumerate(zip(groups, done, strict=True)):
        found = estimate_system(group, arch, IdealDram(latency, latency))
        assert [each.cycles for each in found.cores] == [each.cycles for each in results], seed
        for mine, result in zip(found.cores, results, strict=True):
            assert result.operations is not None
            assert all(np.array_equal(mine.operations[column], result.operations[column])
                       for column in OPERATION.fields or ()), seed


def weights_of_all(arch: Arch, seed: int, core: int, joins: bool) -> bytes:
    """Moves of constants that all cores read, among moves of the core's own window, which take it different times."""
    isa, rng, own = Isa(arch), random.Random(seed), random.Random(100 * seed + core)
    cache = isa.configure(Register.DRAM1_CACHE, MODIFIABLE if joins else 0)
    moves = []
    for _ in range(30):
        moves.append(isa.data_move(DataFlow.DRAM1_TO_LOCAL, rng.randrange(5), rng.randrange(100), rng.randint(1, 90)))
        for _ in range(own.randrange(3)):
            flow = own.choice((DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0))
            moves.append(isa.data_move(flow, own.randrange(5), own.randrange(100), own.randint(1, 20)))
    return isa.assemble([isa.configure(Register.DRAM0_OFFSET, core), cache, *moves])


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("latency", [9, None], ids=["steady", "stalls"])
def test_one_burst_serves_all_cores_that_read_the_same_constants(joins: bool, latency: int | None) -> None:
    """Local memory is compared by what is saved of it; some groups leave a core at rest, for which nobody waits."""
    arch, cases = JOINED, 6
    groups = [[weights_of_all(arch, seed, core, joins) for core in range(arch.cores - seed % 2)]
              for seed in range(cases)]
    ours, theirs = filled(arch, 4), filled(arch, 4)
    memories = [stalls(seed) if latency is None else MemorySettings(read_latency=latency, write_latency=latency)
                for seed in range(cases)]
    done = run(arch, groups, theirs, memories)
    run_on_golden(arch, ours, dict(enumerate(groups)))
    assert [differences(a, b, 3) for a, b in zip(ours, theirs, strict=True)] == [[], []]
    if latency is None:
        return
    read = 0
    for group, results in zip(groups, done, strict=True):
        found = estimate_system(group, arch, IdealDram(latency, latency))
        assert [each.cycles for each in found.cores] == [each.cycles for each in results]
        apart = sum(port.read_beats for port in estimate_system(group, arch.replace(join_cycles=0)).ports)
        joined = sum(port.read_beats for port in found.ports)
        assert joined < 0.7 * apart if joins else joined == apart
        read += joined
        assert results[0].job.memories["dram0"]["read_beats"] == read


def moves_alone(arch: Arch, seed: int) -> bytes:
    """Moves alone, short and long, contiguous and vector by vector: what an arbiter has most to do with."""
    isa, rng = Isa(arch), random.Random(seed)
    flows = (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0, DataFlow.DRAM1_TO_LOCAL)
    return isa.assemble([isa.data_move(rng.choice(flows), rng.randrange(5), rng.randrange(100), rng.randint(1, 90),
                                       far_stride=rng.choice([1, 1, 2, 4])) for _ in range(40)])


@pytest.mark.parametrize("name", SYSTEMS)
def test_contended_ports_take_the_cycles_of_the_estimate(name: str) -> None:
    arch = SYSTEMS[name]
    groups = [[moves_alone(arch, 10 * seed + core) for core in range(arch.cores)] for seed in range(CASES)]
    done = run(arch, groups, filled(arch, 3), [MemorySettings(read_latency=9, write_latency=9)] * CASES)
    read = written = 0
    for group, results in zip(groups, done, strict=True):
        found = estimate_system(group, arch, IdealDram(9, 9))
        assert [each.cycles for each in found.cores] == [each.cycles for each in results]
        read, written = (before + sum(getattr(port, f"{way}_beats") for port in found.ports)
                         for before, way in ((read, "read"), (written, "write")))
        counted = results[0].job.memories["dram0"]
        assert (counted["read_beats"], counted["write_beats"]) == (read, written)


@pytest.mark.wide
def test_an_error_is_that_of_its_core_and_the_others_go_on() -> None:
    """An illegal instruction of one core, and a memory that answers another with an error; no core can wait."""
    arch = SYSTEMS["three on two ports"].replace(sync_counters=0)
    isa = Isa(arch)
    good = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 8 * k, 8) for k in range(20)]
    illegal = [*good[:5], isa.data_move(DataFlow.DRAM0_TO_LOCAL, arch.local_depth - 1, 0, 2), *good]
    beyond = [*good[:7], isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 900, 1), *good]
    programs = [isa.assemble(each) for each in (illegal, good, beyond)]
    settings = MemorySettings(error_lo=900 * arch.vector_bytes, error_hi=901 * arch.vector_bytes)
    (done,) = run(arch, [programs], filled(arch, 4), [settings])
    assert [(each.error_cause, each.error_program_counter) for each in done] == [
        (Cause.LOCAL_RANGE, 5), (Cause.NONE, 0), (Cause.DRAM0_READ_RESPONSE, 7)]
    assert done[1].instructions == len(good)


def test_one_program_is_not_estimated_as_if_it_had_a_shared_port_alone() -> None:
    arch = SYSTEMS["two on one port"]
    with pytest.raises(EstimateError, match="cores: found 2; allowed: 1.*--set cores=1"):
        estimate(random_programs(arch, 0, 5)[0], arch)
