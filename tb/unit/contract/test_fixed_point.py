# SPDX-License-Identifier: Apache-2.0
"""The hardware's arithmetic against its definition in ``numerics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from amaranth.hdl import signed, unsigned

from weft.hw.contract import numerics
from weft.hw.contract.numerics import bits_to_count
from weft.hw.parts import fixed_point
from weft.tb.bench.block_bench import evaluate

WIDTHS = (5, 8, 16, 18, 32, 48, 96)


def numbers(width: int, seed: int = 0, count: int = 60) -> list[int]:
    """All numbers of a narrow type; else corners, neighbours of powers of two and random ones of all magnitudes."""
    if width <= 8:
        return list(range(-(1 << width - 1), 1 << width - 1))
    rng = Random(seed * 1000 + width)
    near = {sign * (1 << bit) + step for bit in range(0, width, max(width // 12, 1)) for step in (-1, 0, 1)
            for sign in (-1, 1)}
    found = {numerics.minimum(width), numerics.minimum(width) + 1, numerics.maximum(width), -1, 0, 1, *near}
    found |= {rng.getrandbits(width) - (1 << width - 1) >> rng.randrange(width) for _ in range(count)}
    return sorted(value for value in found if numerics.minimum(width) <= value <= numerics.maximum(width))


def ties(width: int, shift: int, seed: int = 0) -> list[int]:
    """Numbers whose fraction of ``shift`` bits is a half or beside it."""
    rng = Random(seed)
    if not 0 < shift < width:
        return []
    tops = [rng.getrandbits(width - shift) for _ in range(8)] + [0, 1, (1 << width - shift) - 1]
    raw = [(top << shift) + (1 << shift - 1) + step for top in tops for step in (-1, 0, 1)]
    return [numerics.DataType(width, 1).truncate(value) for value in raw]


def check(function: Callable[..., Any], shapes: list[Any], reference: Callable[..., int], cases: list[tuple]) -> None:
    found = evaluate(function, shapes, cases)
    wrong = [(case, got, reference(*case)) for case, got in zip(cases, found, strict=True) if got != reference(*case)]
    assert not wrong, f"{len(wrong)} of {len(cases)} wrong; (arguments, found, right): {wrong[:3]}"


@pytest.mark.parametrize("wide", WIDTHS)
@pytest.mark.parametrize("narrow", (4, 8, 16, 33))
def test_saturate_clips_to_the_range(wide: int, narrow: int) -> None:
    check(lambda value: fixed_point.saturate(value, narrow), [signed(wide)],
          lambda value: numerics.saturate(value, narrow), [(value,) for value in numbers(wide)])


@pytest.mark.parametrize("narrow", (4, 8, 9, 12))
def test_resize_extends_the_sign_or_keeps_the_low_bits(narrow: int) -> None:
    def reference(value: int) -> int:
        return (value + (1 << narrow - 1)) % (1 << narrow) - (1 << narrow - 1)

    found = evaluate(lambda value: fixed_point.resize(value, narrow), [signed(8)], [(v,) for v in numbers(8)])
    assert found == [reference(value) for value in numbers(8)]


@pytest.mark.parametrize(("width", "shift"), [(width, shift) for width in WIDTHS
                                              for shift in (0, 1, 2, 4, 7, 10, 15, 31) if shift < width])
def test_round_half_even_by_a_constant(width: int, shift: int) -> None:
    cases = [(value,) for value in [*numbers(width), *ties(width, shift)]]
    check(lambda value: fixed_point.round_half_even(value, shift), [signed(width)],
          lambda value: numerics.round_half_even(value, shift), cases)


def shifted(width: int, scalar: int) -> Iterator[tuple[int, int]]:
    """(scalar-wide value, shift below ``width``): every shift of a narrow type, else the ends and some between."""
    shifts = range(width) if width <= 8 else sorted({0, 1, 2, 8, width // 2, width - scalar, width - 2, width - 1})
    for shift in shifts:
        for value in [*numbers(scalar, shift, 25), *ties(scalar, shift, shift)]:
            yield value, shift


@pytest.mark.wide_cases("96-32")
@pytest.mark.parametrize(("accumulator", "scalar"), ((8, 4), (8, 8), (13, 12), (16, 8), (32, 16), (33, 32),
                                                       (63, 18), (96, 32)))
def test_requantize_rounds_and_saturates(accumulator: int, scalar: int) -> None:
    check(lambda value, shift: fixed_point.requantize(value, shift, scalar),
          [signed(accumulator), unsigned(bits_to_count(accumulator))],
          lambda value, shift: numerics.requantize(value, shift, scalar), list(shifted(accumulator, accumulator)))


@pytest.mark.parametrize(("accumulator", "scalar"), ((8, 4), (8, 8), (13, 12), (16, 8), (32, 16), (63, 18), (96, 32)))
def test_enter_shifts_and_saturates(accumulator: int, scalar: int) -> None:
    check(lambda value, shift: fixed_point.rescale_input(value, shift, accumulator),
          [signed(scalar), unsigned(bits_to_count(accumulator))],
          lambda value, shift: numerics.rescale_input(value, shift, accumulator), list(shifted(accumulator, scalar)))
