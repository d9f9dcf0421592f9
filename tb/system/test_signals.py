# SPDX-License-Identifier: Apache-2.0
"""Cores that wait for each other: RTL leaves what golden machines leave in any order, and takes the estimate's cycles.

With a post and its wait left out, the programs are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from weft.cycles.system import estimate_system
from weft.golden.dram import differences
from weft.golden.order import SignalError
from weft.golden.races import RaceError, check_races
from weft.hw.contract.causes import Cause
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import OPERATION
from weft.simulate.job import MemorySettings
from weft.tb.random.random_signals import SignalledPrograms, signalled_programs
from weft.tb.random.signals_rule import LENGTH, SYSTEMS, filled, run_on_golden, stalls
from weft.tb.random.unordered_rule import Outcome, run_without
from weft.tb.system.test_system import run

CASES = 12
LEFT_OUT = 3
"""Links of each random program that are left out, one at a time."""


def made(name: str, first: int, count: int) -> list[SignalledPrograms]:
    return [signalled_programs(SYSTEMS[name], first + seed, LENGTH) for seed in range(count)]


def assembled(name: str, programs: list[list[Instruction]]) -> list[bytes]:
    isa = Isa(SYSTEMS[name])
    return [isa.assemble(program) for program in programs]


@pytest.mark.slow
@pytest.mark.wide_cases("two on one port")
@pytest.mark.parametrize("name", SYSTEMS)
def test_random_signalled_programs_leave_what_golden_leaves_in_any_order(name: str) -> None:
    """With stalls and jitter; each group begins with what the one before left."""
    arch = SYSTEMS[name]
    groups = [assembled(name, each.programs) for each in made(name, 0, CASES)]
    ours, theirs = filled(arch, 5), filled(arch, 5)
    done = run(arch, groups, theirs, [stalls(seed) for seed in range(CASES)])
    assert all(each.error_cause is Cause.NONE for group in done for each in group)
    run_on_golden(arch, ours, dict(enumerate(groups)))
    assert [differences(a, b, 3) for a, b in zip(ours, theirs, strict=True)] == [[], []]


@pytest.mark.wide_cases("2-*")
@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("latency", [2, 30])
def test_random_signalled_programs_take_the_cycles_of_the_estimate(name: str, latency: int) -> None:
    arch = SYSTEMS[name]
    groups = [assembled(name, each.programs) for each in made(name, 100, CASES)]
    done = run(arch, groups, filled(arch, 6), [MemorySettings(read_latency=latency, write_latency=latency)] * CASES,
               trace_operations=True)
    for seed, (group, results) in enumerate(zip(groups, done, strict=True)):
        found = estimate_system(group, arch, IdealDram(latency, latency))
        assert [each.cycles for each in found.cores] == [each.cycles for each in results], seed
        for mine, result in zip(found.cores, results, strict=True):
            assert result.operations is not None
            assert all(np.array_equal(mine.operations[column], result.operations[column])
                       for column in OPERATION.fields or ()), seed


@pytest.mark.parametrize("name", SYSTEMS)
def test_programs_are_refused_without_one_of_the_links_that_they_need(name: str) -> None:
    """And let through with all of them. Left out is the post, the wait, or both."""
    arch, rng, refused = SYSTEMS[name], random.Random(7), 0
    for each in made(name, 200, 10):
        check_races(assembled(name, each.programs), arch)
        needed = [link for link in each.links if link.needed]
        for link in rng.sample(needed, min(LEFT_OUT, len(needed))):
            with pytest.raises(RaceError, match="core [0-9], instruction [0-9]+, which .* bytes"):
                check_races(assembled(name, each.without(link)), arch)
            for core, at in (link.post, link.wait):
                one = [list(program) for program in each.programs]
                del one[core][at]
                with pytest.raises(SignalError):
                    check_races(assembled(name, one), arch)
            refused += 1
    assert refused >= 12


@pytest.mark.slow
def test_where_rtl_differs_without_a_link_the_programs_are_refused() -> None:
    """They run in RTL all the same. Some differ, and those that are let through leave golden's words."""
    outcomes = [run_without("three on two ports", seed) for seed in range(300, 308)]
    assert {outcome for outcome in outcomes if outcome} == {
        Outcome(refused=True, differs=True), Outcome(refused=True, differs=False),
        Outcome(refused=False, differs=False)}


@pytest.mark.slow
def test_an_error_stops_the_cores_that_may_wait_for_its_core() -> None:
    """One of which would wait for ever. One that had ended stays as it was; a reset makes all of them ready again."""
    name = "three on two ports"
    arch = SYSTEMS[name]
    isa = Isa(arch)
    illegal = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 8 * k, 8) for k in range(20)]
    illegal[12] = isa.data_move(DataFlow.DRAM0_TO_LOCAL, arch.local_depth - 1, 0, 2)
    waits = [isa.no_op(), isa.wait(1, 1, 0, 5), isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, 0, 1)]
    good = assembled(name, signalled_programs(arch, 3, LENGTH).programs)
    broken = assembled(name, [[*illegal, isa.post(1, [1], 0, 5)], waits, [isa.no_op()]])
    first, second = run(arch, [broken, good], filled(arch, 7), [MemorySettings()] * 2)
    assert [each.error_cause for each in first] == [Cause.LOCAL_RANGE, Cause.OTHER_CORE, Cause.NONE]
    assert first[0].error_program_counter == 12
    assert [each.error_cause for each in second] == [Cause.NONE] * 3


@pytest.mark.slow
def test_a_counter_that_overflows_stops_its_core() -> None:
    name = "two on one port"
    arch = SYSTEMS[name]
    isa = Isa(arch)
    posts = assembled(name, [[isa.post(0, [1], 0, 1)] * 256, [isa.wait(1, 1, 0, 1)]])
    (done,) = run(arch, [posts], filled(arch, 8), [MemorySettings()])
    assert done[1].error_cause is Cause.COUNTER_OVERFLOW
