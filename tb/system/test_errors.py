# SPDX-License-Identifier: Apache-2.0
"""Bad programs and bad buses: the machine stops with its cause, keeps what was done before, and comes back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import RtlResult, build_rtl, run_many_on_rtl
from weft.tb.random.lockstep import Case, run_cases
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_program import possible_causes, random_illegal

ARCHS = lockstep_archs()
ARCH = ARCHS["lanes2"]
ISA = Isa(ARCH)
COUNT = 8
BAD, GOOD = 100, 200
"""DRAM addresses: a vector whose bytes answer with an error, and where results go."""


def data(arch: Arch = ARCH) -> np.ndarray:
    return np.arange(arch.array_size * COUNT).reshape(COUNT, arch.array_size) + 1


def run(*programs: list[Instruction], arch: Arch = ARCH,
        **memories: MemorySettings) -> tuple[list[RtlResult], Dram, Dram]:
    """Programs one after another with a soft reset between; the first with the memories behaving as told by name."""
    dram0, dram1 = Dram(arch), Dram(arch)
    dram0.write(0, data(arch))
    settings: list[Mapping[str, MemorySettings]] = [memories, *[{}] * (len(programs) - 1)]
    codes = [Isa(arch).assemble(program) for program in programs]
    results = run_many_on_rtl(arch, codes, dram0, dram1, memories=settings)
    return results, dram0, dram1


def copy(target: int, source: int = 0) -> list[Instruction]:
    """DRAM0 source.. to DRAM0 target.. through local memory."""
    return [ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, source, COUNT),
            ISA.data_move(DataFlow.LOCAL_TO_DRAM0, 0, target, COUNT)]


@pytest.mark.wide_cases("lanes4_slices", "lanes2")
@pytest.mark.parametrize("name", ["lanes2", "lanes4_lut", "lanes4_slices"])
def test_every_illegal_instruction_stops_with_its_cause(name: str) -> None:
    """Cause and program counter as golden's; everything before done, nothing behind visible; reset brings it back."""
    arch, cases = ARCHS[name], []
    for cause in possible_causes(arch):
        for seed in range(3):
            program, program_counter = random_illegal(arch, seed, cause)
            cases.append(Case(arch, seed, tuple(program)))
            assert program_counter < len(program) or arch.repeat_depth, "a Repeat stands for several instructions"
    assert [str(mismatch) for mismatch in run_cases(build_rtl(arch), cases)] == []


@pytest.mark.wide_cases("one port*")
@pytest.mark.parametrize(("flow", "cause"), [
    (DataFlow.DRAM0_TO_LOCAL, Cause.DRAM0_READ_RESPONSE), (DataFlow.LOCAL_TO_DRAM0, Cause.DRAM0_WRITE_RESPONSE),
    (DataFlow.DRAM1_TO_LOCAL, Cause.DRAM1_READ_RESPONSE), (DataFlow.LOCAL_TO_DRAM1, Cause.DRAM1_WRITE_RESPONSE)])
@pytest.mark.parametrize("arch", [ARCH, ARCHS["lanes3_every_step"], ARCHS["lanes4_slices"], ARCHS["lanes4_int8"]],
                         ids=["", "one port", "one port, slices", "one port, bytes"])
def test_error_response_stops_with_cause_and_program_counter(arch: Arch, flow: DataFlow, cause: Cause) -> None:
    low = BAD * arch.vector_bytes
    settings = MemorySettings(error_lo=low, error_hi=low + 8)
    bad = [*copy(GOOD), ISA.no_op(), ISA.data_move(flow, 16, BAD - 2, COUNT), *[ISA.no_op()] * 200, *copy(300)]
    (stopped, after), dram0, _ = run(bad, copy(400, GOOD), arch=arch, dram0=settings, dram1=settings)
    assert (stopped.error_cause, stopped.error_program_counter) == (cause, 3)
    assert np.array_equal(dram0.read(GOOD, COUNT), data(arch)), "what came before is done"
    assert not dram0.read(300, COUNT).any(), "what came behind is not"
    assert after.error_cause is Cause.NONE
    assert np.array_equal(dram0.read(400, COUNT), data(arch)), "a soft reset brings the machine back"


def test_error_response_to_a_program_read_stops() -> None:
    """The program's memory answers with an error beyond its first bytes."""
    settings = MemorySettings(error_lo=512, error_hi=520)
    (stopped,), dram0, _ = run([*copy(GOOD), *[ISA.no_op()] * 300, *copy(300)], program=settings)
    assert stopped.error_cause is Cause.PROGRAM_READ_RESPONSE
    assert np.array_equal(dram0.read(GOOD, COUNT), data())
    assert not dram0.read(300, COUNT).any()


def test_slave_that_does_not_answer_raises_the_timeout_and_corrupts_nothing() -> None:
    """Longer than the timeout register says: the flag; when the answer comes after all, the data is right."""
    program = [ISA.configure(Register.TIMEOUT, 500), *copy(GOOD)]
    (late,), dram0, _ = run(program, dram0=MemorySettings(read_latency=3000))
    assert late.job.timeout
    assert late.error_cause is Cause.NONE
    assert np.array_equal(dram0.read(GOOD, COUNT), data())


def test_long_operation_does_not_raise_the_timeout() -> None:
    program = [ISA.configure(Register.MOVE_ROWS, 30), *copy(GOOD)]
    (done,), *_ = run(program, dram0=MemorySettings(read_latency=20))
    assert done.cycles > 200
    assert not done.job.timeout


def test_tracepoint_is_raised_at_its_instruction_only() -> None:
    def trace(at: int) -> RtlResult:
        return run([ISA.configure(Register.TRACEPOINT, at), *[ISA.no_op()] * 5, *copy(GOOD)])[0][0]

    assert trace(4).job.tracepoint
    assert not trace(40).job.tracepoint
