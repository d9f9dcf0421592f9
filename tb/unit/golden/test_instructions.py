# SPDX-License-Identifier: Apache-2.0
"""Each instruction but SIMD, and each flag, on two lanes of FP16BP8 (One = 256), with results worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.machine import Machine
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, SimdOpcode, SimdSub
from weft.hw.contract.key_values import EVERY_STEP
from weft.hw.contract.registers import Register
from weft.tb.unit.golden.machines import make_arch, rows, run, to_accumulators, to_local

WEIGHTS = [[10, 20], [1, 2], [3, 4]]
"""Bias row, then the rows of lane 0 and lane 1."""


@pytest.fixture
def machine() -> Machine:
    """Its shifts are 0, so that accumulators show plain products."""
    machine = Machine(make_arch())
    return run(machine, machine.isa.configure(Register.INPUT_SHIFT, 0), machine.isa.configure(Register.OUTPUT_SHIFT, 0))


# -- LoadWeight ----------------------------------------------------------------------------------------------------
def test_load_weight_makes_the_lowest_address_the_bias_row(machine: Machine) -> None:
    to_local(machine, WEIGHTS)
    run(machine, machine.isa.load_weight(0, 3))
    assert machine.weights.tolist() == WEIGHTS


def test_load_weight_of_fewer_rows_shifts_the_rest(machine: Machine) -> None:
    to_local(machine, [*WEIGHTS, [7, 8]])
    run(machine, machine.isa.load_weight(0, 3), machine.isa.load_weight(3, 1))
    assert machine.weights.tolist() == [[7, 8], [10, 20], [1, 2]]


def test_load_weight_of_more_rows_loses_the_highest(machine: Machine) -> None:
    to_local(machine, [*WEIGHTS, [7, 8], [9, 9]])
    run(machine, machine.isa.load_weight(0, 5))
    assert machine.weights.tolist() == WEIGHTS


def test_load_weight_takes_every_stride_th_vector(machine: Machine) -> None:
    to_local(machine, [[1, 1], [0, 0], [2, 2], [0, 0], [3, 3]])
    run(machine, machine.isa.load_weight(0, 3, local_stride=2))
    assert machine.weights.tolist() == [[1, 1], [2, 2], [3, 3]]


def test_zero_bias_shifts_one_row_of_zeros_in_last(machine: Machine) -> None:
    to_local(machine, [[1, 2], [3, 4]])
    run(machine, machine.isa.load_weight(0, 2, zero_bias=True))
    assert machine.weights.tolist() == [[0, 0], [1, 2], [3, 4]]


def test_load_weight_zeroes_shifts_zeros_and_ignores_its_address(machine: Machine) -> None:
    to_local(machine, WEIGHTS)
    run(machine, machine.isa.load_weight(0, 3), machine.isa.load_weight(31, 2, zeroes=True))
    assert machine.weights.tolist() == [[0, 0], [0, 0], [10, 20]]
    run(machine, machine.isa.load_weight(0, 3), machine.isa.load_weight(0, 1, zeroes=True, zero_bias=True))
    assert machine.weights.tolist() == [[0, 0], [0, 0], [10, 20]]


# -- MatMul --------------------------------------------------------------------------------------------------------
@pytest.fixture
def loaded(machine: Machine) -> Machine:
    """WEIGHTS loaded; local memory holds [1, 0], [0, 1], [2, -1], [100, 100] from address 3 on."""
    to_local(machine, [*WEIGHTS, [1, 0], [0, 1], [2, -1], [100, 100]])
    return run(machine, machine.isa.load_weight(0, 3))


def test_mat_mul_adds_bias_and_products(loaded: Machine) -> None:
    run(loaded, loaded.isa.mat_mul(3, 5, 4))
    assert rows(loaded.accumulators, 5, 6, 7, 8) == [[11, 22], [13, 24], [9, 20], [410, 620]]


def test_mat_mul_strides_apply_to_both_operands(loaded: Machine) -> None:
    run(loaded, loaded.isa.mat_mul(3, 0, 2, local_stride=2, accumulator_stride=4))
    assert rows(loaded.accumulators, 0, 1, 4) == [[11, 22], [0, 0], [9, 20]]


def test_mat_mul_accumulate_adds(loaded: Machine) -> None:
    run(loaded, loaded.isa.mat_mul(3, 0, 1), loaded.isa.mat_mul(4, 0, 1, accumulate=True))
    assert rows(loaded.accumulators, 0) == [[24, 46]]


def test_mat_mul_zeroes_gives_the_bias_and_ignores_local(loaded: Machine) -> None:
    run(loaded, loaded.isa.mat_mul(31, 0, 3, zeroes=True), loaded.isa.mat_mul(31, 1, 1, zeroes=True, accumulate=True))
    assert rows(loaded.accumulators, 0, 1, 2) == [[10, 20], [20, 40], [10, 20]]


def test_bias_enters_with_the_shift_at_the_mat_mul(loaded: Machine) -> None:
    run(loaded, loaded.isa.configure(Register.INPUT_SHIFT, 4), loaded.isa.mat_mul(3, 0, 1))
    assert rows(loaded.accumulators, 0) == [[161, 322]]


def test_mat_mul_rows_repeat_at_their_pitches(loaded: Machine) -> None:
    isa = loaded.isa
    run(loaded, isa.configure(Register.MAT_MUL_ROWS, 1), isa.configure(Register.MAT_MUL_LOCAL_PITCH, 1),
        isa.configure(Register.MAT_MUL_ACCUMULATOR_PITCH, 8), isa.mat_mul(3, 0, 2))
    assert rows(loaded.accumulators, 0, 1, 8, 9) == [[11, 22], [13, 24], [13, 24], [9, 20]]


def test_rows_that_overlap_accumulate_twice_and_overwrite_with_the_last(loaded: Machine) -> None:
    isa = loaded.isa
    run(loaded, isa.configure(Register.MAT_MUL_ROWS, 1), isa.configure(Register.MAT_MUL_LOCAL_PITCH, 1),
        isa.configure(Register.MAT_MUL_ACCUMULATOR_PITCH, 1), isa.mat_mul(3, 0, 2, accumulate=True))
    assert rows(loaded.accumulators, 0, 1, 2) == [[11, 22], [26, 48], [9, 20]]
    run(loaded, isa.configure(Register.MAT_MUL_ACCUMULATOR_PITCH, 0), isa.mat_mul(3, 0, 2))
    assert rows(loaded.accumulators, 0, 1) == [[13, 24], [9, 20]]


def test_each_repeated_addition_saturates(machine: Machine) -> None:
    """Adding 2 saturates before -1 is added: one addition after the other, not the sum of all."""
    isa, top = machine.isa, (1 << 31) - 1
    to_local(machine, [[0, 0], [1, 0], [0, 0], [2, 0], [-1, 0]])
    run(machine, isa.load_weight(0, 3), isa.configure(Register.MAT_MUL_ROWS, 1),
        isa.configure(Register.MAT_MUL_LOCAL_PITCH, 1))
    to_accumulators(machine, [[top - 1, 0]])
    run(machine, isa.mat_mul(3, 0, 1, accumulate=True))
    assert machine.accumulators[0, 0] == top - 1


def test_a_column_sum_is_exact_until_it_is_stored() -> None:
    """-2**15 * -2**15 twice is 2**31, one more than an accumulator holds; added to -1 it fits."""
    machine, low = Machine(make_arch()), -(1 << 15)
    isa = machine.isa
    to_local(machine, [[0, 0], [low, low], [low, low], [low, low]])
    run(machine, isa.load_weight(0, 3), isa.mat_mul(3, 0, 1))
    assert rows(machine.accumulators, 0) == [[2 ** 31 - 1] * 2]
    to_accumulators(machine, [[-1, -5]])
    run(machine, isa.mat_mul(3, 0, 1, accumulate=True))
    assert rows(machine.accumulators, 0) == [[2 ** 31 - 1, 2 ** 31 - 5]]


def test_every_step_rounds_half_to_even_and_saturates_at_each_lane() -> None:
    """Lane 0: 128 * 1 / 256 = 0.5 rounds to 0 on bias 0 but to 2 on bias 1. Then saturation, which the next lane
    leaves again: 32767 + ... stays 32767, minus 256 is 32511."""
    machine = Machine(make_arch(mac_rounding=EVERY_STEP))
    isa = machine.isa
    to_local(machine, [[0, 1], [1, 1], [0, 0], [128, 0]])
    run(machine, isa.load_weight(0, 3), isa.mat_mul(3, 0, 1))
    assert rows(machine.accumulators, 0) == [[0, 2]]
    to_local(machine, [[32767, 32767], [256, -256], [-256, 256], [256, 256]])
    run(machine, isa.load_weight(0, 3), isa.mat_mul(3, 0, 1))
    assert rows(machine.accumulators, 0) == [[32511, 32767]]
    run(machine, isa.mat_mul(3, 0, 1, accumulate=True))
    assert rows(machine.accumulators, 0) == [[32767, 32767]]


def test_accumulators_beyond_63_bits_are_exact() -> None:
    """FP32BP16, 64-bit accumulators: (2**31 - 1)**2 * 2 + 3 needs 63 bits and a sign."""
    machine, top = Machine(make_arch("FP32BP16")), 2 ** 31 - 1
    isa = machine.isa
    to_local(machine, [[3, 0], [top, top], [top, top], [top, top]])
    run(machine, isa.configure(Register.INPUT_SHIFT, 0), isa.load_weight(0, 3), isa.mat_mul(3, 0, 1))
    assert rows(machine.accumulators, 0) == [[2 * top * top + 3, 2 * top * top]]
    run(machine, isa.mat_mul(3, 0, 1, accumulate=True))
    assert rows(machine.accumulators, 0) == [[2 ** 63 - 1, 2 ** 63 - 1]]


def test_sums_at_the_edge_of_63_bits_saturate() -> None:
    """Accumulator and entered bias both at the end of the range plus products of 2**34: beyond 64 bits both ways."""
    machine, low = Machine(make_arch("FP18BP10", accumulator_width=63)), -(1 << 17)
    isa = machine.isa
    to_local(machine, [[-low - 1, low], [low, low], [low, low], [low, low], [-low - 1, -low - 1]])
    to_accumulators(machine, [[2 ** 62 - 1, -(2 ** 62)]] * 2)
    run(machine, isa.configure(Register.INPUT_SHIFT, 60), isa.load_weight(0, 3),
        isa.mat_mul(3, 0, 2, accumulate=True))
    assert rows(machine.accumulators, 0, 1) == [[2 ** 62 - 1, -(2 ** 62)]] * 2


# -- DataMove ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("port", [0, 1])
def test_moves_to_and_from_dram_use_their_window_offset(machine: Machine, port: int) -> None:
    isa, dram = machine.isa, (machine.dram0, machine.dram1)[port]
    offset = (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET)[port]
    dram.write(10, np.array([[1, 2], [3, 4], [5, 6]]), offset_blocks=2)
    run(machine, isa.configure(offset, 2), isa.data_move(DataFlow(2 * port), 4, 10, 2, local_stride=2, far_stride=2))
    assert rows(machine.local, 4, 5, 6) == [[1, 2], [0, 0], [5, 6]]
    run(machine, isa.data_move(DataFlow(2 * port + 1), 4, 20, 3, far_stride=4))
    assert dram.read(20, 9, 2)[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 5]
    other = (machine.dram1, machine.dram0)[port]
    assert list(other.extents()) == []


def test_leaving_rounds_half_to_even_and_saturates(machine: Machine) -> None:
    isa = machine.isa
    to_accumulators(machine, [[2, 6], [10, -2], [-6, 7], [2 ** 30, -(2 ** 30)]])
    run(machine, isa.configure(Register.OUTPUT_SHIFT, 2), isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 4))
    assert rows(machine.local, 0, 1, 2, 3) == [[0, 2], [2, 0], [-2, 2], [32767, -32768]]


def test_relu_on_the_way_out_clips_below_zero(machine: Machine) -> None:
    to_accumulators(machine, [[-5, 5]])
    run(machine, machine.isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL_RELU, 3, 0, 1))
    assert rows(machine.local, 3) == [[0, 5]]


def test_a_relu_may_end_at_a_maximum() -> None:
    machine = Machine(make_arch(output_maximum=1))
    to_accumulators(machine, [[-5, 5], [1000, 12], [2 ** 30, 0]])
    relu, plain = DataFlow.ACCUMULATOR_TO_LOCAL_RELU, DataFlow.ACCUMULATOR_TO_LOCAL
    run(machine, machine.isa.configure(Register.OUTPUT_SHIFT, 0), machine.isa.data_move(relu, 0, 0, 3),
        machine.isa.configure(Register.OUTPUT_MAXIMUM, 11), machine.isa.data_move(relu, 3, 0, 3),
        machine.isa.data_move(plain, 6, 0, 2))
    assert rows(machine.local, 0, 1, 2) == [[0, 5], [1000, 12], [32767, 0]]
    assert rows(machine.local, 3, 4, 5) == [[0, 5], [11, 11], [11, 0]]
    assert rows(machine.local, 6, 7) == [[-5, 5], [1000, 12]]


def test_a_relu_may_have_a_slope_below_zero() -> None:
    """Rounded to the nearest, ties to even; -1 and -2 saturate. The reset value is a plain ReLU."""
    machine = Machine(make_arch(output_slope=1))
    to_accumulators(machine, [[-5, 5], [-6, -2], [-32768, -20]])
    relu = DataFlow.ACCUMULATOR_TO_LOCAL_RELU
    run(machine, machine.isa.configure(Register.OUTPUT_SHIFT, 0), machine.isa.data_move(relu, 0, 0, 3))
    assert rows(machine.local, 0, 1, 2) == [[0, 5], [0, 0], [0, 0]]
    for slope, found in ((0.25, [[-1, 5], [-2, 0], [-8192, -5]]), (-1, [[5, 5], [6, 2], [32767, 20]]),
                         (-2, [[10, 5], [12, 4], [32767, 40]])):
        run(machine, machine.isa.configure(Register.OUTPUT_SLOPE, int(slope * 2 ** 14)),
            machine.isa.data_move(relu, 0, 0, 3))
        assert rows(machine.local, 0, 1, 2) == found
    run(machine, machine.isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 2))
    assert rows(machine.local, 0, 1) == [[-5, 5], [-6, -2]]


def test_what_saturates_counts_only_where_the_relu_tells_it_apart() -> None:
    machine = Machine(make_arch(output_maximum=1, output_slope=1))
    to_accumulators(machine, [[2 ** 20, -(2 ** 20)]])
    isa, relu = machine.isa, machine.isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL_RELU, 0, 0, 1)
    run(machine, isa.configure(Register.OUTPUT_SHIFT, 0), relu, isa.configure(Register.OUTPUT_MAXIMUM, 9), relu,
        isa.configure(Register.OUTPUT_SLOPE, 1 << 12), relu)
    assert dict(machine.saturated) == {1: 1, 5: 1}


def test_entering_shifts_saturates_and_accumulates(machine: Machine) -> None:
    isa = machine.isa
    to_local(machine, [[3, -3], [16384, -16384]])
    run(machine, isa.configure(Register.INPUT_SHIFT, 17), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 2))
    assert rows(machine.accumulators, 0, 1) == [[3 << 17, -3 << 17], [2 ** 31 - 1, -(2 ** 31)]]
    run(machine, isa.configure(Register.INPUT_SHIFT, 0),
        isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, 0, 2))
    assert rows(machine.accumulators, 0, 1) == [[(3 << 17) + 3, (-3 << 17) - 3], [2 ** 31 - 1, -(2 ** 31)]]


def test_shifts_reset_to_the_point() -> None:
    machine = Machine(make_arch())
    to_local(machine, [[3, -3]])
    run(machine, machine.isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 1))
    assert rows(machine.accumulators, 0) == [[3 << 8, -3 << 8]]
    to_accumulators(machine, [[128, 384]])
    run(machine, machine.isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, 1))
    assert rows(machine.local, 0) == [[0, 2]]


def test_every_step_moves_accumulators_as_they_are() -> None:
    machine = Machine(make_arch(mac_rounding=EVERY_STEP))
    isa = machine.isa
    to_local(machine, [[3, -32768]])
    run(machine, isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 1))
    assert rows(machine.accumulators, 0) == [[3, -32768]]
    run(machine, isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, 0, 1),
        isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 1, 0, 1))
    assert rows(machine.local, 1) == [[6, -32768]]


def test_data_move_rows_repeat_with_every_flow_and_accumulate_twice(machine: Machine) -> None:
    isa = machine.isa
    to_local(machine, [[1, 1], [2, 2], [4, 4]])
    run(machine, isa.configure(Register.MOVE_ROWS, 1), isa.configure(Register.MOVE_LOCAL_PITCH, 1),
        isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, 0, 2))
    assert rows(machine.accumulators, 0, 1) == [[3, 3], [6, 6]]
    run(machine, isa.configure(Register.MOVE_FAR_PITCH, 5), isa.data_move(DataFlow.LOCAL_TO_DRAM1, 0, 0, 2))
    assert machine.dram1.read(0, 7)[:, 0].tolist() == [1, 2, 0, 0, 0, 2, 4]


# -- Configure and NoOp --------------------------------------------------------------------------------------------
def test_program_counter_counts_and_can_be_set(machine: Machine) -> None:
    assert machine.program_counter == 2
    run(machine, machine.isa.no_op(), machine.isa.configure(Register.PROGRAM_COUNTER, 1000), machine.isa.no_op())
    assert machine.program_counter == 1001
    run(machine, machine.isa.configure(Register.PROGRAM_COUNTER, 0xFFFF), machine.isa.no_op())
    assert machine.program_counter == 0x10000


def test_soft_reset_clears_registers_and_keeps_memories(loaded: Machine) -> None:
    run(loaded, loaded.isa.mat_mul(3, 0, 1))
    loaded.simd_registers[...] = 5
    loaded.soft_reset()
    assert not loaded.simd_registers.any()
    assert loaded.registers == {register: spec.reset for register, spec in loaded.isa.registers.items()}
    assert loaded.program_counter == 0
    assert rows(loaded.accumulators, 0) == [[11, 22]]


def test_no_repeat_reaches_back_to_before_a_soft_reset() -> None:
    machine = Machine(make_arch(repeat_depth=16))
    run(machine, *[machine.isa.no_op()] * 3, machine.isa.repeat(2, 2))
    machine.soft_reset()
    with pytest.raises(MachineStop) as stop:
        run(machine, machine.isa.no_op(), machine.isa.repeat(2, 2))
    assert (stop.value.cause, stop.value.program_counter) == (Cause.REPEAT, 1)


def test_progress_ends_with_the_whole_program(machine: Machine) -> None:
    seen: list[tuple[int, int]] = []
    machine.run(machine.isa.assemble([machine.isa.no_op()] * 2500), progress=lambda *done: seen.append(done))
    assert seen == [(0, 2500), (1000, 2500), (2000, 2500), (2500, 2500)]


@pytest.mark.parametrize(("opcode", "counts"), [
    (SimdOpcode.MAX, True), (SimdOpcode.MIN, False), (SimdOpcode.ADD, False)])
def test_of_what_the_simd_unit_reads_a_maximum_alone_counts_as_saturated(opcode: SimdOpcode, counts: bool) -> None:
    """A limit is about the same of a saturated number as of the number itself."""
    machine = Machine(make_arch())
    to_accumulators(machine, [[2 ** 20, -(2 ** 20)]])
    run(machine, machine.isa.configure(Register.OUTPUT_SHIFT, 0),
        machine.isa.simd(SimdSub(opcode, left=0, right=0), read=0, write=0))
    assert bool(machine.saturated) == counts
