# SPDX-License-Identifier: Apache-2.0
"""The check of a whole program stops exactly where the golden machine stops, with its cause and program counter."""

import time

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.legality import first_stop
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import WAYS_OUT, Cause
from weft.hw.contract.instructions import (
    COUNTER_WIDTH,
    DataFlow,
    Instruction,
    Opcode,
    SimdOpcode,
    SimdSub,
    flag_bit,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.support.errors import IsaError
from weft.tb.random.damage import damaged
from weft.tb.random.program_maker import MOST_REPEATED
from weft.tb.random.random_program import possible_causes, random_illegal, random_program
from weft.tb.unit.golden.machines import MACHINES, make_arch

DAMAGED = 40
"""Programs on each machine."""


def golden_stop(program: bytes, arch: Arch) -> MachineStop | None:
    machine = Machine(arch)
    machine.sync.values[...] = len(program) << 8  # so that damage makes no wait that lasts for ever
    try:
        machine.run(program)
    except MachineStop as stop:
        return stop
    return None


def assert_same(program: bytes, arch: Arch) -> MachineStop | None:
    found, wanted = first_stop(program, arch), golden_stop(program, arch)
    assert (found is None) == (wanted is None), (found, wanted)
    if found is not None and wanted is not None:
        assert (found.cause, found.program_counter) == (wanted.cause, wanted.program_counter)
        assert str(found) == str(wanted)
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_legal_programs_are_let_through(name: str) -> None:
    arch = MACHINES[name]
    for seed in range(4):
        program = Isa(arch).assemble(random_program(arch, seed, 150))
        assert golden_stop(program, arch) is None and first_stop(program, arch) is None


@pytest.mark.parametrize("name", MACHINES)
def test_every_cause_is_found_where_golden_finds_it(name: str) -> None:
    arch = MACHINES[name]
    for cause in possible_causes(arch):
        for seed in range(4):
            instructions, counter = random_illegal(arch, seed, cause)
            found = assert_same(Isa(arch).assemble(instructions), arch)
            assert found is not None and (found.cause, found.program_counter) == (cause, counter)


def test_program_counters_go_on_from_zero_behind_the_last() -> None:
    """A wide operand 1, so that a Configure can name the last of them."""
    arch = make_arch("FP8BP4", dram0_depth=1 << 26)
    isa = Isa(arch)
    found = assert_same(isa.assemble([isa.configure(Register.PROGRAM_COUNTER, (1 << 32) - 2), *[isa.no_op()] * 3,
                                      Instruction(14)]), arch)
    assert found is not None and found.program_counter == 1


@pytest.mark.parametrize("name", ["taps9", "int8_taps9"])
def test_rows_of_taps_may_reach_local_memory_s_end_and_no_further(name: str) -> None:
    """The last row of taps that counts lies so many pitches behind the first one that does."""
    arch, rng = MACHINES[name], np.random.default_rng(8)
    isa = Isa(arch)
    for mask in range(1, 8):
        counted = [row for row in range(3) if mask >> row & 1]
        pitch, size = int(rng.integers(1, 12)), int(rng.integers(1, 5))
        last = arch.local_depth - size - (counted[-1] - counted[0]) * pitch
        for base, cause in ((last, None), (last + 1, Cause.LOCAL_RANGE)):
            found = assert_same(isa.assemble([
                isa.configure(Register.TAP_ORIGIN, 2), isa.configure(Register.TAP_ROWS, mask),
                isa.configure(Register.TAP_PITCH, pitch), isa.mat_mul(base, 0, size)]), arch)
            assert (found and found.cause) == cause, (mask, pitch, size)


@pytest.mark.parametrize("dram1", [0, 1])
@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (1, 4), (5, 2), (7, 8)])
def test_a_signals_range_may_reach_its_drams_end_with_its_last_stride(size: int, stride: int, dram1: int) -> None:
    arch = MACHINES["cores"].replace(dram0_depth=2000)
    isa, depth = Isa(arch), arch.dram1_depth if dram1 else arch.dram0_depth
    flags = dram1 << flag_bit(Opcode.SIGNAL, "dram1")
    for beyond, cause in ((0, None), (1, Cause.DRAM1_RANGE if dram1 else Cause.DRAM0_RANGE)):
        range_ = isa._address("range", 1, depth - size * stride + beyond, stride)
        found = assert_same(isa.assemble([Instruction(Opcode.SIGNAL, flags, 0, range_, size - 1)]), arch)
        assert (found and found.cause) == cause


@pytest.mark.parametrize("name", MACHINES)
def test_damaged_programs_stop_where_golden_stops(name: str) -> None:
    arch = MACHINES[name]
    isa, rng, stops = Isa(arch), np.random.default_rng(sum(name.encode())), 0
    for seed in range(DAMAGED):
        program = damaged(isa.assemble(random_program(arch, seed, 40)), isa.instruction_bytes, rng)
        if isa.words(program)[3, isa.words(program)[0] == Opcode.REPEAT].max(initial=0) > MOST_REPEATED:
            continue  # by a bit of its count
        found = assert_same(program, arch)
        stops += found is not None
    assert DAMAGED // 4 < stops < DAMAGED


def test_a_held_address_reaches_no_further_than_itself() -> None:
    arch = MACHINES["tiny"]
    isa, last = Isa(arch), arch.accumulator_depth - 1
    for hold, cause in ((True, None), (False, Cause.ACCUMULATOR_RANGE)):
        body = isa.simd(SimdSub(SimdOpcode.NO_OP), read=last, hold=hold)
        found = assert_same(isa.assemble([isa.simd_loop(2, 1), body]), arch)
        assert (found and found.cause) == cause


def test_a_range_of_strides_ends_with_the_last_stride() -> None:
    arch = MACHINES["cores"].replace(dram0_depth=2000)
    isa, depth = Isa(arch), arch.dram1_depth
    legal = isa.wait(0, 0, depth - 12, 1, dram1=True)
    for first, cause in ((depth - 12, None), (depth - 11, Cause.DRAM1_RANGE)):  # three strides of four vectors
        placed = legal._replace(operand1=first | 2 << isa.address_widths[1], operand2=2)
        found = assert_same(isa.assemble([placed]), arch)
        assert (found and found.cause) == cause


def test_a_signal_posts_to_all_cores_or_waits_for_255() -> None:
    arch = MACHINES["cores"]
    isa = Isa(arch)
    for legal in (isa.post(0, range(arch.cores), 0, 1), isa.wait(0, 255, 0, 1)):
        more = legal._replace(operand0=legal.operand0 + (1 << COUNTER_WIDTH))
        assert assert_same(isa.assemble([legal]), arch) is None
        found = assert_same(isa.assemble([more]), arch)
        assert found is not None and found.cause is Cause.SIGNAL


@pytest.mark.parametrize("unit", ["MatMul", "DataMove"])
@pytest.mark.parametrize(("pitch", "other"), [(28, 31), (29, 4)])
def test_rows_lie_a_pitch_of_their_own_instruction_apart(unit: str, pitch: int, other: int) -> None:
    """The second of two rows of four vectors ends at the last vector of local memory, or just behind it."""
    arch = MACHINES["tiny"]
    isa, multiplies = Isa(arch), unit == "MatMul"
    registers = [Register.MAT_MUL_LOCAL_PITCH, Register.MOVE_LOCAL_PITCH]
    own, others = registers if multiplies else registers[::-1]
    rows, far = ((Register.MAT_MUL_ROWS, Register.MAT_MUL_ACCUMULATOR_PITCH) if multiplies
                 else (Register.MOVE_ROWS, Register.MOVE_FAR_PITCH))
    last = isa.mat_mul(0, 0, 4) if multiplies else isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 4)
    found = assert_same(isa.assemble([isa.configure(rows, 1), isa.configure(far, 4), isa.configure(own, pitch),
                                      isa.configure(others, other), last]), arch)
    assert (found and found.cause) == (Cause.LOCAL_RANGE if pitch > 28 else None)


def test_a_loop_may_be_open_at_the_end() -> None:
    arch = MACHINES["tiny"]
    isa = Isa(arch)
    for program in ([isa.simd_loop(3, 2)], [isa.no_op(), isa.simd_loop(3, 16), isa.simd_loop(1, 1)]):
        assert_same(isa.assemble(program), arch)


def test_the_program_counter_may_be_set() -> None:
    arch = MACHINES["tiny"]
    isa = Isa(arch)
    sets = [isa.configure(Register.PROGRAM_COUNTER, 500), isa.no_op(), isa.no_op()]
    found = assert_same(isa.assemble([isa.no_op(), *sets, Instruction(9)]), arch)
    assert found is not None and found.program_counter == 502


def test_empty_and_truncated_programs() -> None:
    arch = MACHINES["tiny"]
    assert first_stop(b"", arch) is None
    with pytest.raises(IsaError):
        first_stop(bytes(Isa(arch).instruction_bytes + 1), arch)


def test_a_million_instructions_take_some_seconds_at_most() -> None:
    arch = MACHINES["eight_lanes_lut"]
    isa = Isa(arch)
    resets = [isa.configure(register, spec.reset) for register, spec in isa.registers.items()
              if register >= Register.MAT_MUL_ROWS]
    many = isa.assemble([*random_program(arch, 1, 1000), *resets]) * 1000
    began = time.process_time()
    assert first_stop(many, arch) is None
    seconds = time.process_time() - began
    print(f"\n{seconds:.2f} s for {len(many) // isa.instruction_bytes} instructions")
    assert seconds < 10


def test_the_way_out_fits_the_cause() -> None:
    """An illegal instruction runs on a machine that it suits, and corrected. No other stop speaks of instructions."""
    arch = MACHINES["tiny"]
    depth = arch.accumulator_depth
    bad, good = (Isa(arch).assemble([Isa(arch).data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, base, 2)])
                 for base in (depth - 1, depth - 2))
    stop = golden_stop(bad, arch)
    assert str(stop).endswith("way out: compile the model for this machine's .tarch, or correct this instruction in a "
                              "program of your own")
    assert golden_stop(bad, arch.replace(accumulator_depth=2 * depth)) is None and golden_stop(good, arch) is None
    assert WAYS_OUT.keys() == set(Cause) - {Cause.NONE}
    assert all("instruction" not in str(MachineStop(cause, 0, "", "")).partition("way out")[2]
               for cause in Cause if cause >= Cause.DRAM0_READ_RESPONSE)
