# SPDX-License-Identifier: Apache-2.0
"""The law of INT8 machines, case by case: what MatMul, LoadScale and DataMove of the accumulators give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.machine import Machine
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, Int8
from weft.tb.unit.golden.machines import make_arch, rows, run, to_accumulators, to_local

ARCH = make_arch("INT8", 2, 60, 16, 2, lut_count=1, lut_depth=4)
RELU = DataFlow.ACCUMULATOR_TO_LOCAL_RELU


def machine() -> Machine:
    return Machine(ARCH)


def numbers() -> Int8:
    assert isinstance(ARCH.scheme, Int8)
    return ARCH.scheme


def with_scales(multipliers: list[int], biases: list[int]) -> Machine:
    """A machine after a LoadScale of these."""
    made = machine()
    to_local(made, numbers().scale_vectors(np.array(multipliers), np.array(biases)).tolist(), 20)
    return run(made, made.isa.load_scale(20))


def moved_out(made: Machine, values: list[int], flow: DataFlow = DataFlow.ACCUMULATOR_TO_LOCAL) -> list[int]:
    """What accumulator 0 of these values becomes."""
    to_accumulators(made, [values])
    run(made, made.isa.data_move(flow, 3, 0, 1))
    return made.local[3].tolist()


def set_registers(made: Machine, **values: int) -> Machine:
    return run(made, *(made.isa.configure(Register[name.upper()], value) for name, value in values.items()))


# -- MatMul --------------------------------------------------------------------------------------------------------
def test_a_mat_mul_takes_the_zero_point_from_activations_and_no_bias() -> None:
    made = machine()
    to_local(made, [[100, 100], [2, 3], [5, -7], [-128, 127]])  # bias, two rows of weights, an activation
    run(made, made.isa.load_weight(0, 3))
    set_registers(made, activation_zero_point=-128)
    run(made, made.isa.mat_mul(3, 0, 1), made.isa.mat_mul(3, 1, 1, zeroes=True))
    assert rows(made.accumulators, 0, 1) == [[255 * 5, 255 * -7], [0, 0]]
    set_registers(made, activation_zero_point=127)
    run(made, made.isa.mat_mul(3, 0, 1, accumulate=True))
    assert rows(made.accumulators, 0) == [[255 * 5 - 255 * 2, 255 * -7 - 255 * 3]]


def test_a_weight_of_minus_128_counts_as_minus_127() -> None:
    made = machine()
    to_local(made, [[0, 0], [-128, -127], [0, 0], [1, 1]])
    run(made, made.isa.load_weight(0, 3), made.isa.mat_mul(3, 0, 1))
    assert rows(made.accumulators, 0) == [[-127, -127]]


def test_sums_saturate_at_the_accumulators_width() -> None:
    made = Machine(ARCH.replace(accumulator_width=24))
    to_local(made, [[1, -1]])
    to_accumulators(made, [[(1 << 23) - 2, 2 - (1 << 23)]])
    set_registers(made, input_multiplier=100)
    run(made, made.isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, 0, 1))
    assert rows(made.accumulators, 0) == [[(1 << 23) - 1, -(1 << 23)]]


# -- ways in and out -----------------------------------------------------------------------------------------------
def test_a_move_in_takes_the_zero_point_and_multiplies() -> None:
    made = machine()
    to_local(made, [[-128, 127]])
    set_registers(made, input_zero_point=127, input_multiplier=(1 << 17) - 1)
    run(made, made.isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 1))
    assert rows(made.accumulators, 0) == [[-255 * ((1 << 17) - 1), 0]]


def test_the_factor_is_one_after_reset() -> None:
    made = machine()
    to_local(made, [[-128, 127]])
    run(made, made.isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 1))
    assert rows(made.accumulators, 0) == [[-128, 127]]


def test_all_leaves_as_the_zero_point_before_the_first_scale() -> None:
    made = set_registers(machine(), output_zero_point=-5)
    assert moved_out(made, [12345, -12345]) == [-5, -5]


@pytest.mark.parametrize("seed", range(200))
def test_a_move_out_is_bias_saturation_product_rounding_zero_and_saturation(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def any_of(*specials: int, low: int, high: int) -> int:
        value = int(rng.integers(low, high, endpoint=True)) >> int(rng.integers(0, 32))
        return value if rng.random() < 0.7 else int(rng.choice(specials))

    def wide() -> int:
        return any_of(-1 << 31, (1 << 31) - 1, 1 << 24, -1 << 24, 0, low=-1 << 31, high=(1 << 31) - 1)

    multipliers = [any_of(0, 1, 1 << 16, (1 << 17) - 1, low=0, high=(1 << 17) - 1) for _ in range(2)]
    values, biases = [wide(), wide()], [wide(), wide()]
    shift, zero = int(rng.integers(0, 43)), int(rng.integers(-128, 128))
    expected = []
    for value, bias, multiplier in zip(values, biases, multipliers, strict=True):
        sum_ = min(max(value + bias, -1 << 24), (1 << 24) - 1)
        expected.append(min(max(round(Fraction(sum_ * multiplier, 1 << shift)) + zero, -128), 127))
    made = set_registers(with_scales(multipliers, biases), output_shift=shift, output_zero_point=zero)
    assert moved_out(made, values) == expected
    assert moved_out(made, values, RELU) == [max(each, zero) for each in expected]


def test_halves_go_to_the_even_scalar_and_the_zero_point_comes_after() -> None:
    made = set_registers(with_scales([1, 1], [0, 0]), output_shift=1, output_zero_point=1)
    assert moved_out(made, [1, 3]) == [1, 3]
    assert moved_out(made, [-1, -3]) == [1, -1]


def test_a_scale_s_bytes_are_little_endian_and_bits_above_the_multiplier_count_for_nothing() -> None:
    made = machine()
    to_local(made, [[1, -1], [2, -1], [-2, -1], [-4, -1], [-1, -1], [-1, -1], [-1, 127]], 8)
    run(made, made.isa.load_scale(8))
    multipliers, biases = numbers().scales(made.scales)
    assert multipliers.tolist() == [0x201, 0x1FFFF]
    assert biases.tolist() == [-4, 0x7FFFFFFF]


def test_scales_are_read_with_a_stride_and_stay_over_a_soft_reset() -> None:
    made = machine()
    vectors = numbers().scale_vectors(np.array([70000, 3]), np.array([-9, 1 << 30]))
    spread = np.zeros((2 * SCALE_VECTORS, 2), np.int64)
    spread[::2] = vectors
    to_local(made, spread.tolist(), 4)
    run(made, made.isa.load_scale(4, local_stride=2))
    made.soft_reset()
    assert made.scales.tolist() == vectors.tolist()


def test_later_writes_of_local_memory_do_not_reach_the_scales() -> None:
    made = with_scales([4, 4], [0, 0])
    to_local(made, [[0, 0]] * SCALE_VECTORS, 20)
    assert moved_out(made, [3, 5]) == [12, 20]


# -- SIMD ----------------------------------------------------------------------------------------------------------
def test_simd_works_on_bytes_as_they_are() -> None:
    """Neither scales nor Configure registers reach it."""
    made = set_registers(with_scales([7, 7], [9, 9]), output_shift=3, output_zero_point=5, input_zero_point=6,
                         input_multiplier=100)
    to_accumulators(made, [[300, -300], [7, -7]])
    run(made, made.isa.simd(SimdSub(SimdOpcode.MOVE), read=0, write=2),
        made.isa.simd(SimdSub(SimdOpcode.MOVE, destination=1), read=1),
        made.isa.simd(SimdSub(SimdOpcode.MULTIPLY, left=0, right=1), read=1, write=3),
        made.isa.simd(SimdSub(SimdOpcode.INCREMENT), read=1, write=4))
    assert rows(made.accumulators, 2, 3, 4) == [[127, -128], [49, 49], [8, -6]]


# -- activation tables ------------------------------------------------------------------------------------------------
TABLES = ARCH.replace(local_depth=600, activation_tables=2)
TABLES_ISA = Isa(TABLES)


def with_tables() -> Machine:
    """Bytes leave as they are; table 1 gives -1 - byte, table 2 the byte of lane 0 halved, that of lane 1 as 7."""
    made = Machine(TABLES)
    to_local(made, numbers().scale_vectors(np.array([1, 1]), np.array([0, 0])).tolist(), 0)
    entries = np.arange(-128, 128)
    to_local(made, np.stack([-1 - entries] * 2, axis=1).tolist(), 10)
    to_local(made, np.stack([entries >> 1, np.full(256, 7)], axis=1).tolist(), 300)
    return run(made, made.isa.load_scale(0), made.isa.load_activation_table(10, 1),
               made.isa.load_activation_table(300, 2))


@pytest.mark.parametrize(("table", "result"), [(0, [100, -128]), (1, [-101, 127]), (2, [50, 7])])
def test_the_byte_that_would_leave_is_looked_up(table: int, result: list[int]) -> None:
    assert moved_out(set_registers(with_tables(), activation_table=table), [100, -1000]) == result


def test_a_table_comes_behind_zero_point_and_relu() -> None:
    made = set_registers(with_tables(), activation_table=1, output_zero_point=5)
    assert moved_out(made, [-50, 20], DataFlow.ACCUMULATOR_TO_LOCAL_RELU) == [-6, -26]


def test_tables_stay_over_a_soft_reset_and_the_register_does_not() -> None:
    made = set_registers(with_tables(), activation_table=1)
    made.soft_reset()
    assert moved_out(made, [100, 3]) == [100, 3]
    assert moved_out(set_registers(made, activation_table=2), [100, 3]) == [50, 7]


def test_tables_are_zero_at_first() -> None:
    made = Machine(TABLES)
    assert moved_out(set_registers(made, activation_table=1), [100, 3]) == [0, 0]


def test_a_table_is_loaded_by_strides() -> None:
    made = with_tables()
    to_local(made, np.repeat(np.arange(-128, 128), 4).reshape(-1, 2).tolist(), 20)
    assert moved_out(set_registers(run(made, made.isa.load_activation_table(20, 1, local_stride=2)),
                                   activation_table=1),
                     [100, 3]) == [100, 3]


@pytest.mark.parametrize(("instruction", "cause"), [
    (TABLES_ISA.load_activation_table(0, 0), Cause.LUT_TABLE),
    (TABLES_ISA.load_activation_table(0, 3), Cause.LUT_TABLE),
    (TABLES_ISA.load_activation_table(345, 1), Cause.LOCAL_RANGE),
    (TABLES_ISA.configure(Register.ACTIVATION_TABLE, 3), Cause.REGISTER_VALUE)])
def test_what_a_machine_with_tables_refuses(instruction: Instruction, cause: Cause) -> None:
    with pytest.raises(MachineStop) as stop:
        Machine(TABLES).step(instruction)
    assert stop.value.cause is cause


@pytest.mark.parametrize("instruction", [
    TABLES_ISA.load_activation_table(0, 1), TABLES_ISA.configure(Register.ACTIVATION_TABLE, 0)])
def test_a_machine_without_tables_has_neither_load_nor_register(instruction: Instruction) -> None:
    with pytest.raises(MachineStop):
        machine().step(instruction)


# -- what is refused -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("instruction", "cause"), [
    (Instruction(Opcode.CONFIGURE, 0, Register.INPUT_SHIFT, 0), Cause.REGISTER),
    (Instruction(Opcode.CONFIGURE, 0, Register.OUTPUT_SHIFT, 43), Cause.REGISTER_VALUE),
    (Instruction(Opcode.CONFIGURE, 0, Register.INPUT_MULTIPLIER, 1 << 17), Cause.REGISTER_VALUE),
    (Instruction(Opcode.CONFIGURE, 0, Register.ACTIVATION_ZERO_POINT, 256), Cause.REGISTER_VALUE),
    (Instruction(Opcode.LOAD_SCALE, 0, 54), Cause.LOCAL_RANGE),
    (Instruction(Opcode.LOAD_SCALE, 1, 0), Cause.FLAGS),
    (Instruction(Opcode.LOAD_SCALE, 0, 0, 1), Cause.RESERVED_BITS),
])
def test_what_a_machine_of_bytes_refuses(instruction: Instruction, cause: Cause) -> None:
    made = machine()
    with pytest.raises(MachineStop) as stop:
        made.step(instruction)
    assert stop.value.cause is cause


@pytest.mark.parametrize("instruction", [
    Instruction(Opcode.LOAD_SCALE, 0, 0), Instruction(Opcode.CONFIGURE, 0, Register.OUTPUT_ZERO_POINT, 0)])
def test_other_machines_have_no_scales(instruction: Instruction) -> None:
    with pytest.raises(MachineStop):
        Machine(make_arch()).step(instruction)
