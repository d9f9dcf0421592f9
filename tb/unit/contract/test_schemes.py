# SPDX-License-Identifier: Apache-2.0
"""The number schemes: one object a machine, chosen in one place, the circuits beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import DataType
from weft.hw.contract.schemes import FIXED_POINT_SCHEMES, INTEGER_SCHEMES, Scheme
from weft.hw.contract.schemes.base import OutputRescale
from weft.hw.contract.schemes.int8 import SCALE_VECTORS
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY
from weft.hw.parts.ports import InputRescalerPort
from weft.hw.parts.schemes import CIRCUITS, circuits

ROOT = Path(__file__).parents[3]
TINY = Arch.load("tiny")
OWN_PLACES = ("hw/contract/schemes", "hw/parts/schemes", "hw/contract/arch.py", "hw/contract/key_values.py")
SHIPPED = ("hw", "golden", "cycles", "simulate", "tmodel", "runtime", "compiler", "report", "explore", "cli", "boards",
           "scripts")
ASKS = re.compile(r"\bEVERY_STEP\b|\bONCE\b|mac_rounding\s*(?:==|!=|\bin\b)|isinstance\([^)]*FixedPoint")
"""What code would say that asks which number scheme a machine has."""


def system(name: str, data_type: str = "FP16BP8") -> Scheme:
    return TINY.replace(mac_rounding=name, data_type=data_type).scheme


def test_nobody_asks_which_number_system_a_machine_has() -> None:
    found = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
             for room in SHIPPED for path in sorted((ROOT / room).rglob("*.py"))
             if not str(path.relative_to(ROOT)).startswith(OWN_PLACES)
             for number, line in enumerate(path.read_text().splitlines(), 1) if ASKS.search(line)]
    assert not found


def test_every_number_system_has_its_circuits() -> None:
    assert [*FIXED_POINT_SCHEMES, *(each.name for each in INTEGER_SCHEMES.values())] == list(CIRCUITS)
    for data_type, kind in INTEGER_SCHEMES.items():
        arch = TINY.replace(data_type=data_type)
        assert type(arch.scheme) is kind and type(circuits(arch)) is CIRCUITS[kind.name]
    for name in FIXED_POINT_SCHEMES:
        arch = TINY.replace(mac_rounding=name)
        assert type(arch.scheme) is FIXED_POINT_SCHEMES[name] and type(circuits(arch)) is CIRCUITS[name]


def test_codes_that_drivers_read_differ() -> None:
    assert len({each.code for each in FIXED_POINT_SCHEMES.values()}) == len(FIXED_POINT_SCHEMES)


@pytest.mark.parametrize(("name", "data_type", "cycles"), [
    ("once", "FP16BP8", 8), ("every_step", "FP16BP8", 1), ("once", "INT8", 1)])
def test_only_a_bias_that_is_rescaled_column_by_column_holds_up_the_next(name: str, data_type: str,
                                                                          cycles: int) -> None:
    assert system(name, data_type).bias_interval(8) == cycles


def test_bytes_lose_from_a_sixteenth_of_their_range_beyond_it() -> None:
    """17 beyond its ends are a loss and 16 are none; below a ReLU's end nothing is."""
    values, times_one = np.array([-145, -144, 143, 144]), np.eye(SCALE_VECTORS, 1, dtype=np.int64)
    for zero, relu, lost in ((0, False, [True, False, False, True]), (0, True, [False, False, False, True]),
                             (-128, False, [False, False, False, True])):
        found = system("once", "INT8").is_cut(values - zero, OutputRescale(scales=times_one, zero=zero), relu)
        assert found.tolist() == lost


def test_each_byte_is_a_weight_and_the_lowest_one_is_its_neighbour() -> None:
    """-128 becomes -127, so that products of weights fit; Amaranth's own simulator, all 256 bytes."""
    scalar, made = Signal(signed(8)), Signal(signed(8))
    m = Module()
    m.d.comb += made.eq(circuits(TINY.replace(data_type="INT8")).weight(scalar))
    found = {}

    async def bench(context: Any) -> None:
        for byte in range(-128, 128):
            context.set(scalar, byte)
            found[byte] = context.get(made)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == {byte: max(byte, -127) for byte in range(-128, 128)}


def test_bytes_enter_the_accumulators_minus_their_zero_times_the_factor() -> None:
    """Of each lane, three cycles later, saturated; the extremes among them."""
    arch = TINY.replace(data_type="INT8", array_size=3, accumulator_width=24)
    m, request = Module(), InputRescalerPort(arch).create().request.payload
    values = circuits(arch).rescale(m, request)
    most = arch.accumulator_bits
    found, wanted = [], []

    async def bench(context: Any) -> None:
        for data in ([0, 1, -1], [127, -128, 5]):
            for zero in (-128, 0, 3, 127):
                for factor in (1, 77, (1 << len(request.input_multiplier)) - 1):
                    given = {"data": data, "input_zero_point": zero, "input_multiplier": factor}
                    for name, value in given.items():
                        context.set(request[name], value)
                    await context.tick().repeat(ACCUMULATE_DATA_LATENCY)
                    found.append([context.get(value) for value in values])
                    wanted.append([min(max((byte - zero) * factor, -1 << most - 1), (1 << most - 1) - 1)
                                   for byte in data])

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == wanted and len(values) == 3


@pytest.mark.parametrize("data_type", ("FP8BP4", "FP16BP8", "FP32BP16"))
@pytest.mark.parametrize("name", FIXED_POINT_SCHEMES)
def test_steps_of_an_element_make_a_sum(name: str, data_type: str) -> None:
    """From the bias down the column, one product at a time; the extremes among the factors."""
    numbers, rng = system(name, data_type), np.random.default_rng(1)
    scalar = DataType.parse(data_type)
    activations, weights, bias = (rng.choice([scalar.minimum, scalar.maximum, scalar.one, scalar.one // 2, 3, -1, 0],
                                             shape) for shape in ((20, 5), (5, 3), (3,)))
    found = numbers.mac(activations, weights, bias)
    for row, sums in zip(activations, found, strict=True):
        for column in range(3):
            total = int(bias[column])
            for activation, weight in zip(row, weights[:, column], strict=True):
                total = numbers.add_product(total, int(weight), int(activation))
            assert sums[column] == total


@pytest.mark.parametrize("name", FIXED_POINT_SCHEMES)
def test_sums_fit_the_widths_that_they_are_given(name: str) -> None:
    numbers, scalar, lanes = system(name), TINY.number, 4
    for factor in (scalar.minimum, scalar.maximum):
        total = 0
        for row in range(lanes):
            total = numbers.add_product(total, factor, factor)
            assert -(1 << numbers.row_sum_width(row) - 1) <= total < 1 << numbers.row_sum_width(row) - 1
        bias = numbers.rescale_input(np.full(1, factor), numbers.accumulator_width - 1)
        sums = numbers.mac(np.full((1, lanes), factor), np.full((lanes, 1), factor), bias)
        assert abs(int(sums[0, 0])) < 1 << numbers.partial_sum_width(lanes) - 1


@pytest.mark.parametrize("name", FIXED_POINT_SCHEMES)
def test_a_number_without_a_point_of_its_own_has_one_shift(name: str) -> None:
    numbers, values = system(name), np.arange(-9, 9)
    shift = numbers.fixed_shift
    assert (shift is None) == numbers.chooses_points
    if shift is not None:
        assert shift == TINY.number.point
        assert numbers.requantize(numbers.rescale_input(values, shift), shift).tolist() == values.tolist()


@pytest.mark.parametrize("name", FIXED_POINT_SCHEMES)
def test_accumulating_saturates_once(name: str) -> None:
    numbers = system(name)
    most = (1 << numbers.accumulator_width - 1) - 1
    assert numbers.accumulate(np.array([most - 1]), np.array([most])).tolist() == [most]
    assert numbers.accumulate(np.array([most]), np.array([-1])).tolist() == [most - 1]
    assert numbers.store(np.array([most + 1, -most - 2])).tolist() == [most, -most - 1]


def test_scales_are_what_their_bytes_say_up_to_the_ends() -> None:
    """Multipliers have no sign, biases have one; bits of a multiplier above those of the machine count for nothing."""
    scheme: Any = TINY.replace(data_type="INT8").scheme
    multipliers = np.array([0, 1, 255, 256, (1 << 17) - 1, 1 << 16])
    biases = np.array([(1 << 31) - 1, -1 << 31, -1, 0, 128, -129])
    found = scheme.scales(scheme.scale_vectors(multipliers, biases))
    assert found[0].tolist() == multipliers.tolist() and found[1].tolist() == biases.tolist()
    assert scheme.scales(scheme.scale_vectors(multipliers + (1 << 17), biases))[0].tolist() == multipliers.tolist()
