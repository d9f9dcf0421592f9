# SPDX-License-Identifier: Apache-2.0
"""Lower ConvTranspose whose windows do not overlap: the pixels of a window become channels.

One 1x1 convolution makes all of them. Otherwise each position in the window would be a convolution and a store of its
own, with few channels in each vector. Operators that work pixel by pixel take them as they lie, another such
ConvTranspose too, and the network's output says where its pixels are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.indices.index import FILL
from weft.compiler.lowering.functions import FUNCTION, TABLES
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.lowering.windows import four, pair

ALONE = frozenset({"Abs", "BatchNormalization", "Clip", FUNCTION, "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
                   "Neg", "Relu", "Swish"})
"""Operators that treat a tensor's elements where they lie, besides the functions by lookup table."""
WITH_CONSTANT = frozenset({"Add", "Div", "Mul", "PRelu", "Sub"})
"""Operators that treat a tensor's elements where they lie, with a constant for each channel."""


class Blocks(NamedTuple):
    """An image [channels, height, width] that lies as blocks of rows x columns pixels.

    ``channels`` [channels, rows, columns]: the memory channel that has the pixels of each position in a block; its
    image has ``size`` (height, width)."""

    channels: np.ndarray
    size: tuple[int, int]


def conv_transpose_in_blocks(state: Rewrite, node: Node, weights: np.ndarray, bias: np.ndarray) -> bool:
    """Lower a ConvTranspose without groups in blocks if possible; tell whether it was done.

    ``weights`` is [out, in, height, width]. It is possible if nobody needs the result's pixels side by side."""
    if not (_side_by_side(state, node) and _nobody_needs_pixels(state, node.output)):
        return False
    source = _blocks_of(state, node.input(0))
    if source is None:
        return False
    tensor, (outputs, _, *kernel) = state.held[node.input(0)].tensor, weights.shape
    _, rows, columns = source.channels.shape
    own = state.weights(node, (rows, columns, *kernel, outputs, state.shapes[tensor][1]), weights.size)
    for row in range(rows):
        for column in range(columns):
            own[row, column][..., source.channels[:, row, column]] = weights.transpose(2, 3, 0, 1)
    count = own.size // own.shape[-1]
    made = state.conv(node, tensor, own.reshape(count, -1, 1, 1), np.tile(bias, count // outputs), source.size)
    pixels = source.size[0] * source.size[1]
    first = pixels * np.arange(count).reshape(rows, columns, *kernel, outputs)
    lying = first[..., None, None] + np.arange(pixels).reshape(source.size)
    # [row, column, row in the window, column in the window, channel, height, width]
    index = lying.transpose(4, 5, 0, 2, 6, 1, 3).reshape(state.graph.shapes[node.output])
    state.hold(node.output, made, index)
    return True


def _side_by_side(state: Rewrite, node: Node) -> bool:
    """Tell whether each pixel of the result comes from one pixel of the input, of a single image."""
    kernel = state.constant(node.input(1)).shape[2:]
    size = state.graph.shapes[node.input(0)]
    return (len(size) == 4 and size[0] == 1 and pair(node, "strides") == kernel and pair(node, "dilations") == (1, 1)
            and not any(four(node, "pads")) and max(kernel) > 1
            and state.graph.shapes[node.output][2:] == (size[2] * kernel[0], size[3] * kernel[1]))


def _nobody_needs_pixels(state: Rewrite, name: str) -> bool:
    """Tell whether all later operators, up to the outputs, treat a tensor's elements where they lie."""
    return all(_treats_in_place(state, reader) and _nobody_needs_pixels(state, reader.output)
               for reader in state.graph.consumers().get(name, []))


def _treats_in_place(state: Rewrite, node: Node) -> bool:
    """Tell whether a node can work on elements that lie in blocks."""
    if node.op == "ConvTranspose":
        return _side_by_side(state, node)
    if node.op in WITH_CONSTANT:
        channels = state.graph.shapes[node.output][1]
        return any(map(state.is_constant, node.inputs)) and all(
            state.constant(name).size in (1, channels) for name in node.inputs if state.is_constant(name))
    computed = [name for name in node.inputs if name and not state.is_constant(name)]
    return len(computed) == 1 and (node.op in ALONE or node.op in TABLES)


def _blocks_of(state: Rewrite, name: str) -> Blocks | None:
    """Return how a tensor lies in blocks; None if it lies in another way."""
    _, _, height, width = state.shapes[state.held[name].tensor]
    index = state.index(name)[0]
    channels, rows, columns = index.shape[0], index.shape[1] // height, index.shape[2] // width
    if index.shape[1:] != (rows * height, columns * width) or (index == FILL).any():
        return None
    split = index.reshape(channels, height, rows, width, columns).transpose(0, 2, 4, 1, 3)
    first = split[..., 0, 0]
    pixels = height * width
    if (first % pixels).any() or (split != first[..., None, None] + np.arange(pixels).reshape(height, width)).any():
        return None
    return Blocks(first // pixels, (height, width))
