# SPDX-License-Identifier: Apache-2.0
"""A tensor times a limited line of itself, as hard swishes are written: one operation behind its convolution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import Gate
from weft.compiler.lir import Simd, SimdLoop
from weft.compiler.passes.fuse_gates import BODY, _filling
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import largest_point
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model
from weft.tb.compile.test_operators import EACH_ARCH, samples

DECIBELS = 55
OF_FEW_BITS = 10
"""So much less where the point must leave room for large constants."""


def number(maker: ModelMaker, value: float) -> str:
    return maker.constant(np.float32(value))


def written_out(maker: ModelMaker, source: str) -> str:
    line = maker.node("Add", source, number(maker, 3))
    limited = maker.node("Clip", line, number(maker, 0), number(maker, 6))
    return maker.node("Div", maker.node("Mul", source, limited), number(maker, 6))


def between_convolutions(maker: ModelMaker) -> None:
    """Of which a factor is taken, so that the product fills its range."""
    made = written_out(maker, maker.conv("x", 6, 13, (3, 3), pads=(1, 1, 1, 1)))
    maker.conv(maker.node("HardSwish", maker.conv(made, 13, 9, (1, 1))), 9, 5, (3, 3), group=1)


def at_the_end(maker: ModelMaker) -> None:
    maker.node("HardSwish", maker.conv("x", 6, 10, (3, 3), strides=(2, 2)))


def scaled_and_shifted(maker: ModelMaker) -> None:
    made = written_out(maker, maker.conv("x", 6, 6, (3, 3), group=6))
    maker.node("Add", maker.node("Mul", made, number(maker, 1.7)), number(maker, -0.3))


def of_small_numbers(maker: ModelMaker) -> None:
    """Beside which the line's numbers are so large that little would be left of them at one point with these."""
    small = maker.node("Mul", maker.conv("x", 6, 7, (1, 1)), number(maker, 0.01))
    maker.node("HardSwish", small)


def read_twice(maker: ModelMaker) -> None:
    """The convolution's result is read by others too, so it stays as it is."""
    made = maker.conv("x", 6, 6, (1, 1))
    maker.node("Add", maker.node("HardSwish", made), made)


def of_few_numbers(maker: ModelMaker) -> None:
    """Accumulators in which the convolution alone would leave no room for the line's limit of 40."""
    made = maker.node("Mul", maker.conv("x", 6, 7, (1, 1)), number(maker, 0.5))
    line = maker.node("Mul", maker.node("Add", made, number(maker, 39)), number(maker, 1))
    maker.node("Mul", made, maker.node("Clip", line, number(maker, 0), number(maker, 40)))


ONE = {function.__name__: function for function in (between_convolutions, at_the_end, scaled_and_shifted,
                                                     of_few_numbers)}


APART = {function.__name__: function for function in (of_small_numbers, read_twice)}


def network(build: Callable[[ModelMaker], None]) -> ModelMaker:
    maker = ModelMaker((1, 6, 7, 9), seed=5, opset=14)
    build(maker)
    return maker


@EACH_ARCH
@pytest.mark.parametrize("build", [*ONE.values(), *APART.values()], ids=[*ONE, *APART])
def test_against_onnxruntime(tmp_path: Path, build: Callable[[ModelMaker], None], arch: Arch) -> None:
    maker = network(build)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker),
                DECIBELS - (build is of_few_numbers) * OF_FEW_BITS)


@pytest.mark.parametrize("build", ONE.values(), ids=ONE)
def test_no_layer_multiplies(tmp_path: Path, build: Callable[[ModelMaker], None]) -> None:
    maker = network(build)
    path = maker.save(tmp_path / "model.onnx")
    layers = after_all_steps(path, BASE, samples(maker))[Layers]
    assert any(isinstance(layer.elementwise, Gate) for layer in layers)
    assert not any(layer.multiplies for layer in layers)
    check_every_step(path, BASE, samples(maker))


@pytest.mark.parametrize("build", APART.values(), ids=APART)
def test_what_would_lose_or_others_read_stays(tmp_path: Path, build: Callable[[ModelMaker], None]) -> None:
    maker = network(build)
    layers = after_all_steps(maker.save(tmp_path / "model.onnx"), BASE, samples(maker))[Layers]
    assert not any(isinstance(layer.elementwise, Gate) for layer in layers)


@pytest.mark.parametrize("magnitude", [0.01, 0.7, 1.0, 1.5, 3.3, 90.0])
def test_a_product_of_two_equal_points_fills_its_range(magnitude: float) -> None:
    """The largest of a product's numbers is beyond half of the range, at a point that two equal ones add up to."""
    factor, number = _filling(magnitude, BASE), BASE.number
    point = largest_point(magnitude * factor, number.width)
    assert 0.5 * 0.99 < factor < 2 and (point + number.point) % 2 == 0
    assert magnitude * factor * 2.0 ** point >= 0.49 * 2 ** (number.width - 1)


def test_a_vector_takes_four_instructions_that_read_three_times(tmp_path: Path) -> None:
    """Twice itself, and the limit: the offset is in the register before the loop. A loop of just so many is enough."""
    maker, arch = network(at_the_end), BASE.replace(simd_loop_depth=BODY)
    path = maker.save(tmp_path / "model.onnx")
    operations = after_all_steps(path, arch, samples(maker))[Schedule].operations
    place, loop = next((place, one) for place, one in enumerate(operations) if isinstance(one, SimdLoop))
    body = [one for one in operations[place + 1:place + 1 + loop.body] if isinstance(one, Simd)]
    assert len(body) == loop.body == BODY and sum(one.read is not None for one in body) == 3
    check_model(path, arch, samples(maker), DECIBELS)
