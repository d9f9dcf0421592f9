# SPDX-License-Identifier: Apache-2.0
"""``weft estimate`` refuses a program exactly where the golden machine stops, and gives numbers for all others."""

from pathlib import Path

import numpy as np
import pytest

from weft.cli.estimate import estimated
from weft.cycles.errors import EstimateError
from weft.cycles.replay import estimate
from weft.golden.check import MachineStop
from weft.golden.legality import first_stop
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.devices import no_progress
from weft.runtime.session import Session
from weft.tb.random.damage import damaged
from weft.tb.random.random_program import random_program
from weft.tb.unit.golden.machines import MACHINES
from weft.tb.unit.runtime.models import model

PROGRAMS = 30
MACHINE = MACHINES["eight_lanes_lut"]


def golden_stop(program: bytes, arch: Arch) -> MachineStop | None:
    try:
        Machine(arch).run(program)
    except MachineStop as stop:
        return stop
    return None


def test_damaged_programs_are_refused_where_golden_stops(tmp_path: Path) -> None:
    isa, rng, ends = Isa(MACHINE), np.random.default_rng(7), []
    for seed in range(PROGRAMS):
        program = damaged(isa.assemble(random_program(MACHINE, seed, 30)), isa.instruction_bytes, rng)
        session = Session(model(tmp_path, MACHINE, list(isa.disassemble(program)), [np.zeros((1, 8))]))
        wanted = golden_stop(program, MACHINE)
        try:
            found, where = estimated(session, IdealDram(), no_progress)
        except MachineStop as stop:
            assert wanted is not None and str(stop) == str(wanted)
            assert (stop.cause, stop.program_counter) == (wanted.cause, wanted.program_counter)
        except EstimateError as error:  # golden waits for the rest of a loop's body
            assert wanted is None and "SIMDLoop" in str(error)
        else:
            assert wanted is None and found[0].cycles == where["cycles"] >= found[0].program.instructions
        ends.append(wanted is None)
    assert PROGRAMS // 5 < sum(ends) < PROGRAMS


def test_a_program_that_ends_within_a_loop_is_refused() -> None:
    isa = Isa(MACHINE)
    with pytest.raises(EstimateError, match="SIMDLoop at instruction 1: found 0 instructions behind it"):
        estimate(isa.assemble([isa.no_op(), isa.simd_loop(2, 1)]), MACHINE)


WIDE = MACHINE.replace(local_depth=1 << 12, accumulator_depth=1 << 12)


@pytest.mark.parametrize(("rows", "count", "found"), [
    (4096, 1, "operation of instruction 1: found 16777216 vectors; allowed: at most 262144"),
    (64, 4000, "program: found 1048576000 vectors to move; allowed: at most 1000000000"),
])
def test_legal_programs_without_end_are_refused(rows: int, count: int, found: str) -> None:
    isa = Isa(WIDE)
    endless = isa.assemble([isa.configure(Register.MAT_MUL_ROWS, rows - 1), *[isa.mat_mul(0, 0, 1 << 12)] * count])
    assert first_stop(endless, WIDE) is None
    with pytest.raises(EstimateError, match=found):
        estimate(endless, WIDE)


def test_progress_reaches_the_end_in_pieces() -> None:
    isa = Isa(MACHINE)
    heard: list[tuple[int, int]] = []
    body = [isa.simd_loop(1 << 16, 16), *[isa.simd(SimdSub(SimdOpcode.NO_OP))] * 16]
    found = estimate(isa.assemble(body * 5), MACHINE, progress=lambda done, total: heard.append((done, total)))
    assert found.cycles > 16 * 5 * (1 << 16) and heard
    assert heard == sorted(heard) and {total for _, total in heard} == {len(found.operations)}
