# SPDX-License-Identifier: Apache-2.0
"""The estimator's cycles of small directed programs, as literal numbers: no simulator is needed to see a rule change.

The numbers were measured on the simulated hardware, with a DRAM of 20 cycles; the last test measures them again. Where
the hardware's timing is changed on purpose, its failure shows the new ones.
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.cycles.replay import estimate
from weft.golden.dram import Dram
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import DataFlow, Instruction, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import run_many_on_rtl
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"]
ISA = Isa(ARCH)
LATENCY = 20


def move(flow: DataFlow, local: int, far: int, size: int) -> Instruction:
    return ISA.data_move(flow, local, far, size)


def simd(opcode: SimdOpcode, left: int, destination: int, read: int | None = None,
         write: int | None = None) -> Instruction:
    return ISA.simd(SimdSub(opcode, left, 0, destination), read=read, write=write)


PROGRAMS: dict[str, list[Instruction]] = {
    "from unit to unit": [
        ISA.load_weight(0, 3), ISA.mat_mul(10, 0, 12), move(DataFlow.ACCUMULATOR_TO_LOCAL, 40, 0, 12),
        move(DataFlow.LOCAL_TO_DRAM0, 40, 0, 12)],
    "the last one in common": [
        ISA.mat_mul(0, 0, 20), move(DataFlow.ACCUMULATOR_TO_LOCAL, 60, 19, 4),
        move(DataFlow.LOCAL_TO_DRAM1, 63, 0, 8), ISA.mat_mul(0, 24, 8)],
    "the first one in common": [
        ISA.mat_mul(0, 20, 20), move(DataFlow.ACCUMULATOR_TO_LOCAL, 60, 17, 4),
        move(DataFlow.LOCAL_TO_DRAM1, 53, 0, 8), move(DataFlow.DRAM0_TO_LOCAL, 50, 0, 4)],
    "none in common": [
        ISA.mat_mul(0, 0, 20), move(DataFlow.ACCUMULATOR_TO_LOCAL, 60, 20, 4),
        move(DataFlow.LOCAL_TO_DRAM1, 64, 0, 8), ISA.mat_mul(0, 24, 8)],
    "as many as may be outstanding": [*[move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 16)] * 14, ISA.mat_mul(32, 32, 4)],
    "a full queue of SIMD": [ISA.mat_mul(32, 0, 30), *[simd(SimdOpcode.INCREMENT, 0, 0, read=29, write=40)] * 10,
                             move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 4)],
    "bursts": [move(DataFlow.DRAM0_TO_LOCAL, 0, 3, 100), move(DataFlow.LOCAL_TO_DRAM1, 0, 61, 70)],
    "registers": [
        simd(SimdOpcode.INCREMENT, 0, 1, read=3), simd(SimdOpcode.MOVE, 1, 0, write=5),
        simd(SimdOpcode.ABS, 0, 0, read=5, write=6), ISA.simd_loop(5, 2), simd(SimdOpcode.MOVE, 0, 1, read=8),
        simd(SimdOpcode.INCREMENT, 1, 0, write=8)],
    "the end of a load of weights": [ISA.load_weight(0, 3)],
}

MEASURED = {
    "from unit to unit": (97, [(5, 9, 12), (6, 10, 31), (7, 32, 54), (8, 55, 96)]),
    "the last one in common": (90, [(5, 9, 36), (6, 37, 51), (7, 52, 89), (8, 29, 44)]),
    "the first one in common": (122, [(5, 9, 36), (6, 37, 51), (7, 52, 89), (8, 90, 121)]),
    "none in common": (49, [(5, 9, 36), (6, 10, 24), (7, 11, 48), (8, 29, 44)]),
    "as many as may be outstanding": (244, [
        (5, 9, 35), (6, 25, 51), (36, 41, 67), (52, 57, 83), (68, 73, 99), (84, 89, 115), (100, 105, 131),
        (116, 121, 147), (132, 137, 163), (148, 153, 179), (164, 169, 195), (180, 185, 211), (196, 201, 227),
        (212, 217, 243), (213, 217, 228)]),
    "a full queue of SIMD": (120, [
        (5, 9, 46), (6, 47, 62), (7, 48, 63), (8, 49, 64), (9, 50, 65), (63, 66, 81), (64, 67, 82), (65, 68, 83),
        (66, 69, 84), (82, 85, 100), (83, 86, 101), (84, 88, 119)]),
    "bursts": (237, [(5, 9, 136), (6, 137, 236)]),
    "registers": (59, [(5, 8, 23), (6, 9, 28), (7, 10, 42), (8, 15, 43), (24, 29, 44), (29, 32, 58)]),
    "the end of a load of weights": (19, [(5, 9, 12)]),
}
"""Of each program: cycles in all, and of each operation the cycle of its issue, its start and its end."""


def found_in(cycles: int, operations: np.ndarray) -> tuple[int, list[tuple[int, ...]]]:
    columns = (operations[name].tolist() for name in ("issue_cycle", "start_cycle", "finish_cycle"))
    return cycles, list(zip(*columns, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_estimator_says_what_was_measured(name: str) -> None:
    found = estimate(ISA.assemble(PROGRAMS[name]), ARCH, IdealDram(LATENCY, LATENCY))
    assert found_in(found.cycles, found.operations) == MEASURED[name]


def test_a_shared_port_reads_ahead_of_short_moves() -> None:
    """Four reads are outstanding at its one reader; with two these take 157 cycles."""
    arch = lockstep_archs()["lanes4_slices"]
    isa = Isa(arch)
    moves = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 4 * number, 8 * number, 4) for number in range(8)]
    assert arch.shared_dram and estimate(isa.assemble(moves), arch, IdealDram(LATENCY, LATENCY)).cycles == 91


def test_the_hardware_takes_what_was_measured() -> None:
    programs = [ISA.assemble(program) for program in PROGRAMS.values()]
    settings = MemorySettings(read_latency=LATENCY, write_latency=LATENCY)
    done = run_many_on_rtl(ARCH, programs, Dram(ARCH), Dram(ARCH), memories=[settings] * len(programs),
                           trace_operations=True)
    for name, result in zip(PROGRAMS, done, strict=True):
        assert result.operations is not None
        assert found_in(result.cycles, result.operations) == MEASURED[name], name
