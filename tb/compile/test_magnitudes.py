# SPDX-License-Identifier: Apache-2.0
"""Roots of few squares, as spectra have them, whose numbers span a wide range; and magnitudes in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.frontend.onnx_reader import to_graph
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import Abs
from weft.compiler.passes.magnitudes import turn_magnitudes
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model, run_float
from weft.tb.random.network_rule import TABLES
from weft.tmodel.network import Network

TABLED = BASE.replace(**{**TABLES, "lut_depth": 256})
NO_SIMD = BASE.replace(simd_registers_depth=0)
SHAPE = (1, 2, 12, 9)
SPAN = 300.0
Write = Callable[[ModelMaker], object]


def spectrum() -> np.ndarray:
    """[4, 2, 12, 9]: real and imaginary parts, of which some rows are SPAN times as large as others."""
    random = np.random.default_rng(2)
    return (random.standard_normal((4, *SHAPE[1:])) * np.geomspace(1 / SPAN, 1, SHAPE[2])[:, None]).astype(np.float32)


def halves(maker: ModelMaker) -> list[str]:
    axis = maker.constant(np.array([1]))
    return [maker.node("Slice", "x", maker.constant(np.array([at])), maker.constant(np.array([at + 1])), axis)
            for at in (0, 1)]


def scalar(maker: ModelMaker, value: float) -> str:
    return maker.constant(np.float32(value))


def by_powers(maker: ModelMaker) -> None:
    squares = [maker.node("Pow", half, scalar(maker, 2)) for half in halves(maker)]
    maker.node("Sqrt", maker.node("Add", *squares))


def by_products(maker: ModelMaker) -> None:
    squares = [maker.node("Mul", half, half) for half in halves(maker)]
    maker.node("Pow", maker.node("Add", *squares), scalar(maker, 0.5))


def of_an_axis(maker: ModelMaker) -> None:
    maker.node("Sqrt", maker.node("ReduceSum", maker.node("Mul", "x", "x"), maker.constant(np.array([1]))))


def without_the_axis(maker: ModelMaker) -> None:
    maker.node("ReduceL2", "x", axes=[-3], keepdims=0)


def moved_before_the_root(maker: ModelMaker) -> None:
    squares = [maker.node("Mul", half, half) for half in halves(maker)]
    turned = maker.node("Transpose", maker.node("Relu", maker.node("Add", *squares)), perm=[0, 1, 3, 2])
    some = maker.node("Slice", turned, *(maker.constant(np.array([number])) for number in (2, 11, 3)))
    maker.node("Sqrt", some)


def of_three(maker: ModelMaker) -> None:
    first, second = halves(maker)
    third = maker.node("Sub", first, second)
    squares = [maker.node("Mul", each, each) for each in (first, second, third)]
    maker.node("Sqrt", maker.node("Add", maker.node("Add", *squares[:2]), squares[2]))


def behind_a_convolution(maker: ModelMaker) -> None:
    made = maker.conv("x", 2, 10, (3, 3), pads=(1,) * 4)
    axis = maker.constant(np.array([1]))
    parts = [maker.node("Slice", made, maker.constant(np.array([at])), maker.constant(np.array([at + 5])), axis)
             for at in (0, 5)]
    maker.conv(maker.node("Sqrt", maker.node("Add", *(maker.node("Mul", part, part) for part in parts))), 5, 4, (1, 1))


FORMS = [by_powers, by_products, of_an_axis, without_the_axis, moved_before_the_root, of_three, behind_a_convolution]


@pytest.mark.parametrize("write", FORMS)
def test_lengths_are_right_to_60_decibels(write: Write, tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    write(maker)
    check_model(maker.save(tmp_path / "model.onnx"), TABLED, spectrum(), 58)


def test_small_lengths_keep_their_bits(tmp_path: Path) -> None:
    """The smallest row alone, 50 dB below the largest one, has 25 dB less than all; its squares would have no bit."""
    maker = ModelMaker(SHAPE)
    by_powers(maker)
    path = maker.save(tmp_path / "model.onnx")
    model = check_model(path, TABLED, spectrum(), 60)
    for sample in spectrum():
        (wanted,), (found,) = (each.values() for each in (
            run_float(path, {"x": sample[None]}), Session(Network.of(model)).run({"x": sample}).outputs))
        apart = np.abs(wanted - found)[:, :, 0]
        assert np.sqrt(np.square(apart).mean() / np.square(wanted[:, :, 0]).mean()) < 0.07


@pytest.mark.parametrize(("constant", "turns"), [(0.5, True), (1e-12, False)])
def test_a_constant_under_the_root_is_one_side_more(constant: float, turns: bool, tmp_path: Path) -> None:
    """Unless it is too small to be seen beside the squares."""
    maker = ModelMaker(SHAPE)
    squares = [maker.node("Mul", half, half) for half in halves(maker)]
    maker.node("Sqrt", maker.node("Add", maker.node("Add", *squares), scalar(maker, constant)))
    path = maker.save(tmp_path / "model.onnx")
    check_model(path, TABLED, spectrum(), 58)
    taken = sum(isinstance(layer.elementwise, Abs) for layer in after_all_steps(path, TABLED, spectrum())[Layers])
    assert (taken > 6) == turns


@pytest.mark.parametrize("arch", [TABLED, NO_SIMD], ids=["simd", "no simd"])
def test_no_step_changes_lengths(arch: Arch, tmp_path: Path) -> None:
    """Without a SIMD unit a magnitude is a sum of ReLUs, and no table is needed for the root."""
    maker = ModelMaker(SHAPE)
    behind_a_convolution(maker)
    check_every_step(maker.save(tmp_path / "model.onnx"), arch, spectrum())


def of_five(maker: ModelMaker) -> None:
    maker.node("ReduceL2", maker.conv("x", 2, 5, (1, 1)), axes=[1])


def of_something_else(maker: ModelMaker) -> None:
    first, second = halves(maker)
    maker.node("Sqrt", maker.node("Relu", maker.node("Add", maker.node("Mul", first, first),
                                                     maker.node("Mul", first, second))))


def of_repeated_squares(maker: ModelMaker) -> None:
    pixel = maker.node("GlobalAveragePool", "x")
    maker.node("Sqrt", maker.node("Add", maker.node("Mul", "x", "x"), maker.node("Mul", pixel, pixel)))


def of_cubes(maker: ModelMaker) -> None:
    first, second = halves(maker)
    maker.node("Sqrt", maker.node("Add", maker.node("Pow", first, scalar(maker, 4)), maker.node("Mul", second, second)))


@pytest.mark.parametrize("write", [of_five, of_something_else, of_repeated_squares, of_cubes])
def test_other_roots_stay(write: Write) -> None:
    maker = ModelMaker(SHAPE)
    write(maker)
    graph = to_graph(onnx.shape_inference.infer_shapes(maker.model()), "made")
    assert turn_magnitudes(graph) is graph


def test_squares_that_are_read_otherwise_stay_too(tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    total = maker.node("Add", *(maker.node("Mul", half, half) for half in halves(maker)))
    root = maker.node("Sqrt", total)
    check_model(maker.save(tmp_path / "model.onnx", total, root), TABLED, spectrum(), 40)


def test_a_magnitude_is_one_operation_of_its_layer(tmp_path: Path) -> None:
    """Also of the lowest number, whose magnitude saturates, behind a sum, and twice."""
    maker = ModelMaker((1, 6, 5, 5))
    first = maker.node("Abs", maker.node("Add", maker.conv("x", 6, 6, (3, 3), pads=(1,) * 4), "x"))
    pooled = maker.node("Abs", maker.node("MaxPool", first, kernel_shape=(2, 2)))
    maker.node("Abs", maker.node("Relu", maker.conv(pooled, 6, 9, (1, 1))))
    samples = np.random.default_rng(1).standard_normal((3, 6, 5, 5)).astype(np.float32) * 3
    path = maker.save(tmp_path / "model.onnx")
    check_every_step(path, BASE, samples)
    first_layer, *_ = layers = after_all_steps(path, BASE, samples)[Layers]
    assert first_layer.kind == "mat_mul+add+abs" and len(layers) == 5
