# SPDX-License-Identifier: Apache-2.0
"""Operators one by one against onnxruntime: sizes that do not divide, strides, pads, dilations, small memories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.quantize.ranges import Calibration
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_model

DECIBELS = 60
ARCHS = {
    "2 lanes, tiny": BASE.replace(array_size=2, local_depth=128, accumulator_depth=32, simd_loop_depth=0),
    "3 lanes": BASE.replace(array_size=3, local_depth=384, accumulator_depth=48),
    "8 lanes": BASE,
    "8 lanes, no strides": BASE.replace(stride0_depth=1, stride1_depth=1),
    "12 lanes": BASE.replace(array_size=12, local_depth=1500, accumulator_depth=100),
}
EACH_ARCH = pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)


def samples(maker: ModelMaker, count: int = 2) -> np.ndarray:
    return maker.random.standard_normal((count, *maker.shape[1:])).astype(np.float32)


def random_conv(seed: int) -> ModelMaker:
    """A convolution of random shape, some with a ReLU; every window fits the padded image."""
    maker = ModelMaker((1, 1, 1, 1), seed)
    random = maker.random
    kernel, strides, dilations = (tuple(random.integers(1, top, 2).tolist()) for top in (5, 4, 3))
    pads = tuple(random.integers(0, 3, 4).tolist())
    size = [int(random.integers(1, 12)) for _ in range(2)]
    for axis in range(2):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        size[axis] = max(size[axis], reach - pads[axis] - pads[axis + 2], 1)
    channels_in, channels_out = random.integers(1, 14, 2).tolist()
    maker.shape = (1, channels_in, *size)
    name = maker.conv("x", channels_in, channels_out, kernel, strides=strides, dilations=dilations, pads=pads,
                      bias=bool(random.integers(2)))
    if random.integers(2):
        maker.node("Relu", name)
    return maker


@pytest.mark.parametrize("seed", range(24))
@EACH_ARCH
def test_random_convolution(arch: Arch, seed: int, tmp_path: Path) -> None:
    maker = random_conv(seed)
    check_model(maker.save(tmp_path / "conv.onnx"), arch, samples(maker), DECIBELS)


def grouped(maker: ModelMaker) -> None:
    maker.conv("x", 6, 9, (3, 3), group=3, pads=(1, 1, 1, 1))


def depthwise(maker: ModelMaker) -> None:
    name = maker.conv("x", 6, 6, (3, 3), group=6, pads=(1, 1, 1, 1), strides=(2, 2))
    maker.node("Relu", maker.conv(name, 6, 17, (1, 1)))


def same_padding(maker: ModelMaker) -> None:
    name = maker.conv("x", 6, 5, (4, 2), auto_pad="SAME_UPPER", strides=(2, 3))
    maker.conv(name, 5, 5, (3, 4), auto_pad="SAME_LOWER", strides=(1, 2))


def valid_padding(maker: ModelMaker) -> None:
    maker.conv("x", 6, 5, (2, 3), auto_pad="VALID")


def no_tap_covers_everything(maker: ModelMaker) -> None:
    maker.conv("x", 6, 4, (2, 2), pads=(1, 1, 1, 1), dilations=(8, 8))


def max_pool(maker: ModelMaker) -> None:
    maker.node("MaxPool", maker.conv("x", 6, 10, (3, 3)), kernel_shape=(2, 2), strides=(2, 2))


def max_pool_overlapping_padded(maker: ModelMaker) -> None:
    name = maker.node("Relu", maker.conv("x", 6, 10, (3, 3), pads=(1, 1, 1, 1)))
    maker.node("MaxPool", name, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))


def max_pool_alone(maker: ModelMaker) -> None:
    maker.node("MaxPool", "x", kernel_shape=(3, 2), strides=(3, 1), pads=(0, 1, 1, 0))


def max_pool_ceil(maker: ModelMaker) -> None:
    maker.node("MaxPool", "x", kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1)


def max_pool_dilated(maker: ModelMaker) -> None:
    maker.node("MaxPool", "x", kernel_shape=(2, 3), dilations=(2, 2))


def max_pool_of_one_window(maker: ModelMaker) -> None:
    """One output pixel, and a stride: the window is the image, or less (seed 155 of the machine ``odd`` of random
    networks)."""
    whole = maker.node("MaxPool", "x", kernel_shape=(9, 8), strides=(2, 3))
    part = maker.node("MaxPool", "x", kernel_shape=(5, 7), strides=(5, 4))
    maker.node("Add", maker.node("Neg", whole), part)


def max_pool_then_relu(maker: ModelMaker) -> None:
    name = maker.node("MaxPool", maker.conv("x", 6, 3, (2, 2)), kernel_shape=(2, 2), strides=(2, 2))
    maker.node("Relu", name)


def average_pool(maker: ModelMaker) -> None:
    maker.node("AveragePool", "x", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=1)


def global_average_pool_and_gemm(maker: ModelMaker) -> None:
    name = maker.node("Flatten", maker.node("GlobalAveragePool", maker.conv("x", 6, 19, (3, 3))))
    maker.node("Gemm", name, maker.normal(4, 19), maker.normal(4), transB=1, alpha=0.5, beta=2.0)


def flattened_gemm(maker: ModelMaker) -> None:
    shape = maker.constant(np.array([0, -1], np.int64))
    name = maker.node("Reshape", maker.conv("x", 6, 5, (3, 3), strides=(2, 2)), shape)
    name = maker.node("Relu", maker.node("MatMul", name, maker.normal(5 * 4 * 3, 7)))
    maker.node("Add", name, maker.normal(7))


def flattened_output(maker: ModelMaker) -> None:
    maker.node("Flatten", maker.node("Identity", maker.conv("x", 6, 5, (3, 3))))


def residual(maker: ModelMaker) -> None:
    first = maker.node("Relu", maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1)))
    second = maker.conv(first, 6, 6, (3, 3), pads=(1, 1, 1, 1))
    third = maker.node("Relu", maker.node("Add", first, second))
    maker.node("Add", maker.node("Add", maker.conv(third, 6, 6, (1, 1)), "x"), first)


def residual_then_pool(maker: ModelMaker) -> None:
    name = maker.node("Add", "x", maker.conv("x", 6, 6, (1, 1)))
    maker.node("MaxPool", name, kernel_shape=(3, 3), strides=(2, 2))


def add_alone(maker: ModelMaker) -> None:
    relu = maker.node("Relu", "x")
    maker.node("Add", maker.node("MaxPool", relu, kernel_shape=(1, 1)), relu)


def add_of_itself(maker: ModelMaker) -> None:
    maker.node("Add", "x", "x")


def constants_around_a_convolution(maker: ModelMaker) -> None:
    name = maker.node("Mul", "x", maker.normal(6, 1, 1))
    name = maker.conv(name, 6, 5, (3, 3))
    name = maker.node("Sub", maker.node("Add", name, maker.normal(1, 5, 1, 1)), maker.normal(1))
    maker.node("Div", name, maker.constant(np.float32(3)))


def batch_normalization(maker: ModelMaker) -> None:
    def normalised(name: str, channels: int) -> str:
        variance = maker.constant(maker.random.uniform(0.5, 2, channels).astype(np.float32))
        return maker.node("BatchNormalization", name, *(maker.normal(channels) for _ in range(3)), variance)

    folded = normalised(maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1), bias=False), 6)
    maker.node("Relu", normalised(maker.node("Add", folded, "x"), 6))


def clip(maker: ModelMaker) -> None:
    name = maker.node("Clip", maker.conv("x", 6, 9, (3, 3)), maker.constant(np.float32(0)),
                      maker.constant(np.float32(1.5)))
    maker.node("MaxPool", name, kernel_shape=(2, 2))


def clip_with_the_minimum_above_the_maximum(maker: ModelMaker) -> None:
    name = maker.node("Clip", maker.conv("x", 6, 9, (3, 3)), maker.constant(np.float32(2)),
                      maker.constant(np.float32(1)))
    maker.node("Add", maker.conv("x", 6, 9, (3, 3)), name)


def leaky_relu(maker: ModelMaker) -> None:
    name = maker.node("LeakyRelu", maker.conv("x", 6, 9, (3, 3)), alpha=0.125)
    maker.node("MaxPool", maker.node("LeakyRelu", maker.conv(name, 9, 3, (1, 1)), alpha=0.25), kernel_shape=(2, 2))


def relu_behind_leaky_relu(maker: ModelMaker) -> None:
    maker.node("Relu", maker.node("LeakyRelu", maker.node("Relu", "x"), alpha=0.5))


def clip_without_maximum(maker: ModelMaker) -> None:
    maker.node("Clip", maker.conv("x", 6, 9, (1, 1)), maker.constant(np.float32(0)))


def dead_branch(maker: ModelMaker) -> None:
    maker.conv("x", 6, 200, (5, 5))
    maker.conv("x", 6, 3, (1, 1))


def all_zero_weights(maker: ModelMaker) -> None:
    weights = np.zeros((9, 6, 3, 3), np.float32)
    weights[0, 0] = 1
    maker.node("Conv", "x", maker.constant(weights), maker.normal(9), pads=(1, 1, 1, 1))


NETWORKS: list[Callable[[ModelMaker], None]] = [
    grouped, depthwise, same_padding, valid_padding, no_tap_covers_everything, max_pool, max_pool_overlapping_padded,
    max_pool_alone, max_pool_ceil, max_pool_dilated, max_pool_of_one_window,
    max_pool_then_relu, average_pool, global_average_pool_and_gemm,
    flattened_gemm, flattened_output, residual, residual_then_pool, add_alone, add_of_itself,
    constants_around_a_convolution, batch_normalization, clip,
    clip_with_the_minimum_above_the_maximum, leaky_relu, relu_behind_leaky_relu, clip_without_maximum,
    dead_branch, all_zero_weights]


@pytest.mark.wide_cases("3 lanes-*")
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@EACH_ARCH
def test_operator(arch: Arch, network: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=1)
    network(maker)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker), DECIBELS)


@pytest.mark.parametrize("limits", ["low", "high", "low and high"])
def test_clip_to_computed_limits(limits: str, tmp_path: Path) -> None:
    """Decibels are limited to 80 below their largest so."""
    maker = ModelMaker((1, 6, 3, 4))
    name = maker.conv("x", 6, 7, (1, 1))
    half = maker.constant(np.float32(0.5))
    low, high = (maker.node("Mul", maker.node(op, name, keepdims=0), half) for op in ("ReduceMin", "ReduceMax"))
    maker.node("Clip", name, *{"low": [low], "high": ["", high], "low and high": [low, high]}[limits])
    check_model(maker.save(tmp_path / "model.onnx"), BASE, samples(maker), DECIBELS)


def test_several_outputs(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    first = maker.conv("x", 6, 7, (3, 3))
    second = maker.node("Relu", first)
    check_model(maker.save(tmp_path / "model.onnx", first, second), BASE, samples(maker), DECIBELS)


def test_logits_and_softmax_are_both_outputs(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 3, 3))
    logits = maker.node("Flatten", maker.conv("x", 6, 7, (3, 3)))
    final = maker.node("Softmax", logits, axis=1)
    path = maker.save(tmp_path / "model.onnx", final, logits)
    check_model(path, BASE, samples(maker), 50, host_fallback=True)


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17])
def test_opsets(opset: int, tmp_path: Path) -> None:
    """What moved between attributes and inputs, and what changed its name, is read alike."""
    maker = ModelMaker((1, 6, 4, 4), opset=opset)
    name = maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1))
    bounds = {} if opset >= 11 else {"min": 0.0, "max": 2.0}
    inputs = [maker.constant(np.float32(value)) for value in (0, 2)] if opset >= 11 else []
    name = maker.node("GlobalAveragePool", maker.node("Clip", name, *inputs, **bounds))
    if opset >= 13:
        name = maker.node("Squeeze", name, maker.constant(np.array([2, 3], np.int64)))
    else:
        name = maker.node("Squeeze", name, axes=[2, 3])
    name = maker.node("Gemm", maker.node("Dropout", name), maker.normal(6, 4), maker.normal(4))
    maker.node("Softmax", name, axis=1)
    check_model(maker.save(tmp_path / "model.onnx"), BASE, samples(maker), DECIBELS, host_fallback=True)


def test_every_step_machine_computes_at_its_own_point(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    name = maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1))
    maker.node("MaxPool", maker.node("Add", name, "x"), kernel_shape=(2, 2))
    arch = BASE.replace(mac_rounding="every_step")
    model = check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker), 40)
    assert {port.point for port in (*model.inputs, *model.outputs)} == {arch.number.point}


@pytest.mark.parametrize("data_type", ["FP8BP4", "FP18BP10", "FP32BP16"])
def test_other_data_types(data_type: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    maker.conv(maker.node("Relu", maker.conv("x", 6, 6, (3, 3))), 6, 6, (1, 1))
    decibels = {"FP8BP4": 20, "FP18BP10": 70, "FP32BP16": 110}[data_type]
    check_model(maker.save(tmp_path / "model.onnx"), BASE.replace(data_type=data_type), samples(maker), decibels)


def test_weights_of_several_convolutions(tmp_path: Path) -> None:
    """What one convolution adds up says nothing of the others' sums, be it the last one."""
    maker = ModelMaker((1, 16, 6, 6))
    weights = maker.constant(np.abs(maker.random.standard_normal((8, 16, 3, 3))).astype(np.float32))
    first = np.abs(maker.random.standard_normal((16, 16, 1, 1))).astype(np.float32)
    made = []
    for factor in map(np.float32, (1e-3, 8, 2e-3)):
        hidden = maker.node("Relu", maker.node("Conv", "x", maker.constant(first * factor), kernel_shape=(1, 1)))
        made.append(maker.node("Conv", hidden, weights, kernel_shape=(3, 3)))
    path, given = maker.save(tmp_path / "model.onnx", *made), np.abs(samples(maker))
    sums = sorted(after_all_steps(path, BASE, given)[Calibration].sums.values())
    assert len(sums) == len(maker.nodes) - len(made) and sums[-1] > 100 * sums[1]
    check_model(path, BASE, given, DECIBELS)
