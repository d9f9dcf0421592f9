# SPDX-License-Identifier: Apache-2.0
"""Convert convolutions and matrix products."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import tflite

from weft.compiler.frontend.tflite.operation import Convert, Operation
from weft.compiler.frontend.tflite.schema import Damaged
from weft.compiler.frontend.tflite.values import PLANES

HEIGHT, WIDTH = 1, 2
"""The axes of an image with channels last."""

Padding = tflite.Padding
CUSTOM_PADDING = {1: Padding.SAME, 2: Padding.VALID}
"""The number in a custom operator's options -> the schema's."""


def window_pads(op: Operation, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
                image: Sequence[int], padding: int) -> list[int]:
    """Return pads (top, left, bottom, right) of a window over ``image`` (height, width).

    They are 0 for VALID, else such that there is an output for every stride; an odd pixel comes after the image."""
    if padding not in (Padding.SAME, Padding.VALID):
        raise op.refusal("padding", f"number {padding}", "SAME, VALID")
    if min(*kernel, *strides, *dilations) < 1:
        raise op.refusal("window", f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}",
                         "numbers above 0")
    pads = []
    for size, length, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
        reach = (-(-size // stride) - 1) * stride + (length - 1) * dilation + 1
        pads.append(max(reach - size, 0) if padding == Padding.SAME else 0)
    return [pads[0] // 2, pads[1] // 2, pads[0] - pads[0] // 2, pads[1] - pads[1] // 2]


def strides_of(op: Operation) -> tuple[int, int]:
    """Return the strides (height, width) in an operator's options."""
    return op.option("StrideH", 1), op.option("StrideW", 1)


def _bias(op: Operation, index: int, source: int = 0) -> list[str]:
    """Return the bias as a list, empty if there is none; integers without a scale have that of input times weights."""
    if not op.has(index):
        return []
    value = op.input(index)
    scales = [op.input(number).tensor.quantization for number in (source, 1)]
    if value.constant is not None and value.constant.dtype.kind == "i" and all(scales):
        factor = scales[0].scales * scales[1].scales  # type: ignore[union-attr]
        return [op.constant((value.constant * factor).astype(np.float32), "bias")]
    return [op.read(index)]


def _convolution(op: Operation, weights: str, kernel: Sequence[int], group: int) -> None:
    """Add the Conv of a convolution, once its weights are known."""
    _, height, width, _ = op.shape(0, 4)
    strides = strides_of(op)
    dilations = op.option("DilationHFactor", 1), op.option("DilationWFactor", 1)
    pads = window_pads(op, kernel, strides, dilations, (height, width), op.option("Padding"))
    op.write("Conv", [op.read(0, PLANES), weights, *_bias(op, 2)], PLANES, activation=True, kernel_shape=list(kernel),
             strides=strides, dilations=dilations, pads=pads, group=group)


def conv_2d(op: Operation) -> None:
    """Convert CONV_2D. The filter is [outputs, height, width, inputs of a group]."""
    _, *kernel, inputs = op.shape(1, 4)
    channels = op.shape(0, 4)[-1]
    if not inputs or channels % inputs:
        raise op.refusal("channels", f"{channels} with a filter of {inputs}", "a multiple of the filter's")
    _convolution(op, op.read(1, PLANES), kernel, channels // inputs)


def depthwise_conv_2d(op: Operation) -> None:
    """Convert DEPTHWISE_CONV_2D. The filter is [1, height, width, outputs]."""
    one, *kernel, outputs = op.shape(1, 4)
    channels = op.shape(0, 4)[-1]
    if one != 1 or not channels or outputs % channels:
        raise op.refusal("filter", list(op.shape(1)), f"[1, height, width, a multiple of {channels}]")
    weights = op.input(1).constant
    name = op.constant(weights.transpose(3, 0, 1, 2), "filter") if weights is not None else op.emit(
        "Transpose", [op.read(1)], perm=[3, 0, 1, 2])
    _convolution(op, name, kernel, channels)


def _transposed(op: Operation, source: int, bias: int, strides: tuple[int, int], padding: int) -> None:
    """Add a ConvTranspose. The filter is [outputs, height, width, inputs].

    Pads are those of the convolution that it reverses."""
    _, *kernel, inputs = op.shape(1, 4)
    _, *image, channels = op.shape(source, 4)
    if inputs != channels or len(op.made) != 4:
        raise op.refusal("channels", channels, f"{inputs}, which the filter reads")
    made = op.made[HEIGHT], op.made[WIDTH]
    first = window_pads(op, kernel, strides, (1, 1), made, padding)[:2]
    last = [(size - 1) * stride + length - before - out for size, stride, length, before, out in zip(
        image, strides, kernel, first, made, strict=True)]
    weights = op.input(1).constant
    name = op.constant(weights.transpose(3, 0, 1, 2), "filter") if weights is not None else op.emit(
        "Transpose", [op.read(1)], perm=[3, 0, 1, 2])
    op.write("ConvTranspose", [op.read(source, PLANES), name, *_bias(op, bias, source)], PLANES, activation=True,
             kernel_shape=kernel, strides=strides, pads=[*first, *(max(pad, 0) for pad in last)],
             output_padding=[max(-pad, 0) for pad in last])


def transpose_conv(op: Operation) -> None:
    """Convert TRANSPOSE_CONV. Inputs are the output's shape, filter, image, and perhaps a bias."""
    _transposed(op, 2, 3, strides_of(op), op.option("Padding"))


def convolution_2d_transpose_bias(op: Operation) -> None:
    """Convert MediaPipe's custom operator Convolution2DTransposeBias.

    Inputs are image, filter, bias; options are padding, width and height of strides."""
    options = op.operator.custom_options
    if len(options) < 12:
        raise Damaged(f"options of {op.operator.code} of {len(options)} bytes")
    padding, width, height = struct.unpack_from("<iii", options)
    _transposed(op, 0, 2, (height, width), CUSTOM_PADDING.get(padding, padding))


def fully_connected(op: Operation) -> None:
    """Convert FULLY_CONNECTED. Weights are [outputs, inputs]; all other axes of the input are rows."""
    outputs, inputs = op.shape(1, 2)
    if op.option("WeightsFormat"):
        raise op.refusal("weights", "in the shuffled format", "in the default format")
    source = op.read(0)
    if op.shape(0)[1:] != (inputs,):
        source = op.reshaped(source, (-1, inputs))
    made = op.activated(op.emit("Gemm", [source, op.read(1), *_bias(op, 2)], transB=1))
    op.give(made if len(op.made) == 2 else op.reshaped(made, op.made))


def batch_matmul(op: Operation) -> None:
    """Convert BATCH_MATMUL."""
    names = []
    for index, adjoint in enumerate((op.option("AdjX"), op.option("AdjY"))):
        rank = len(op.shape(index))
        if rank < 2:
            raise op.refusal(f"shape of input {index}", list(op.shape(index)), "2 dimensions and more")
        order = [*range(rank - 2), rank - 1, rank - 2]
        value = op.input(index).constant
        if adjoint and value is not None:
            names.append(op.constant(value.transpose(order), "transposed"))
        else:
            names.append(op.emit("Transpose", [op.read(index)], perm=order) if adjoint else op.read(index))
    op.write("MatMul", names)


CONVERTERS: dict[str, Convert] = {
    "BATCH_MATMUL": batch_matmul, "CONV_2D": conv_2d, "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected, "TRANSPOSE_CONV": transpose_conv,
    "Convolution2DTransposeBias": convolution_2d_transpose_bias}
