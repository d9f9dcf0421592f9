# SPDX-License-Identifier: Apache-2.0
"""Rare ways through the compiler: operators as few files have them, each against onnxruntime or refused in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tb.compile.test_operators import samples
from weft.tb.random.network_rule import TABLES

ARCH = BASE.replace(**TABLES)
IMAGE = (1, 6, 5, 4)
DECIBELS = 45
Make = Callable[[ModelMaker], object]


def ints(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


def number(maker: ModelMaker, value: float) -> str:
    return maker.constant(np.float32(value))


# -- limits ------------------------------------------------------------------------------------------------------------
def without_limits(maker: ModelMaker) -> None:
    maker.node("Neg", maker.node("Clip", "x"))


def only_below(maker: ModelMaker) -> None:
    maker.node("Clip", "x", "", number(maker, 0.5))


def limits_at_the_ends_of_the_type(maker: ModelMaker) -> None:
    ends = np.finfo(np.float32)
    maker.node("Neg", maker.node("Clip", "x", number(maker, float(ends.min)), number(maker, float(ends.max))))


# -- convolutions and matrices -----------------------------------------------------------------------------------------
def transposed_without_padding(maker: ModelMaker) -> None:
    maker.node("ConvTranspose", "x", maker.normal(6, 3, 3, 2), auto_pad="VALID", strides=(2, 2))


def transposed_beside_the_image(maker: ModelMaker) -> None:
    """Windows of some rows of the result end above the image: these hold the bias."""
    maker.node("ConvTranspose", "x", maker.normal(6, 2, 2, 1), maker.normal(2), strides=(3, 2), dilations=(4, 1),
               pads=(2, 2, 2, 4), output_padding=(1, 0))


def matrix_behind_padding(maker: ModelMaker) -> None:
    """What was padded is no part of the image that the matrix reads."""
    padded = maker.node("Pad", "x", ints(maker, 0, 0, 1, 0, 0, 0, 0, 1), number(maker, 0.5))
    maker.node("Gemm", maker.node("Flatten", padded), maker.normal(6 * 6 * 5, 7), maker.normal(7))


def constant_transposed_factor(maker: ModelMaker) -> None:
    rows = maker.node("Reshape", "x", ints(maker, 12, 10))
    maker.node("Gemm", maker.normal(12, 5), rows, transA=1, alpha=0.5)


def normalised_out_of_order(maker: ModelMaker) -> None:
    """The axis of the factors lies as rows, so that no layer has a factor for each channel."""
    turned = maker.node("Transpose", maker.conv("x", 6, 6, (1, 1)), perm=(0, 2, 1, 3))
    variance = maker.constant(maker.random.uniform(0.5, 2, 5).astype(np.float32))
    maker.node("BatchNormalization", turned, *(maker.normal(5) for _ in range(3)), variance)


# -- moves -------------------------------------------------------------------------------------------------------------
def padded_twice(maker: ModelMaker) -> None:
    """The second border has another number than the first."""
    once = maker.node("Pad", "x", ints(maker, 0, 0, 1, 1, 0, 0, 1, 1), number(maker, 0.5))
    maker.node("Pad", once, ints(maker, 0, 0, 0, 2, 0, 0, 1, 0), number(maker, -0.25))


def padded_by_attributes(maker: ModelMaker) -> None:
    maker.node("Pad", "x", pads=(0, 0, 1, 0, 0, 0, 0, 2), value=0.75)


def resized_to_whole_sizes(maker: ModelMaker) -> None:
    """5 pixels become 11, and 4 become 7: the first and the last ones stay where they are."""
    maker.node("Resize", "x", "", maker.constant(np.array([1, 1, 2.2, 1.75], np.float32)), mode="linear",
               coordinate_transformation_mode="align_corners")


def reduced_over_nothing(maker: ModelMaker) -> None:
    largest = maker.node("ReduceMax", "x", ints(maker), noop_with_empty_axes=1)
    maker.node("ReduceMean", maker.node("Neg", largest), ints(maker), noop_with_empty_axes=1)


NETWORKS: dict[str, tuple[Make, Sequence[int], int]] = {
    make.__name__: (make, shape, opset) for make, shape, opset in (
        (without_limits, IMAGE, 13), (only_below, IMAGE, 13), (limits_at_the_ends_of_the_type, IMAGE, 13),
        (transposed_without_padding, IMAGE, 13), (transposed_beside_the_image, (1, 6, 1, 4), 13),
        (matrix_behind_padding, IMAGE, 13), (constant_transposed_factor, IMAGE, 13),
        (normalised_out_of_order, IMAGE, 13), (padded_twice, IMAGE, 13), (padded_by_attributes, IMAGE, 10),
        (resized_to_whole_sizes, IMAGE, 13), (reduced_over_nothing, IMAGE, 18))}
"""Name -> what makes it, the input's shape, the opset."""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_rare_form_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    make, shape, opset = NETWORKS[name]
    maker = ModelMaker(shape, opset=opset)
    make(maker)
    check_model(maker.save(tmp_path / "net.onnx"), ARCH, samples(maker), DECIBELS)


# -- refusals ----------------------------------------------------------------------------------------------------------
def divided_by_nothing(maker: ModelMaker) -> None:
    maker.node("Div", "x", maker.constant(np.array([1, 0, 2, 3], np.float32)))


def many_joined(maker: ModelMaker) -> None:
    rows = [maker.node("Slice", "x", ints(maker, row), ints(maker, row + 1), ints(maker, 2)) for row in range(5)]
    maker.node("Concat", *(rows * 52), axis=3)


def resized_channels(maker: ModelMaker) -> None:
    maker.node("Resize", "x", "", "", ints(maker, 1, 12, 5, 4))


def resized_line(maker: ModelMaker) -> None:
    maker.node("Resize", "x", "", "", ints(maker, 1, 6, 9))


def resized_to_part_of_a_pixel(maker: ModelMaker) -> None:
    maker.node("Resize", "x", "", maker.constant(np.array([1, 1, 1.5, 2], np.float32)), mode="linear",
               coordinate_transformation_mode="align_corners")


REFUSED: dict[str, tuple[Make, Sequence[int], str]] = {
    "division by zero": (divided_by_nothing, IMAGE, "operator Div, constant 'constant0': found 0; allowed: no zeros"),
    "many pieces": (many_joined, IMAGE, "operator Concat, .*: found more than 256 pieces; allowed: at most 256"),
    "more channels": (resized_channels, IMAGE, r"operator Resize, shapes: found \[1, 6, 5, 4\] to \[1, 12, 5, 4\]"),
    "a line": (resized_line, (1, 6, 5), r"operator Resize, shapes: found \[1, 6, 5\] to \[1, 6, 9\]; allowed: 4 dim"),
    "part of a pixel": (resized_to_part_of_a_pixel, IMAGE, r"scales with align_corners: found \[1.0, 1.0, 1.5, 2.0\]"),
}
"""What is asked for -> what makes it, the input's shape, the message."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_can_do_is_said(name: str, tmp_path: Path) -> None:
    make, shape, said = REFUSED[name]
    maker = ModelMaker(shape, opset=18 if "pixel" in name else 13)
    make(maker)
    with pytest.raises(CompileError, match=said):
        compile_model(maker.save(tmp_path / "net.onnx"), ARCH, tmp_path, calibration={"x": samples(maker)})
