"""The number systems: one object a machine, chosen in one place, the circuits beside it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.numbers import INTEGER_SYSTEMS, SYSTEMS, NumberSystem
from weft.hw.contract.numerics import DataType
from weft.hw.parts.numbers import CIRCUITS, circuits

ROOT = Path(__file__).parents[3]
TINY = Arch.load("tiny")
OWN_ROOMS = ("hw/contract/numbers", "hw/parts/numbers")
SHIPPED = ("hw", "golden", "simulate", "runtime", "compiler", "cli", "boards", "scripts")
ASKS = re.compile(r"\bEVERY_STEP\b|\bONCE\b|mac_rounding\s*(?:==|!=|\bin\b)|isinstance\([^)]*FixedPoint")
"""What code would say that asks which number system a machine has."""


def system(name: str, data_type: str = "FP16BP8") -> NumberSystem:
    return TINY.replace(mac_rounding=name, data_type=data_type).numbers


def test_nobody_asks_which_number_system_a_machine_has() -> None:
    found = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
             for room in SHIPPED for path in sorted((ROOT / room).rglob("*.py"))
             if not str(path.relative_to(ROOT)).startswith(OWN_ROOMS) and path != ROOT / "hw/contract/arch.py"
             for number, line in enumerate(path.read_text().splitlines(), 1) if ASKS.search(line)]
    assert not found


def test_every_number_system_has_its_circuits() -> None:
    assert [*SYSTEMS, *(each.name for each in INTEGER_SYSTEMS.values())] == list(CIRCUITS)
    for data_type, kind in INTEGER_SYSTEMS.items():
        arch = TINY.replace(data_type=data_type)
        assert type(arch.numbers) is kind and type(circuits(arch)) is CIRCUITS[kind.name]
    for name in SYSTEMS:
        arch = TINY.replace(mac_rounding=name)
        assert type(arch.numbers) is SYSTEMS[name] and type(circuits(arch)) is CIRCUITS[name]


def test_codes_that_drivers_read_differ() -> None:
    assert len({each.code for each in SYSTEMS.values()}) == len(SYSTEMS)


@pytest.mark.parametrize("data_type", ("FP8BP4", "FP16BP8", "FP32BP16"))
@pytest.mark.parametrize("name", SYSTEMS)
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


@pytest.mark.parametrize("name", SYSTEMS)
def test_sums_fit_the_widths_that_they_are_given(name: str) -> None:
    numbers, scalar, lanes = system(name), TINY.number, 4
    for factor in (scalar.minimum, scalar.maximum):
        total = 0
        for row in range(lanes):
            total = numbers.add_product(total, factor, factor)
            assert -(1 << numbers.row_sum_width(row) - 1) <= total < 1 << numbers.row_sum_width(row) - 1
        bias = numbers.enter(np.full(1, factor), numbers.accumulator_width - 1)
        sums = numbers.mac(np.full((1, lanes), factor), np.full((lanes, 1), factor), bias)
        assert abs(int(sums[0, 0])) < 1 << numbers.partial_sum_width(lanes) - 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_number_without_a_point_of_its_own_has_one_shift(name: str) -> None:
    numbers, values = system(name), np.arange(-9, 9)
    shift = numbers.fixed_shift
    assert (shift is None) == numbers.has_points
    if shift is not None:
        assert shift == TINY.number.point
        assert numbers.leave(numbers.enter(values, shift), shift).tolist() == values.tolist()


@pytest.mark.parametrize("name", SYSTEMS)
def test_accumulating_saturates_once(name: str) -> None:
    numbers = system(name)
    most = (1 << numbers.accumulator_width - 1) - 1
    assert numbers.accumulate(np.array([most - 1]), np.array([most])).tolist() == [most]
    assert numbers.accumulate(np.array([most]), np.array([-1])).tolist() == [most - 1]
    assert numbers.store(np.array([most + 1, -most - 2])).tolist() == [most, -most - 1]
