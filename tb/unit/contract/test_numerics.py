# SPDX-License-Identifier: Apache-2.0
"""hw/contract/numerics.py against fractions and plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.hw.contract import numerics
from weft.hw.contract.numerics import DataType
from weft.hw.contract.schemes import FixedPointEveryStep, FixedPointOnce
from weft.support.errors import ArchError

TYPES = ["FP4BP1", "FP4BP2", "FP8BP4", "FP16BP8", "FP18BP10", "FP32BP16", "FP32BP30", "FP17BP3"]
BIG = st.integers(-(2 ** 90), 2 ** 90)


def clip(value: int, width: int) -> int:
    return max(-(2 ** (width - 1)), min(value, 2 ** (width - 1) - 1))


# -- rounding and saturation ---------------------------------------------------------------------------------------
def test_half_even_of_all_small_values() -> None:
    values = np.arange(-70, 70)
    for shift in range(6):
        expected = [round(Fraction(int(value), 2 ** shift)) for value in values]
        assert numerics.round_half_even(values, shift).tolist() == expected
        assert numerics.round_half_even(values.astype(np.int32), shift).tolist() == expected
        assert [numerics.round_half_even(int(value), shift) for value in values] == expected


@given(BIG, st.integers(0, 95))
def test_half_even_agrees_with_fractions(value: int, shift: int) -> None:
    expected = round(Fraction(value, 2 ** shift))
    assert numerics.round_half_even(value, shift) == expected
    assert numerics.round_half_even(np.array([value], object), shift)[0] == expected
    if abs(value) < 2 ** 62 and shift < 63:
        assert numerics.round_half_even(np.array([value]), shift)[0] == expected


@given(BIG, st.integers(1, 96))
def test_saturation_clips_to_the_signed_range(value: int, width: int) -> None:
    assert numerics.saturate(value, width) == clip(value, width)
    assert numerics.saturate(np.array([value], object), width)[0] == clip(value, width)
    for dtype in (np.int32, np.int64):
        info = np.iinfo(dtype)
        inside = max(int(info.min), min(value, int(info.max)))
        assert numerics.saturate(np.array([inside], dtype), width)[0] == clip(inside, width)


@pytest.mark.parametrize("width", [31, 32, 33, 62, 63, 64, 65])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_saturation_of_the_ends_of_numpy_integers(dtype: type, width: int) -> None:
    ends = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
    assert numerics.saturate(np.array(ends, dtype), width).tolist() == [clip(end, width) for end in ends]


def test_saturation_at_the_edges() -> None:
    assert numerics.saturate(np.array([-9, -8, -7, 6, 7, 8]), 4).tolist() == [-8, -8, -7, 6, 7, 7]


@given(BIG, st.integers(0, 95), st.integers(4, 32))
def test_leaving_rounds_then_saturates(value: int, shift: int, width: int) -> None:
    assert numerics.requantize(value, shift, width) == clip(round(Fraction(value, 2 ** shift)), width)


@given(st.integers(-(2 ** 31), 2 ** 31 - 1), st.integers(0, 95), st.integers(32, 96))
def test_entering_shifts_then_saturates(value: int, shift: int, width: int) -> None:
    expected = clip(value * 2 ** shift, width)
    assert numerics.rescale_input(value, shift, width) == expected
    assert numerics.rescale_input(np.array([value]), shift, width).tolist() == [expected]


# -- data types ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "width", "point", "stored"), [
    ("FP8BP4", 8, 4, 1), ("FP16BP8", 16, 8, 2), ("FP18BP10", 18, 10, 4), ("FP32BP16", 32, 16, 4),
    ("FP32B16", 32, 16, 4), ("FP4BP2", 4, 2, 1), ("FP9BP2", 9, 2, 2), ("FP17BP2", 17, 2, 4)])
def test_data_type_is_read_from_its_name(name: str, width: int, point: int, stored: int) -> None:
    number = DataType.parse(name)
    assert (number.width, number.point, number.scalar_bytes) == (width, point, stored)
    assert number.storage_dtype.itemsize == stored
    assert number.one == 2 ** point
    assert (number.minimum, number.maximum) == (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    assert DataType.parse(number.name) == number


@pytest.mark.parametrize("name", ["", "FP16", "fp16bp8", "FP16BP8 ", "FP3BP1", "FP33BP1", "FP16BP0", "FP16BP15", None])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ArchError, match="data_type: found"):
        DataType.parse(name)


def test_multiply_rounds_by_the_point_and_saturates_for_all_pairs_of_five_bits() -> None:
    number = DataType(5, 2)
    values = np.arange(-16, 16)
    left, right = np.meshgrid(values, values)
    expected = [[clip(round(Fraction(int(x) * int(y), 4)), 5) for x, y in zip(*pair, strict=True)]
                for pair in zip(left, right, strict=True)]
    assert number.multiply(left, right).tolist() == expected


@given(st.integers(-(2 ** 62), 2 ** 62), st.integers(4, 32))
def test_truncation_keeps_the_low_bits_as_a_signed_number(value: int, width: int) -> None:
    bits = value % 2 ** width
    expected = bits - 2 ** width if bits >= 2 ** (width - 1) else bits
    assert DataType(width, 1).truncate(value) == expected
    assert DataType(width, 1).truncate(np.array([value]))[0] == expected


def test_quantize_rounds_half_to_even_and_saturates() -> None:
    number = DataType(8, 4)
    values = np.array([0.5 / 16, 1.5 / 16, -0.5 / 16, -2.5 / 16, 100.0, -100.0, 7.9375])
    assert number.quantize(values).tolist() == [0, 2, 0, -2, 127, -128, 127]
    assert number.quantize(np.array([3.0]), point=0).tolist() == [3]
    assert number.dequantize(np.array([24, -8])).tolist() == [1.5, -0.5]
    assert number.dequantize(np.array([24]), point=2).tolist() == [6.0]


# -- matrix products -----------------------------------------------------------------------------------------------
def operands(number: DataType, seed: int, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random with all magnitudes, plus extremes, so that steps round, tie and saturate."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        values = rng.integers(number.minimum, number.maximum, shape, endpoint=True)
        values >>= rng.integers(0, number.width, shape)
        special = rng.choice([number.minimum, number.maximum, number.one, number.one // 2, 1, -1, 0], shape)
        return np.where(rng.random(shape) < 0.3, special, values)

    return matrix(70, lanes), matrix(lanes, 5), matrix(5)


@pytest.mark.parametrize("lanes", [2, 3, 12])
@pytest.mark.parametrize("name", TYPES)
def test_mac_once_is_exact(name: str, lanes: int) -> None:
    number = DataType.parse(name)
    activations, weights, bias = operands(number, lanes, lanes)
    expected = [[int(bias[c]) + sum(int(x) * int(w) for x, w in zip(row, weights[:, c], strict=True))
                 for c in range(5)] for row in activations]
    assert FixedPointOnce(number, 2 * number.width).mac(activations, weights, bias).tolist() == expected


@pytest.mark.parametrize("lanes", [2, 3, 12])
@pytest.mark.parametrize("name", TYPES)
def test_mac_every_step_rounds_and_saturates_each_step(name: str, lanes: int) -> None:
    number = DataType.parse(name)
    activations, weights, bias = operands(number, lanes, lanes)

    def column(row: np.ndarray, c: int) -> int:
        y = int(bias[c])
        for x, w in zip(row, weights[:, c], strict=True):
            y = clip(round(Fraction(int(x) * int(w) + y * 2 ** number.point, 2 ** number.point)), number.width)
        return y

    expected = [[column(row, c) for c in range(5)] for row in activations]
    found = FixedPointEveryStep(number, number.width).mac(activations, weights, bias)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_multiply_exact_at_the_largest_size_of_each_path() -> None:
    """Lanes of extremes: through floats (up to 22 bits), 63 bits (27 bits) and Python integers (32 bits)."""
    for width in range(4, 33):
        for lanes, value in ((256, -(2 ** (width - 1))), (255, 2 ** (width - 1) - 1)):
            found = numerics.multiply_exact(np.full((1, lanes), value), np.full((lanes, 1), value), width)
            assert found.tolist() == [[lanes * value * value]]


def test_more_bits_than_a_sum_of_int64_may_have_are_python_ints() -> None:
    """The sum of two numbers of 63 bits has 64."""
    assert [numerics.integer_dtype(bits) for bits in (8, 63, 64, 65)] == [np.int64, np.int64, object, object]
