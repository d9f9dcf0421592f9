# SPDX-License-Identifier: Apache-2.0
"""SIMD operations and lookup tables on two lanes of FP16BP8 (One = 256), with results worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from weft.golden.alu import OPERATIONS
from weft.golden.machine import Machine
from weft.hw.contract.instructions import SimdOpcode, SimdSub, simd_argument_count
from weft.hw.contract.numerics import DataType
from weft.hw.contract.registers import Register
from weft.hw.simd.reference import simd_reference
from weft.tb.unit.golden.machines import make_arch, rows, run, to_accumulators, to_local

S = SimdOpcode


@pytest.fixture
def machine() -> Machine:
    """Its shifts are 0, so that accumulators show plain products."""
    machine = Machine(make_arch())
    return run(machine, machine.isa.configure(Register.INPUT_SHIFT, 0), machine.isa.configure(Register.OUTPUT_SHIFT, 0))


# -- SIMD ----------------------------------------------------------------------------------------------------------
MINIMUM, MAXIMUM = -32768, 32767


@pytest.mark.parametrize(("opcode", "left", "right", "result"), [
    (S.ZERO, 5, 9, 0), (S.MOVE, 5, 9, 5), (S.NOT, 5, 9, 0), (S.NOT, 0, 9, 256),
    (S.AND, 5, 9, 256), (S.AND, 5, 0, 0), (S.OR, 0, 9, 256), (S.OR, 0, 0, 0),
    (S.INCREMENT, 5, 9, 261), (S.INCREMENT, 32600, 9, MAXIMUM),
    (S.DECREMENT, 5, 9, -251), (S.DECREMENT, -32600, 9, MINIMUM),
    (S.ADD, 5, 9, 14), (S.ADD, 32000, 1000, MAXIMUM), (S.SUBTRACT, 5, 9, -4), (S.SUBTRACT, -32000, 1000, MINIMUM),
    (S.MULTIPLY, 512, -256, -512), (S.MULTIPLY, 1, 128, 0), (S.MULTIPLY, 3, 128, 2), (S.MULTIPLY, -3, 128, -2),
    (S.MULTIPLY, 32767, 512, MAXIMUM), (S.MULTIPLY, 32767, -512, MINIMUM), (S.MULTIPLY, MINIMUM, MINIMUM, MAXIMUM),
    (S.ABS, -5, 9, 5), (S.ABS, MINIMUM, 9, MAXIMUM),
    (S.GREATER_THAN, 9, 5, 256), (S.GREATER_THAN, 5, 5, 0), (S.GREATER_THAN, -9, 5, 0),
    (S.GREATER_THAN_EQUAL, 5, 5, 256), (S.GREATER_THAN_EQUAL, 4, 5, 0),
    (S.MIN, -5, 9, -5), (S.MAX, -5, 9, 9),
])
def test_simd_operation(machine: Machine, opcode: SimdOpcode, left: int, right: int, result: int) -> None:
    """Left from the accumulators, right from register 1; the result goes out and to register 1."""
    isa = machine.isa
    to_accumulators(machine, [[right, 0], [left, 0]])
    run(machine, isa.simd(SimdSub(S.MOVE, destination=1), read=0),
        isa.simd(SimdSub(opcode, left=0, right=1, destination=1), read=1, write=2))
    assert machine.accumulators[2, 0] == result
    assert machine.simd_registers[0, 0] == result


@pytest.mark.parametrize("opcode", OPERATIONS, ids=lambda opcode: opcode.name)
def test_every_pair_of_a_small_type(opcode: SimdOpcode) -> None:
    """All 256 pairs of FP4BP2, against the reference of the hardware's ALU."""
    number, values = DataType.parse("FP4BP2"), np.arange(-8, 8)
    pair = np.meshgrid(values, values)
    found = OPERATIONS[opcode](number, *pair[:max(simd_argument_count(opcode), 1)])
    assert np.array_equal(found, simd_reference(number, opcode, *pair))


def test_simd_no_op_passes_the_input_and_zero_without_read(machine: Machine) -> None:
    to_accumulators(machine, [[7, -7], [1, 1], [1, 1]])
    run(machine, machine.isa.simd(SimdSub(S.NO_OP), read=0, write=1), machine.isa.simd(SimdSub(S.NO_OP), write=2))
    assert rows(machine.accumulators, 1, 2) == [[7, -7], [0, 0]]


def test_simd_no_op_writes_no_register(machine: Machine) -> None:
    """The reference ignores its arguments, the destination among them."""
    to_accumulators(machine, [[7, -7], [1, 2], [0, 0]])
    run(machine, machine.isa.simd(SimdSub(S.MOVE, destination=1), read=0),
        machine.isa.simd(SimdSub(S.NO_OP, destination=1), read=1, write=2))
    assert machine.simd_registers.tolist()[0] == [7, -7] and rows(machine.accumulators, 2) == [[1, 2]]
    run(machine, machine.isa.simd_loop(2, 2), machine.isa.simd(SimdSub(S.NO_OP, destination=1), read=1, hold=True),
        machine.isa.simd(SimdSub(S.MOVE, left=1), write=3))
    assert rows(machine.accumulators, 3, 4) == [[7, -7]] * 2


def test_simd_accumulate_adds_where_it_writes_and_does_nothing_without_write(machine: Machine) -> None:
    to_accumulators(machine, [[7, -7], [1, 1]])
    run(machine, machine.isa.simd(SimdSub(S.NO_OP), read=0, write=1, accumulate=True),
        machine.isa.simd(SimdSub(S.NO_OP), read=0, accumulate=True))
    assert rows(machine.accumulators, 0, 1) == [[7, -7], [8, -6]]


def test_simd_leaves_and_enters_with_the_shifts(machine: Machine) -> None:
    isa = machine.isa
    to_accumulators(machine, [[24, 2 ** 30]])
    run(machine, isa.configure(Register.OUTPUT_SHIFT, 4), isa.configure(Register.INPUT_SHIFT, 3),
        isa.simd(SimdSub(S.NO_OP), read=0, write=1))
    assert rows(machine.accumulators, 1) == [[16, 32767 * 8]]


def test_plain_simd_ignores_its_strides(machine: Machine) -> None:
    to_accumulators(machine, [[7, 7]])
    run(machine, *[machine.isa.simd(SimdSub(S.NO_OP), read=0, write=3, read_stride=2, write_stride=4)] * 2)
    assert machine.accumulators[:, 0].tolist() == [7, 0, 0, 7] + [0] * 12


# -- tables --------------------------------------------------------------------------------------------------------
@pytest.fixture
def tables() -> Machine:
    """Lane 0: keys 100, 104, 108, 112; lane 1: keys 0, 1, 2, 3. Table 1: 10..13 and 20..23. Shifts are 0."""
    machine = Machine(make_arch(registers=3, lut_count=1, lut_depth=4))
    isa = machine.isa
    to_local(machine, [[100, 0], [104, 1], [108, 2], [112, 3], [10, 20], [11, 21], [12, 22], [13, 23]])
    return run(machine, isa.configure(Register.INPUT_SHIFT, 0), isa.configure(Register.OUTPUT_SHIFT, 0),
               isa.load_lut(0, 0), isa.load_lut(4, 1))


@pytest.mark.parametrize(("argument", "difference", "value"), [
    ([104, 2], [0, 0], [11, 22]), ([105, 1], [1, 0], [11, 21]), ([106, 0], [-2, 0], [12, 20]),  # half way goes up
    ([50, -4], [-50, -4], [10, 20]), ([200, 9], [88, 6], [13, 23]), ([MINIMUM, MAXIMUM], [MINIMUM, 32764], [10, 23]),
])
def test_lookup_gives_difference_and_value(tables: Machine, argument: list[int], difference: list[int],
                                           value: list[int]) -> None:
    to_accumulators(tables, [argument])
    run(tables, tables.isa.simd(SimdSub(S.LOOKUP, left=0, destination=2), read=0, write=1))
    assert rows(tables.accumulators, 1) == [difference]
    assert tables.simd_registers.tolist() == [[0, 0], difference, value]


def test_lookup_without_destination_puts_the_values_into_the_first_registers(tables: Machine) -> None:
    to_accumulators(tables, [[105, 3]])
    run(tables, tables.isa.simd(SimdSub(S.LOOKUP), read=0, write=1))
    assert rows(tables.accumulators, 1) == [[1, 0]]
    assert tables.simd_registers.tolist() == [[11, 23], [0, 0], [0, 0]]


def test_lookup_takes_its_argument_from_a_register_that_it_overwrites(tables: Machine) -> None:
    to_accumulators(tables, [[105, 3]])
    run(tables, tables.isa.simd(SimdSub(S.MOVE, destination=1), read=0),
        tables.isa.simd(SimdSub(S.LOOKUP, left=1, destination=1)))
    assert tables.simd_registers.tolist() == [[1, 0], [11, 23], [0, 0]]


def test_the_spacing_is_the_lowest_power_of_two_of_the_first_two_keys(tables: Machine) -> None:
    """Lane 0: keys 0, 12: spacing 4. Lane 1: equal keys: spacing 2**15, so that 16384 is half way to key 1."""
    to_local(tables, [[0, 5], [12, 5], [0, 0], [0, 0]])
    to_accumulators(tables, [[9, 5 + 16384]])
    run(tables, tables.isa.load_lut(0, 0), tables.isa.simd(SimdSub(S.LOOKUP, destination=1), read=0))
    assert tables.simd_registers[:2].tolist() == [[1, -16384], [12, 21]]


def test_load_lut_takes_every_stride_th_vector(tables: Machine) -> None:
    run(tables, tables.isa.load_lut(0, 1, local_stride=2))
    assert tables.luts[1].tolist() == [[100, 0], [108, 2], [10, 20], [12, 22]]
