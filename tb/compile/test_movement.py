# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements, arithmetic of tensors, lookup tables: on arrays whose lanes do and do not divide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from weft.cli.main import exit_code
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.pipeline import compile_model
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import (
    BASE,
    ModelMaker,
    after_all_steps,
    check_model,
    run_float,
    run_golden,
    signal_to_noise,
)
from weft.tb.compile.test_operators import DECIBELS, EACH_ARCH, samples
from weft.tmodel.manifest import TModel


def conv(maker: ModelMaker, source: str, channels: tuple[int, int]) -> str:
    return maker.node("Relu", maker.conv(source, *channels, (3, 3), pads=(1, 1, 1, 1)))


def ints(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


def concat_of_convolutions(maker: ModelMaker) -> None:
    name = maker.node("Concat", conv(maker, "x", (6, 5)), conv(maker, "x", (6, 9)), "x", axis=1)
    maker.conv(name, 20, 7, (3, 3), pads=(1, 1, 1, 1))


def concat_as_output(maker: ModelMaker) -> None:
    maker.node("Concat", conv(maker, "x", (6, 5)), conv(maker, "x", (6, 4)), axis=1)


def concat_twice_of_one_tensor(maker: ModelMaker) -> None:
    name = conv(maker, "x", (6, 8))
    both = maker.node("Concat", name, name, axis=1)
    maker.node("Add", maker.conv(both, 16, 8, (1, 1)), name)


def concat_of_concats_pooled(maker: ModelMaker) -> None:
    inner = maker.node("Concat", conv(maker, "x", (6, 3)), conv(maker, "x", (6, 4)), axis=1)
    outer = maker.node("Concat", inner, conv(maker, inner, (7, 2)), axis=1)
    maker.node("MaxPool", outer, kernel_shape=(2, 2), strides=(2, 2))


def concat_of_rows_and_columns(maker: ModelMaker) -> None:
    name = maker.node("Concat", conv(maker, "x", (6, 6)), "x", axis=2)
    conv(maker, maker.node("Concat", name, name, axis=3), (6, 5))


def split_channels(maker: ModelMaker) -> None:
    maker.nodes.append(helper.make_node("Split", [conv(maker, "x", (6, 12)), ints(maker, 5, 7)],
                                                           ["left", "right"], axis=1))
    maker.node("Add", maker.conv("left", 5, 4, (1, 1)), maker.conv("right", 7, 4, (1, 1)))


def slices(maker: ModelMaker) -> None:
    name = maker.node("Slice", conv(maker, "x", (6, 9)), ints(maker, 2, 1, 1), ints(maker, 8, 9, 8),
                      ints(maker, 1, 2, 3), ints(maker, 1, 2, 3))
    conv(maker, name, (6, 4))


def focus(maker: ModelMaker) -> None:
    """The first layer of YOLOv5: every second pixel, four times."""
    cut = [maker.node("Slice", "x", ints(maker, row, column), ints(maker, 8, 8), ints(maker, 2, 3), ints(maker, 2, 2))
           for row in range(2) for column in range(2)]
    conv(maker, maker.node("Concat", *cut, axis=1), (24, 5))


def shuffle(maker: ModelMaker) -> None:
    """The channel shuffle of ShuffleNet."""
    name = maker.node("Reshape", conv(maker, "x", (6, 12)), ints(maker, 1, 3, 4, 9, 8))
    name = maker.node("Transpose", name, perm=(0, 2, 1, 3, 4))
    name = maker.node("Reshape", name, ints(maker, 1, 12, 9, 8))
    maker.conv(name, 12, 12, (3, 3), group=12)


def flattened_channels_last(maker: ModelMaker) -> None:
    name = maker.node("Transpose", conv(maker, "x", (6, 4)), perm=(0, 2, 3, 1))
    maker.node("Gemm", maker.node("Flatten", name), maker.normal(288, 5))


def pads(maker: ModelMaker) -> None:
    name = maker.node("Pad", "x", ints(maker, 0, 0, 1, 2, 0, 0, 2, 1), maker.constant(np.float32(0.5)))
    name = maker.node("Pad", conv(maker, name, (6, 3)), ints(maker, 0, 1, 0, 0, 0, 1, 0, 0))
    maker.node("Pad", name, ints(maker, 0, 0, 2, 2, 0, 0, 2, 2), mode="reflect")


def nearest(maker: ModelMaker) -> None:
    name = maker.node("Resize", conv(maker, "x", (6, 5)), "", maker.constant(np.array([1, 1, 2, 3], np.float32)),
                      mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    conv(maker, name, (5, 3))


def bilinear(maker: ModelMaker) -> None:
    name = maker.node("Resize", "x", "", maker.constant(np.array([1, 1, 2, 1.5], np.float32)), mode="linear")
    maker.node("Resize", name, "", "", ints(maker, 1, 6, 9, 8), mode="linear",
               coordinate_transformation_mode="align_corners")


def crop_and_resize(maker: ModelMaker) -> None:
    """From a region that reaches beyond the image above and to the right."""
    region = maker.constant(np.array([0, 0, -0.2, 0.1, 1, 1, 0.9, 1.3], np.float32))
    maker.node("Resize", conv(maker, "x", (6, 5)), region, "", ints(maker, 1, 5, 7, 11), mode="linear",
               coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=1.5)


def depth_to_space(maker: ModelMaker) -> None:
    name = maker.node("DepthToSpace", maker.conv("x", 6, 12, (3, 3)), blocksize=2, mode="CRD")
    maker.node("SpaceToDepth", conv(maker, name, (3, 2)), blocksize=2)


def transposed_convolution(maker: ModelMaker) -> None:
    name = maker.node("ConvTranspose", "x", maker.normal(6, 5, 4, 3), maker.normal(5), strides=(2, 3),
                      pads=(1, 0, 1, 1), output_padding=(1, 0))
    maker.node("ConvTranspose", name, maker.normal(5, 2, 3, 3), dilations=(2, 1), strides=(1, 2), group=1)


def transposed_depthwise(maker: ModelMaker) -> None:
    maker.node("ConvTranspose", "x", maker.normal(6, 1, 2, 2), strides=(2, 2), group=6)


def slopes(maker: ModelMaker) -> None:
    name = maker.node("PRelu", maker.conv("x", 6, 5, (3, 3)), maker.normal(5, 1, 1))
    name = maker.node("Abs", maker.node("LeakyRelu", maker.conv(name, 5, 5, (1, 1)), alpha=0.1))
    maker.node("Neg", maker.node("LeakyRelu", name, alpha=1.5))


def extremes(maker: ModelMaker) -> None:
    other = maker.conv("x", 6, 6, (1, 1))
    name = maker.node("Min", maker.node("Max", "x", other), maker.node("Sub", other, "x"), maker.normal(6, 1, 1))
    maker.node("Clip", name, maker.constant(np.float32(-0.75)), maker.constant(np.float32(0.5)))


def gates(maker: ModelMaker) -> None:
    """Squeeze and excitation with a hard sigmoid."""
    name = maker.node("HardSwish", maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1)))
    gate = maker.node("HardSigmoid", maker.conv(maker.node("GlobalAveragePool", name), 6, 6, (1, 1)))
    maker.node("Mul", name, gate)


def reductions(maker: ModelMaker) -> None:
    mean = maker.node("ReduceMean", "x", axes=(2, 3), keepdims=1)
    most = maker.node("Add", maker.node("GlobalMaxPool", "x"), maker.node("ReduceMax", "x", axes=(2, 3)))
    maker.node("Sub", maker.node("Sub", "x", mean), most)


def channel_sum(maker: ModelMaker) -> None:
    maker.node("ReduceSum", maker.node("Mul", "x", "x"), ints(maker, 1), keepdims=0)


def average_pool_corners(maker: ModelMaker) -> None:
    name = maker.node("AveragePool", "x", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    maker.node("AveragePool", name, kernel_shape=(2, 2), strides=(2, 2), auto_pad="SAME_UPPER")


def constants_per_pixel(maker: ModelMaker) -> None:
    """A mean image, a mask, a position embedding of the last axis, a bound."""
    name = maker.node("Sub", "x", maker.normal(1, 9, 8))
    name = maker.node("Add", maker.node("Mul", conv(maker, name, (6, 9)), maker.normal(1, 9, 9, 8)), maker.normal(8))
    name = maker.node("PRelu", maker.node("Max", name, maker.normal(9, 1)), maker.normal(9, 9, 8))
    maker.node("Div", name, maker.constant(maker.random.uniform(1, 2, (9, 8)).astype(np.float32)))


def matrices(maker: ModelMaker) -> None:
    """Left operands of three and four dimensions, stacks of matrices, and a bias for every element."""
    name = maker.node("MatMul", "x", maker.normal(8, 5))
    name = maker.node("MatMul", name, maker.normal(6, 5, 7))
    rows = maker.node("Reshape", name, ints(maker, 9, 42))
    rows = maker.node("Gemm", rows, maker.normal(42, 4), maker.normal(9, 4))
    maker.node("MatMul", maker.node("Reshape", rows, ints(maker, 3, 3, 4)), maker.normal(2, 1, 4, 3))


def rows_become_channels(maker: ModelMaker) -> None:
    """Channels last, four rows of 8 of which are one of 32: channels and pixels change places in four pieces."""
    rows = maker.node("Reshape", conv(maker, "x", (6, 8)), ints(maker, 1, 8, 72))
    name = maker.node("Reshape", maker.node("Transpose", rows, perm=(0, 2, 1)), ints(maker, 1, 18, 4, 8))
    maker.conv(name, 18, 5, (3, 3), pads=(1, 1, 1, 1))


NETWORKS: list[Callable[[ModelMaker], None]] = [
    constants_per_pixel, matrices, rows_become_channels,
    concat_of_convolutions, concat_as_output, concat_twice_of_one_tensor, concat_of_concats_pooled,
    concat_of_rows_and_columns, split_channels, slices, focus, shuffle, flattened_channels_last, pads, nearest,
    bilinear, crop_and_resize, depth_to_space, transposed_convolution, transposed_depthwise, slopes, extremes, gates,
    reductions, channel_sum, average_pool_corners]

ROUNDED: dict[Callable[[ModelMaker], None], float] = {gates: 50, channel_sum: 50}
"""Products of tensors are rounded to the type's point."""


@pytest.mark.wide_cases("3 lanes-*", "2 lanes, tiny-*")
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@EACH_ARCH
def test_operator(arch: Arch, network: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=1, opset=14)
    network(maker)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker), ROUNDED.get(network, DECIBELS - 5))


@pytest.mark.parametrize(("pitch", "operators"), [(16, ["View", "Conv", "View"]), (12, ["View", "View"])])
def test_a_view_across_uneven_rows_is_of_a_copy(pitch: int, operators: list[str]) -> None:
    """Three columns of rows ``pitch`` pixels apart, 4 pixels from one to the next: the rows' pixels in one row lie
    evenly if the next row begins where the last one ends."""
    state = Rewrite(Graph("", (), (), (), {}, {}, 13), 4, shapes={"x": (1, 4, 8, 8)})
    node = Node("", "Reshape", ("x",), ("y",))
    state.view(node, state.view(node, "x", (3, 3), 0, pitch, 4), (1, 9), 0, 9, 1)
    assert [made.op for made in state.nodes] == operators


@pytest.mark.parametrize("lanes", [3, 8])
def test_division_by_a_tensor(lanes: int, tmp_path: Path) -> None:
    """By the table of reciprocals; the divisor stays away from 0, and may be broadcast."""
    maker = ModelMaker((1, 5, 6, 7))
    positive = maker.node("Add", maker.node("Relu", maker.conv("x", 5, 5, (1, 1))), maker.constant(np.float32(4)))
    one = maker.node("ReduceMean", positive, axes=(2, 3))
    maker.node("Add", maker.node("Div", "x", positive), maker.node("Div", maker.constant(np.float32(3)), one))
    arch = BASE.replace(array_size=lanes, lut_count=2, lut_depth=256, simd_registers_depth=3)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker), 50)


@pytest.mark.parametrize("function", ["Sigmoid", "Tanh", "Elu", "Softplus", "Exp", "Selu"])
@pytest.mark.parametrize("lanes", [3, 8])
def test_value_table(function: str, lanes: int, tmp_path: Path) -> None:
    """Lanes beyond the last channel hold the function of 0; what reads them must not see it."""
    maker = ModelMaker((1, 5, 6, 7))
    maker.conv(maker.node(function, maker.conv("x", 5, 7, (1, 1))), 7, 4, (3, 3))
    arch = BASE.replace(array_size=lanes, lut_count=2, lut_depth=256, simd_registers_depth=3)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker), 45)


def test_batch(tmp_path: Path) -> None:
    """Images lie below each other; windows do not reach into the next one."""
    maker = ModelMaker((3, 6, 9, 8), opset=17)
    name = maker.node("MaxPool", conv(maker, "x", (6, 5)), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    maker.node("Gemm", maker.node("Flatten", maker.node("GlobalAveragePool", name)), maker.normal(5, 4))
    path = maker.save(tmp_path / "model.onnx")
    sample = maker.random.standard_normal((3, 6, 9, 8)).astype(np.float32)
    model = TModel.load(compile_model(path, BASE, tmp_path, calibration={"x": sample}).model_path)
    expected, = run_float(path, {"x": sample}).values()
    found, = run_golden(model, {"x": sample}).values()
    assert signal_to_noise(expected, found) >= DECIBELS


@pytest.mark.parametrize("batches", [1, 3])
def test_batch_on_the_command_line(batches: int, tmp_path: Path) -> None:
    """[4, ...] is one run of a network for four images, [N, 4, ...] are N; the results of several are stacked."""
    maker = ModelMaker((4, 6, 9, 8), opset=17)
    maker.node("MaxPool", conv(maker, "x", (6, 5)), kernel_shape=(2, 2), strides=(2, 2))
    path = maker.save(tmp_path / "model.onnx")
    given = maker.random.standard_normal((batches, 4, 6, 9, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=given[0] if batches == 1 else given)
    arguments = ["--calibrate", str(tmp_path / "x.npz"), "-a", "arty", "-o", str(tmp_path)]
    assert exit_code(["compile", str(path), *arguments]) == 0
    assert exit_code(["run", str(tmp_path / "model.tmodel"), "--input", str(tmp_path / "x.npz"),
                      "--output", str(tmp_path / "y.npz")]) == 0
    found, = np.load(tmp_path / "y.npz").values()
    expected = np.stack([next(iter(run_float(path, {"x": batch}).values())) for batch in given])
    if batches == 1:
        expected = expected[0]
    assert found.shape == expected.shape == ((4, 5, 4, 4) if batches == 1 else (batches, 4, 5, 4, 4))
    assert signal_to_noise(expected, found) > 60


def test_concat_moves_nothing(tmp_path: Path) -> None:
    """Convolutions write where the concatenation lies: no layer of its own, whether lanes divide or not."""
    for channels in (8, 5):
        maker = ModelMaker((1, 6, 9, 8))
        both = maker.node("Concat", conv(maker, "x", (6, channels)), conv(maker, "x", (6, channels)), axis=1)
        maker.conv(both, 2 * channels, 4, (1, 1))
        report = compile_model(maker.save(tmp_path / "model.onnx"), BASE, tmp_path)
        assert len(report.layers) == 3
        assert report.macs == 9 * 8 * (2 * 6 * channels * 9 + 2 * channels * 4)


@pytest.mark.parametrize("axes", [(1, 2), (2,), (1,)])
def test_a_mean_of_channels_last_is_that_of_channels_first(axes: tuple[int, ...], tmp_path: Path) -> None:
    """There are as many operations, since the tensor lies the same."""
    counts = []
    for last in (False, True):
        maker = ModelMaker((1, 5, 4, 6), seed=3)
        source = maker.node("Relu", maker.conv("x", 5, 12, (1, 1)))
        where = axes if last else tuple(axis + 1 for axis in axes)
        source = maker.node("Transpose", source, perm=[0, 2, 3, 1]) if last else source
        maker.node("ReduceMean", source, axes=list(where), keepdims=1)
        path, samples = maker.save(tmp_path / f"net{last}.onnx"), maker.random.standard_normal((2, 5, 4, 6))
        counts.append(after_all_steps(path, BASE, samples)[Schedule].table.count)
    assert counts[0] == counts[1]
