# SPDX-License-Identifier: Apache-2.0
"""Refused instructions: cause, program counter, text, and nothing of them visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.machine import Machine
from weft.golden.sync import SyncCounters
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import EVERY_STEP
from weft.hw.contract.registers import Register
from weft.tb.unit.golden.machines import MACHINES, make_arch, run

ARCH = make_arch("FP16BP8", 2, local=30, accumulators=15, registers=2, lut_count=1, lut_depth=4,
                 axi_address_width=30)
"""Depths that are no powers of two: every address width can name an address that is not there."""
ISA = Isa(ARCH)
NO_OP = SimdSub(SimdOpcode.NO_OP)
TO_ACCUMULATORS, FROM_DRAM0, TO_DRAM1 = (
    DataFlow.LOCAL_TO_ACCUMULATOR, DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM1)

REFUSED = [
    (Cause.OPCODE, Instruction(7)), (Cause.OPCODE, Instruction(14, 3, 1, 1, 1)),
    (Cause.FLAGS, Instruction(Opcode.NO_OP, 1)), (Cause.FLAGS, Instruction(Opcode.MAT_MUL, 4)),
    (Cause.FLAGS, Instruction(Opcode.DATA_MOVE, 4)), (Cause.FLAGS, Instruction(Opcode.DATA_MOVE, 11)),
    (Cause.FLAGS, Instruction(Opcode.LOAD_WEIGHT, 4)), (Cause.FLAGS, Instruction(Opcode.CONFIGURE, 8)),
    (Cause.FLAGS, Instruction(Opcode.LOAD_LUT, 1)), (Cause.FLAGS, Instruction(Opcode.SIMD_LOOP, 1)),
    (Cause.FLAGS, ISA.simd(NO_OP, read=0, hold=True)),
    (Cause.RESERVED_BITS, Instruction(Opcode.NO_OP, 0, 1)),
    (Cause.RESERVED_BITS, Instruction(Opcode.NO_OP, 0, 0, 0, 1)),
    (Cause.RESERVED_BITS, Instruction(Opcode.LOAD_WEIGHT, 0, 0, 0, 1)),
    (Cause.RESERVED_BITS, Instruction(Opcode.CONFIGURE, 0, 8, 1, 1)),
    (Cause.RESERVED_BITS, Instruction(Opcode.SIMD, 0, 0, 0, 1 << ISA.sub_width)),
    (Cause.LOCAL_RANGE, ISA.mat_mul(29, 0, 2)), (Cause.LOCAL_RANGE, ISA.mat_mul(26, 0, 2, local_stride=4)),
    (Cause.LOCAL_RANGE, ISA.data_move(TO_ACCUMULATORS, 30, 0, 1)), (Cause.LOCAL_RANGE, ISA.load_weight(28, 3)),
    (Cause.LOCAL_RANGE, ISA.load_lut(27, 0)),
    (Cause.ACCUMULATOR_RANGE, ISA.mat_mul(0, 14, 2)), (Cause.ACCUMULATOR_RANGE, ISA.mat_mul(0, 15, 1, zeroes=True)),
    (Cause.ACCUMULATOR_RANGE, ISA.data_move(TO_ACCUMULATORS, 0, 14, 2)),
    (Cause.ACCUMULATOR_RANGE, ISA.data_move(TO_ACCUMULATORS, 0, 7, 2, far_stride=8)),
    (Cause.ACCUMULATOR_RANGE, ISA.simd(NO_OP, read=15)), (Cause.ACCUMULATOR_RANGE, ISA.simd(NO_OP, write=15)),
    (Cause.DRAM0_RANGE, ISA.data_move(FROM_DRAM0, 0, 2047, 2)),
    (Cause.DRAM1_RANGE, ISA.data_move(TO_DRAM1, 0, 1499, 2)), (Cause.DRAM1_RANGE, ISA.data_move(TO_DRAM1, 0, 1500, 1)),
    (Cause.REGISTER, Instruction(Opcode.CONFIGURE, 0, 0x02, 0)), (Cause.REGISTER, Instruction(Opcode.CONFIGURE, 0, 99)),
    (Cause.REGISTER_VALUE, ISA.configure(Register.DRAM0_CACHE, 16)),
    (Cause.REGISTER_VALUE, ISA.configure(Register.OUTPUT_SHIFT, 32)),
    (Cause.REGISTER_VALUE, ISA.configure(Register.DRAM0_OFFSET, 16384)),
    (Cause.SIMD_OPCODE, Instruction(Opcode.SIMD, 0, 0, 0, 17 << 6)),
    (Cause.SIMD_REGISTER, ISA.simd(SimdSub(SimdOpcode.MOVE, left=3))),
    (Cause.SIMD_REGISTER, ISA.simd(SimdSub(SimdOpcode.ADD, right=3))),
    (Cause.SIMD_REGISTER, ISA.simd(SimdSub(SimdOpcode.ZERO, destination=3))),
    (Cause.SIMD_REGISTER, ISA.simd(SimdSub(SimdOpcode.LOOKUP, destination=2))),
    (Cause.LUT_TABLE, ISA.load_lut(0, 2)), (Cause.LOOP_BODY, ISA.simd_loop(1, 17)),
]


def snapshot(machine: Machine) -> list:
    return [machine.local.tolist(), machine.accumulators.tolist(), machine.weights.tolist(),
            machine.simd_registers.tolist(), machine.luts.tolist(), dict(machine.registers),
            *(bytes(dram.bytes[:100_000]) for dram in (machine.dram0, machine.dram1))]


def busy() -> Machine:
    """A machine with something everywhere, so that any effect shows."""
    machine = Machine(ARCH)
    rng = np.random.default_rng(0)
    for dram in (machine.dram0, machine.dram1):
        dram.write(0, rng.integers(-999, 999, (1500, 2)))
    for memory in (machine.local, machine.accumulators, machine.weights, machine.simd_registers, machine.luts):
        memory[...] = rng.integers(-999, 999, memory.shape)
    return machine


@pytest.mark.parametrize(("cause", "illegal"), REFUSED,
                         ids=lambda value: value.name if isinstance(value, Cause) else "")
def test_refused_instruction_has_no_effect_and_is_reported(cause: Cause, illegal: Instruction) -> None:
    machine = busy()
    run(machine, ISA.mat_mul(0, 0, 4, accumulate=True))
    before = snapshot(machine)
    with pytest.raises(MachineStop) as stop:
        run(machine, ISA.no_op(), illegal, ISA.mat_mul(0, 0, 4), ISA.data_move(TO_DRAM1, 0, 0, 9))
    assert (stop.value.cause, stop.value.program_counter) == (cause, 2)
    assert machine.program_counter == 2
    assert snapshot(machine) == before


@pytest.mark.parametrize("name", ("taps", "int8_taps", "taps9", "int8_taps9"))
def test_a_depthwise_program_with_the_oldest_tap_first_is_refused(name: str) -> None:
    """Its weights stand in another order. It configures TAP_ORIGIN by the number that the register had then."""
    with pytest.raises(MachineStop) as stop:
        run(Machine(MACHINES[name]), Instruction(Opcode.CONFIGURE, 0, 0x13, 1))
    assert stop.value.cause is Cause.REGISTER


@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("access", ["read", "write"])
def test_a_loop_reaches_as_far_as_its_last_iteration(access: str, stride: int) -> None:
    """15 accumulators, three iterations: the last address is legal, one more is not."""
    last = 14 - 2 * stride
    loop = ISA.simd_loop(3, 1)

    def body(address: int) -> Instruction:
        accesses: dict[str, Any] = {access: address, f"{access}_stride": stride}
        return ISA.simd(NO_OP, **accesses)

    assert run(busy(), loop, body(last)).program_counter == 2
    with pytest.raises(MachineStop) as stop:
        run(busy(), loop, body(last + 1))
    assert stop.value.cause is Cause.ACCUMULATOR_RANGE


def test_every_cause_of_a_program_is_covered() -> None:
    assert {cause for cause, _ in REFUSED} == {cause for cause in Cause if 0 < cause <= Cause.LOOP_BODY}


@pytest.mark.parametrize("legal", [
    ISA.mat_mul(31, 0, 5, zeroes=True), ISA.load_weight(31, 9, zeroes=True), ISA.simd(NO_OP, write=14),
    ISA.simd(SimdSub(SimdOpcode.ZERO, left=3, right=3)), ISA.simd(SimdSub(SimdOpcode.MOVE, left=2, right=3)),
    Instruction(Opcode.SIMD, 0, 15, 15, 0), ISA.mat_mul(28, 13, 2), ISA.load_lut(26, 1),
    ISA.simd(SimdSub(SimdOpcode.LOOKUP, destination=1)), ISA.configure(Register.DRAM0_OFFSET, 16383),
    ISA.load_weight(0, 30), ISA.simd_loop(1, 16),
])
def test_what_is_not_looked_at_is_not_checked_and_the_last_of_each_range_is_legal(legal: Instruction) -> None:
    assert run(busy(), legal).program_counter == 1


def test_the_message_says_what_found_allowed_and_way_out() -> None:
    with pytest.raises(MachineStop) as stop:
        run(Machine(ARCH), ISA.no_op(), ISA.mat_mul(29, 0, 2))
    text = str(stop.value)
    assert "instruction 1 (MatMul local=29 accumulator=0 size=2)" in text
    assert "LOCAL_RANGE" in text and "allowed: local addresses 0..29" in text and "way out: " in text


@pytest.mark.parametrize("cause", [cause for cause in Cause if 0 < cause <= Cause.LOOP_BODY])
def test_every_cause_says_what_is_allowed(cause: Cause) -> None:
    assert Machine(ARCH)._checker.allowed(cause)


def test_the_lowest_cause_is_reported_when_several_apply() -> None:
    """Local memory, accumulators; then a table and local memory; then reserved bits and flags."""
    for illegal, cause in ((ISA.mat_mul(29, 14, 2), Cause.LOCAL_RANGE), (ISA.load_lut(29, 9), Cause.LOCAL_RANGE),
                           (Instruction(Opcode.NO_OP, 1, 1), Cause.FLAGS),
                           (ISA.simd(SimdSub(SimdOpcode.MOVE, left=3), read=15), Cause.ACCUMULATOR_RANGE)):
        with pytest.raises(MachineStop) as stop:
            run(Machine(ARCH), illegal)
        assert stop.value.cause is cause


def test_rows_count_in_the_range() -> None:
    machine = busy()
    run(machine, ISA.configure(Register.MAT_MUL_ROWS, 2), ISA.configure(Register.MAT_MUL_LOCAL_PITCH, 10),
        ISA.mat_mul(8, 0, 2), ISA.data_move(TO_ACCUMULATORS, 28, 0, 2), ISA.load_weight(27, 3))
    with pytest.raises(MachineStop) as stop:
        run(machine, ISA.mat_mul(9, 0, 2))
    assert (stop.value.cause, stop.value.program_counter) == (Cause.LOCAL_RANGE, 5)


@pytest.mark.parametrize(("illegal", "cause"), [
    (ISA.no_op(), Cause.LOOP_BODY), (ISA.simd_loop(1, 1), Cause.LOOP_BODY), (ISA.mat_mul(0, 0, 1), Cause.LOOP_BODY),
    (ISA.mat_mul(29, 0, 2), Cause.LOCAL_RANGE), (Instruction(9), Cause.OPCODE),
    (ISA.simd(NO_OP, read=6, read_stride=4), Cause.ACCUMULATOR_RANGE),
    (ISA.simd(NO_OP, write=13), Cause.ACCUMULATOR_RANGE),
    (ISA.simd(SimdSub(SimdOpcode.ZERO, destination=3)), Cause.SIMD_REGISTER),
])
def test_a_refused_body_runs_nothing_of_its_loop(illegal: Instruction, cause: Cause) -> None:
    """Addresses are those of the last of four iterations: 6 + 3 * 4 = 18 and 13 + 3 = 16 are beyond 14."""
    machine = busy()
    before = snapshot(machine)
    with pytest.raises(MachineStop) as stop:
        run(machine, ISA.simd_loop(4, 3), ISA.simd(NO_OP, write=0, read=6, read_stride=4, hold=True), illegal)
    assert (stop.value.cause, stop.value.program_counter) == (cause, 2)
    assert snapshot(machine) == before


def test_a_stopped_machine_stays_stopped_until_reset() -> None:
    machine = busy()
    for program in (Instruction(7), ISA.no_op()):
        with pytest.raises(MachineStop) as stop:
            run(machine, program)
        assert stop.value.program_counter == 0
    machine.soft_reset()
    run(machine, ISA.no_op())
    assert machine.program_counter == 1


def test_a_reset_clears_the_counters_of_its_core_alone() -> None:
    """What a core was posted and did not take is gone; others are not reset."""
    arch = MACHINES["cores"]
    counters = SyncCounters(arch)
    machines = [Machine(arch, core=core, sync=counters) for core in range(arch.cores)]
    run(machines[0], machines[0].isa.post(2, [0, 1], 0, 1))
    machines[1].soft_reset()
    assert counters.values[:, 2].tolist() == [1, 0, 0]


def test_the_program_counter_of_an_error_follows_configure() -> None:
    with pytest.raises(MachineStop) as stop:
        run(Machine(ARCH), ISA.configure(Register.PROGRAM_COUNTER, 500), ISA.no_op(), Instruction(8))
    assert stop.value.program_counter == 501


def test_machines_without_tables_loops_or_free_shifts_refuse_them() -> None:
    plain = make_arch(simd_loop_depth=0, mac_rounding=EVERY_STEP)
    for illegal, cause in ((Instruction(Opcode.LOAD_LUT), Cause.OPCODE), (Instruction(Opcode.SIMD_LOOP), Cause.OPCODE),
                           (Isa(plain).configure(Register.OUTPUT_SHIFT, 7), Cause.REGISTER_VALUE)):
        with pytest.raises(MachineStop) as stop:
            run(Machine(plain), illegal)
        assert stop.value.cause is cause
    run(Machine(plain), Isa(plain).configure(Register.OUTPUT_SHIFT, 8))


def test_loading_zeros_of_enormous_size_is_quick() -> None:
    machine = run(busy(), ISA.load_weight(0, 1 << ISA.operand_widths[1], zeroes=True))
    assert not machine.weights.any()
