# SPDX-License-Identifier: Apache-2.0
"""Small networks of operators and attributes as a seed drew them, each of which was once wrong or refused.

They are cut to what it took."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise
from weft.tb.random.network_rule import TABLES

WORDS = BASE.replace(**TABLES)
BYTES = BASE.replace(data_type="INT8", **{**TABLES, "lut_depth": 256})
SAMPLES = 3

Drawn = Callable[[ModelMaker], str | tuple[str, ...]]


def pool_of_a_row_of_pixels(maker: ModelMaker) -> str:
    """The product takes the input with pixels for channels; its elements have the order of its default place."""
    maker.shape = (1, 7, 1)
    turned = maker.node("Transpose", "x", perm=[0, 2, 1])
    square = maker.node("MatMul", "x", turned)
    pool = maker.node("AveragePool", "x", kernel_shape=[3], strides=[4], pads=[1, 2])
    return maker.node("MatMul", square, pool)


def product_of_repeated_numbers(maker: ModelMaker) -> str:
    """Each row of a matrix is one number again and again."""
    maker.shape = (2, 2, 1, 1)
    rows = maker.node("Expand", "x", maker.constant(np.array([1, 1, 3, 4])))
    return maker.node("MatMul", rows, maker.normal(4, 6))


def norm_of_default_axes(maker: ModelMaker) -> str:
    """ONNX's own inference of shapes fails for it."""
    maker.shape = (2, 3, 4, 4)
    return maker.node("MeanVarianceNormalization", "x")


def shape_in_an_old_constant(maker: ModelMaker) -> str:
    """Before opset 9 a node Constant has real numbers alone, but old exporters wrote shapes in it."""
    maker.shape, maker.opset = (1, 2, 3, 4), 8
    value = helper.make_tensor("", TensorProto.INT64, [2], [6, -1])
    maker.nodes.append(helper.make_node("Constant", [], ["shape"], value=value))
    return maker.node("Reshape", maker.node("Relu", "x"), "shape")


def most_of_an_axis_of_one(maker: ModelMaker) -> str:
    """The maximum of single numbers is these numbers, wherever a Slice left them."""
    maker.shape = (1, 6)
    part = maker.node("Slice", "x", *(maker.constant(np.array([number])) for number in (1, 4, 1)))
    return maker.node("ReduceMax", part, axes=[0], keepdims=0)


def transposed_to_the_same_size(maker: ModelMaker) -> tuple[str, ...]:
    """ONNX's inference adds the output padding to the size, onnxruntime does not; kernels are larger and smaller."""
    maker.shape = (1, 2, 5, 4)
    made = []
    for pad, kernel in (("SAME_UPPER", (4, 1)), ("SAME_LOWER", (3, 4)), ("SAME_LOWER", (2, 2))):
        made.append(maker.node("ConvTranspose", "x", maker.normal(2, 3, *kernel), auto_pad=pad, strides=(2, 3),
                               output_padding=(1, 0), dilations=(1, 2)))
    return tuple(made)


@pytest.mark.parametrize("network, arch, decibels", [
    (pool_of_a_row_of_pixels, WORDS, 50), (product_of_repeated_numbers, WORDS, 50),
    (product_of_repeated_numbers, BYTES, 30), (norm_of_default_axes, WORDS, 40), (shape_in_an_old_constant, WORDS, 60),
    (transposed_to_the_same_size, WORDS, 50), (most_of_an_axis_of_one, WORDS, 60), (most_of_an_axis_of_one, BYTES, 35)])
def test_a_drawn_network(network: Drawn, arch: Arch, decibels: float, tmp_path: Path) -> None:
    """The machine alone computes it, and its outputs are onnxruntime's."""
    maker = ModelMaker((1,), seed=2)
    ends = network(maker)
    path = maker.save(tmp_path / "net.onnx", *([ends] if isinstance(ends, str) else ends))
    samples = maker.random.standard_normal((SAMPLES, *maker.shape)).astype(np.float32)
    one = samples[:, 0] if maker.shape[0] == 1 else samples
    report = weft.compile(path, arch, tmp_path, calibrate={"x": one}, host_fallback=False)
    assert not [text for text in report.warnings if "poor numbers" in text]
    session = weft.Session(report.model_path)
    for sample in samples:
        found = session.run(None, {"x": sample})
        for right, made in zip(run_float(path, {"x": sample}).values(), found, strict=True):
            assert signal_to_noise(right, made) >= decibels
