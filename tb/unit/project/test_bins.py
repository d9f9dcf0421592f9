# SPDX-License-Identifier: Apache-2.0
"""Bins of random programs: what falls into which, and that a few hundred programs reach all that matters most."""

from __future__ import annotations

from collections import Counter

import pytest

from weft.hw.contract.instructions import DataFlow, Instruction, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.tb.random.bins import Bin, all_bins, bins
from weft.tb.random.lockstep import Case
from weft.tb.random.lockstep_archs import lockstep_archs

ARCHS = lockstep_archs()
ARCH = ARCHS["lanes2"]
ISA = Isa(ARCH)


def of(*program: Instruction, group: str) -> dict[Bin, int]:
    return {each: count for each, count in bins(Case(ARCH, 0, program)).items() if each[0] == group}


@pytest.mark.parametrize(("first", "second", "kinds"), [
    ((0, 4), (3, 4), {("mat_mul", "move_out", "accumulators", "read after write")}), ((0, 4), (4, 4), set()),
    ((10, 1), (8, 3), {("mat_mul", "move_out", "accumulators", "read after write")})])
def test_a_hazard_is_two_ranges_that_meet(first: tuple[int, int], second: tuple[int, int], kinds: set[Bin]) -> None:
    """The second reads what the first wrote into the accumulators; local memory is apart."""
    found = of(ISA.mat_mul(100, *first), ISA.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, *second), group="hazard")
    assert {each[1:] for each in found} == kinds


def test_operations_far_apart_and_reads_alone_are_no_hazard() -> None:
    read = ISA.data_move(DataFlow.LOCAL_TO_DRAM0, 0, 0, 4)
    write = ISA.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 4)
    apart = [ISA.data_move(DataFlow.LOCAL_TO_DRAM0, 60, 60 + 4 * k, 1) for k in range(8)]
    assert not of(read, ISA.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 4), group="hazard")
    assert [each[-1] for each in of(read, write, group="hazard")] == ["write after read"]
    assert not of(read, *apart, write, group="hazard")


def test_sizes_registers_and_loops_have_classes() -> None:
    sizes = of(ISA.mat_mul(0, 0, 64), ISA.mat_mul(0, 0, 2), ISA.mat_mul(0, 0, 20), group="size")
    assert Counter(each[3] for each in sizes) == Counter(["most", "2", "buffer", "other"])
    values = of(*(ISA.configure(Register.OUTPUT_SHIFT, value) for value in (0, 5, 31)), group="register")
    assert [each[2] for each in values] == ["0", "other", "most"]
    loop = [ISA.simd_loop(9, 2), *[ISA.simd(SimdSub(SimdOpcode.ADD))] * 2]
    assert list(of(*loop, group="loop")) == [("loop", "some", "1 x depth + some")]


def test_an_illegal_program_falls_into_no_bin() -> None:
    assert not bins(Case(ARCH, 0, (ISA.no_op(), ISA.mat_mul(ARCH.local_depth - 1, 0, 2))))


@pytest.mark.parametrize("name", ["lanes2", "lanes4_int8"])
def test_random_programs_reach_every_hazard_and_most_registers(name: str) -> None:
    """And nothing that is not on the list of all bins. ``make coverage-bins`` counts the others, with more programs."""
    met: set[Bin] = set().union(*(bins(Case.of(ARCHS[name], seed)) for seed in range(300)))
    every = set(all_bins(ARCHS[name]))
    assert met <= every
    missed = sorted(each for each in every - met if each[0] == "hazard")
    assert not missed
    assert sum(each[0] == "register" for each in met) >= 0.9 * sum(each[0] == "register" for each in every)
