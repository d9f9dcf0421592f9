# SPDX-License-Identifier: Apache-2.0
"""Cores that wait for each other: RTL leaves what golden machines leave in any order, and takes the estimate's cycles."""

from __future__ import annotations

import numpy as np
import pytest

from weft.cycles.system import estimate_system
from weft.golden.dram import Dram, differences
from weft.golden.races import RaceError, check_races
from weft.golden.system import GoldenSystem
from weft.hw.contract.causes import Cause
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import OPERATION
from weft.simulate.job import MemorySettings
from weft.tb.random.random_signals import SignalledPrograms, signalled_programs
from weft.tb.system.test_system import SYSTEMS, filled, run, stalls

CASES, LENGTH = 12, 60


def made(name: str, first: int, count: int) -> list[SignalledPrograms]:
    return [signalled_programs(SYSTEMS[name], first + seed, LENGTH) for seed in range(count)]


def assembled(name: str, programs: list[list[list]]) -> list[list[bytes]]:  # type: ignore[type-arg]
    isa = Isa(SYSTEMS[name])
    return [[isa.assemble(program) for program in group] for group in programs]


@pytest.mark.parametrize("name", SYSTEMS)
def test_random_signalled_programs_leave_what_golden_leaves_in_any_order(name: str) -> None:
    """With stalls and jitter; each group begins with what the one before left."""
    arch = SYSTEMS[name]
    groups = assembled(name, [each.programs for each in made(name, 0, CASES)])
    ours, theirs = filled(arch, 5), filled(arch, 5)
    done = run(arch, groups, theirs, [stalls(seed) for seed in range(CASES)])
    assert all(each.error_cause is Cause.NONE for group in done for each in group)
    golden = GoldenSystem(arch, *ours)
    for seed, group in enumerate(groups):
        golden.run(group, seed=seed)
        for core in golden.cores:
            core.soft_reset()
    assert [differences(a, b, 3) for a, b in zip(ours, theirs, strict=True)] == [[], []]


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("latency", [2, 30])
def test_random_signalled_programs_take_the_cycles_of_the_estimate(name: str, latency: int) -> None:
    arch = SYSTEMS[name]
    groups = assembled(name, [each.programs for each in made(name, 100, CASES)])
    done = run(arch, groups, filled(arch, 6), [MemorySettings(read_latency=latency, write_latency=latency)] * CASES,
               trace_operations=True)
    for seed, (group, results) in enumerate(zip(groups, done, strict=True)):
        found = estimate_system(group, arch, IdealDram(latency, latency))
        assert [each.cycles for each in found.cores] == [each.cycles for each in results], seed
        for mine, result in zip(found.cores, results, strict=True):
            assert result.operations is not None
            assert all(np.array_equal(mine.operations[column], result.operations[column])
                       for column in OPERATION.fields or ()), seed
