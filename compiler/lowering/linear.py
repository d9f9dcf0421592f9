# SPDX-License-Identifier: Apache-2.0
"""Lower convolutions and batch normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.indices.index import default_place
from weft.compiler.lowering.arithmetic import per_channel_there
from weft.compiler.lowering.blocks import conv_transpose_in_blocks
from weft.compiler.lowering.gather import exact, image
from weft.compiler.lowering.rewrite import PartPlace, Rewrite
from weft.compiler.lowering.windows import (
    image_size,
    images,
    pair,
    per_image,
    transposed_pads,
    two_axes,
    window_attributes,
)


def conv(state: Rewrite, node: Node) -> None:
    """Lower Conv with any kernel, stride, dilation, group and padding."""
    weights = state.constant(node.input(1))
    kernel = two_axes(state, node, weights.shape[2:])
    if tuple(node.attributes.get("kernel_shape", weights.shape[2:])) != weights.shape[2:]:
        raise state.refusal(node, "attribute kernel_shape", node.attributes["kernel_shape"],
                            f"the shape of the weights, {weights.shape[2:]}")
    weights = weights.reshape(*weights.shape[:2], *kernel)
    bias = state.constant(node.input(2)) if node.input(2) else np.zeros(len(weights))
    _, height, width = image_size(state.graph, node.input(0))
    _, *outputs = image_size(state.graph, node.output)
    group = node.attributes.get("group", 1)
    _need_group(state, node, group, weights.shape[1] * group, len(weights))
    source, channels = image(state, node, node.input(0))
    if channels is not None:
        spread_out = len(weights) * state.shapes[source][1] * kernel[0] * kernel[1]
        state.count_weights(node, spread_out - weights.size)
        weights, group = spread(weights, group, channels, state.shapes[source][1]), 1
    places = state.aligned.get(node.output, np.arange(len(weights)))
    weights, bias = (_placed(values, places) for values in (weights, bias))
    attributes = {**window_attributes(node, kernel, (height, width)), "group": group}

    def run(tensor: str) -> str:
        return state.conv(node, tensor, weights, bias, outputs, **attributes)

    state.hold_channels(node.output, per_image(state, node, source, run), places)


def _placed(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return ``values`` of channels at their ``places``, with zeros between them."""
    made = np.zeros((places[-1] + 1, *values.shape[1:]), values.dtype)
    made[places] = values
    return made


def _need_group(state: Rewrite, node: Node, group: int, inputs: int, outputs: int) -> None:
    """Raise CompileError if a node's ``group`` does not fit its channels.

    ``inputs``: channels that the weights take; ``outputs``: channels that the groups divide."""
    channels = state.graph.shapes[node.input(0)][1]
    if group < 1 or inputs != channels or outputs % group:
        shape = list(state.constant(node.input(1)).shape)
        raise state.refusal(node, "attribute group", group, f"groups of {channels} channels, with weights of {shape}")


def spread(weights: np.ndarray, group: int, channels: np.ndarray, count: int) -> np.ndarray:
    """Return weights without groups over ``count`` channels, of which the convolution's own are at ``channels``."""
    outputs, per_group = weights.shape[:2]
    made = np.zeros((outputs, count, *weights.shape[2:]), weights.dtype)
    for number in range(group):
        rows = slice(number * outputs // group, (number + 1) * outputs // group)
        for place, channel in enumerate(channels[number * per_group:(number + 1) * per_group]):
            made[rows, channel] += weights[rows, place]
    return made


# -- transposed convolution ----------------------------------------------------------------------------------------
def conv_transpose(state: Rewrite, node: Node) -> None:
    """Lower ConvTranspose.

    Output pixels of one phase (position modulo the stride) are a dense convolution, unless all phases can be made
    together."""
    weights = state.constant(node.input(1))
    kernel = two_axes(state, node, weights.shape[2:])
    group = node.attributes.get("group", 1)
    inputs, per_group = weights.shape[:2]
    _need_group(state, node, group, inputs, inputs)
    split = weights.reshape(group, inputs // group, per_group, *kernel)
    weights = split.transpose(0, 2, 1, 3, 4).reshape(group * per_group, inputs // group, *kernel)
    bias = state.constant(node.input(2)) if node.input(2) else np.zeros(len(weights))
    state.need_weights(node, (group - 1) * weights.size)
    if conv_transpose_in_blocks(state, node, spread(weights, group, np.arange(inputs), inputs), bias):
        return
    begin = transposed_pads(node, kernel, image_size(state.graph, node.input(0)), image_size(state.graph, node.output))
    source = exact(state, node, node.input(0))
    batch, *outputs = image_size(state.graph, node.output)
    parts: list[tuple[str, PartPlace]] = []
    for number, plane in enumerate(images(state, node, source)):
        before = number * math.prod(outputs)
        parts += [(made, place._replace(offset=before + place.offset))
                  for made, place in _phases(state, node, plane, weights, bias, group, begin)]
    made = parts[0][0] if len(parts) == 1 else state.assemble(
        node, parts, (1, len(weights), batch * outputs[0], outputs[1]), "phases")
    state.hold(node.output, made)


def _phases(state: Rewrite, node: Node, tensor: str, weights: np.ndarray, bias: np.ndarray, group: int,
            begin: tuple[int, int]) -> list[tuple[str, PartPlace]]:
    """Return the parts of the result of a ConvTranspose of one image: one convolution for each phase."""
    strides, dilations = pair(node, "strides"), pair(node, "dilations")
    outputs = image_size(state.graph, node.output)[1:]
    parts: list[tuple[str, PartPlace]] = []
    for row in range(min(strides[0], outputs[0])):
        for column in range(min(strides[1], outputs[1])):
            taps = [_taps(weights.shape[2 + axis], strides[axis], dilations[axis], begin[axis] + phase)
                    for axis, phase in enumerate((row, column))]
            size = tuple(-(-(outputs[axis] - phase) // strides[axis]) for axis, phase in enumerate((row, column)))
            made = _phase(state, node, tensor, weights, bias, group, taps, (size[0], size[1]))
            parts.append((made, PartPlace(0, row * outputs[1] + column, strides[0] * outputs[1], strides[1])))
    return parts


def _taps(kernel: int, stride: int, dilation: int, position: int) -> list[tuple[int, int]]:
    """Return the taps of a phase along one axis, as (tap of the kernel, input pixel relative to the output's number).

    ``position`` is the first output of the phase, in pixels of the full image."""
    return [(tap, (position - tap * dilation) // stride) for tap in range(kernel)
            if (position - tap * dilation) % stride == 0]


def _phase(state: Rewrite, node: Node, tensor: str, weights: np.ndarray, bias: np.ndarray, group: int,
           taps: Sequence[Sequence[tuple[int, int]]], size: tuple[int, int]) -> str:
    """Return the result of one phase: a dense convolution that makes ``size`` pixels.

    If it starts or ends inside the image, the rest of the image is left out. ``taps``: for each axis (tap of the
    kernel, input pixel)."""
    low = [min((at for _, at in line), default=0) for line in taps]
    extent = [max((at for _, at in line), default=0) - low[axis] + 1 for axis, line in enumerate(taps)]
    own = state.weights(node, (*weights.shape[:2], *extent), weights.size)
    for tap_y, at_y in taps[0]:
        for tap_x, at_x in taps[1]:
            own[:, :, at_y - low[0], at_x - low[1]] += weights[:, :, tap_y, tap_x]
    return windowed(state, node, tensor, own, bias, low, (1, 1), size, group)


def windowed(state: Rewrite, node: Node, tensor: str, weights: np.ndarray, bias: np.ndarray, first: Sequence[int],
             strides: Sequence[int], size: tuple[int, int], group: int, part: str = "phase") -> str:
    """Return a convolution that makes ``size`` pixels, from its first window at pixel ``first`` on.

    ``weights`` is [out, in / group, height, width]. ``first`` may be outside the image. All pairs are (rows,
    columns)."""
    width = state.shapes[tensor][3]
    begin, count, pads = [0, 0], [0, 0], [0, 0, 0, 0]
    for axis in range(2):
        length = state.shapes[tensor][2 + axis]
        end = first[axis] + (size[axis] - 1) * strides[axis] + weights.shape[2 + axis]
        begin[axis] = min(max(first[axis], 0), length - 1)
        last = max(min(end, length), begin[axis] + 1)
        count[axis] = last - begin[axis]
        pads[axis], pads[axis + 2] = begin[axis] - first[axis], end - last
    if min(pads) < 0:  # the windows see nothing of the image
        zero = state.weights(node, (len(weights), weights.shape[1], 1, 1))
        one = state.view(node, tensor, (1, 1), 0, width, 1)
        return state.conv(node, one, zero, bias, size, part, group=group, pads=(size[0] - 1, size[1] - 1, 0, 0))
    inner = state.view(node, tensor, count, begin[0] * width + begin[1], width, 1)
    return state.conv(node, inner, weights, bias, size, part, group=group, strides=tuple(strides), pads=tuple(pads))


# -- normalisation ---------------------------------------------------------------------------------------------------
def batch_normalization(state: Rewrite, node: Node) -> None:
    """Lower BatchNormalization, in inference mode, to one factor and one offset for each channel.

    It computes in single precision and in this order, as tf2onnx folds it. So a TensorFlow graph and its ONNX twin
    become one program."""
    gamma, beta, mean, variance = (state.constant(name).astype(np.float32) for name in node.inputs[1:5])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # weights are checked for being finite
        factor = gamma / np.sqrt(variance + np.float32(node.attributes.get("epsilon", 1e-5)))
        shift = beta - mean * factor
    shape = state.graph.shapes[node.input(0)]
    if default_place(shape)[1] != len(gamma):
        raise state.refusal(node, f"shape of input 0 ({node.input(0)!r})", list(state.shape(node.input(0))),
                            f"{len(gamma)} channels on axis 1")
    scale_there, offset_there = (
        per_channel_there(state, node.input(0), np.broadcast_to(entry.reshape(-1, *(1,) * (len(shape) - 2)), shape))
        for entry in (factor, shift))
    if scale_there is None or offset_there is None:
        state.hold(node.output, state.scale(node, exact(state, node, node.input(0)), factor, shift))
    else:
        held = state.held[node.input(0)]
        state.hold(node.output, state.scale(node, held.tensor, scale_there, offset_there), held.where)
