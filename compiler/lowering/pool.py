# SPDX-License-Identifier: Apache-2.0
"""Lower pools and reductions: windows and weighted sums over pixels.

Average pools, Resize and sums are linear and treat rows and columns separately. So each is one matrix over rows and one
over columns; outputs with equal weights become one depthwise convolution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.indices.boxes import Walk, boxes
from weft.compiler.indices.index import default_index, default_place
from weft.compiler.lowering.gather import exact, lying
from weft.compiler.lowering.linear import windowed
from weft.compiler.lowering.pieces import PIECES
from weft.compiler.lowering.rewrite import PartPlace, Rewrite
from weft.compiler.lowering.windows import image_size, no_window_empty, per_image, two_axes, window_attributes


# -- weighted sums over rows and columns -----------------------------------------------------------------------------
class LikeOutputs(NamedTuple):
    """Outputs of one axis whose weights are equal; ``walk``: their places.

    Output n of them is the sum of ``weights`` x the inputs from ``first`` + n * ``stride`` on."""

    walk: Walk
    weights: tuple[float, ...]
    first: int
    stride: int


def lines(matrix: np.ndarray) -> list[LikeOutputs]:
    """Return a matrix [outputs, inputs] as few groups of outputs with equal weights, at equal distances."""
    classes: dict[tuple[float, ...], list[tuple[int, int]]] = {}
    for output, row in enumerate(matrix):
        used = np.flatnonzero(row)
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        classes.setdefault(tuple(np.round(row[first:last], 9).tolist()), []).append((output, first))
    found = []
    for weights, entries in classes.items():
        member, source = np.zeros((1, len(matrix)), bool), np.zeros((1, len(matrix)), np.int64)
        for output, first in entries:
            member[0, output], source[0, output] = True, first
        for _, walk in boxes(member, [source]):
            stride = int(source[0, walk.first + walk.stride]) - int(source[0, walk.first]) if walk.length > 1 else 1
            found.append(LikeOutputs(walk, weights, int(source[0, walk.first]), stride))
    return found


def weighted(state: Rewrite, node: Node, tensor: str, rows: np.ndarray, columns: np.ndarray) -> str:
    """Return the tensor ``rows`` x image x transposed ``columns``.

    ``rows`` is [output rows, input rows], ``columns`` [output columns, input columns]. The image is each channel of
    ``tensor``. Raise CompileError if there are too many kinds of weights."""
    _, channels, *_ = state.shapes[tensor]
    size = (len(rows), len(columns))
    parts: list[tuple[str, PartPlace]] = []
    pairs = list(itertools.product(lines(rows), lines(columns)))
    if len(pairs) > PIECES:
        raise state.refusal(node, "output pixels", f"{len(pairs)} kinds of weights", f"at most {PIECES}")
    for row, column in pairs:
        kernel = np.outer(row.weights, column.weights)
        weights = np.broadcast_to(kernel, (channels, 1, *kernel.shape))
        made = windowed(state, node, tensor, weights, np.zeros(1), (row.first, column.first),
                        (row.stride, column.stride), (row.walk.length, column.walk.length), channels, "weighted")
        parts.append((made, PartPlace(0, row.walk.first * size[1] + column.walk.first, row.walk.stride * size[1],
                                      column.walk.stride)))
    return parts[0][0] if len(parts) == 1 else state.assemble(node, parts, (1, channels, *size))


SAVED_AND_LOADED = 6
"""The cost, in reads, of a vector that one layer saves and the next one loads."""


# -- pools ---------------------------------------------------------------------------------------------------------
def max_pool(state: Rewrite, node: Node) -> None:
    """Lower MaxPool with pads, dilations and ceil_mode."""
    kernel = two_axes(state, node, node.attributes["kernel_shape"])
    _, *size = image_size(state.graph, node.input(0))
    _, *outputs = image_size(state.graph, node.output)
    attributes = window_attributes(node, kernel, size)
    no_window_empty(node, {**attributes, "kernel_shape": kernel}, size, outputs)
    _maximum(state, node, kernel, outputs, **attributes, ceil_mode=node.attributes.get("ceil_mode", 0))


def _maximum(state: Rewrite, node: Node, kernel: Sequence[int], outputs: Sequence[int], **attributes: Any) -> None:
    """Lower a max pool over ``kernel`` to ``outputs`` pixels, over rows and columns separately if that is cheaper."""
    plain: dict[str, Any] = {"ceil_mode": 0, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    full = {**plain, **attributes, "kernel_shape": tuple(kernel)}
    source, channels = lying(state, node, node.input(0))
    _, *size = image_size(state.graph, node.input(0))
    # Whole images go row by row first, so that few vectors are in the accumulators at a time.
    whole = list(kernel) == size and tuple(outputs) == (1, 1) and min(kernel) > 1 and not any(full["pads"])
    apart = whole or _fewer_reads_apart(kernel, size, outputs)

    def pool(tensor: str) -> str:
        count = state.shapes[tensor][1]
        if apart:
            line = {**full, **_of_axis(full, 1)}
            tensor = state.emit(node, "MaxPool", [tensor], line, (1, count, size[0], outputs[1]), "rows")
            column = {**full, **_of_axis(full, 0)}
            return state.emit(node, "MaxPool", [tensor], column, (1, count, *outputs))
        return state.emit(node, "MaxPool", [tensor], full, (1, count, *outputs))

    state.hold_channels(node.output, per_image(state, node, source, pool), channels)


def _of_axis(window: dict[str, Any], axis: int) -> dict[str, Any]:
    """Return a window along one axis, of a single pixel along the other."""
    def single(pair: Sequence[int], nothing: int) -> tuple[int, ...]:
        return tuple(value if place % 2 == axis else nothing for place, value in enumerate(pair))

    return {"kernel_shape": single(window["kernel_shape"], 1), "strides": single(window["strides"], 1),
            "dilations": single(window["dilations"], 1), "pads": single(window["pads"], 0)}


def _fewer_reads_apart(kernel: Sequence[int], size: Sequence[int], outputs: Sequence[int]) -> bool:
    """Tell whether pooling rows and then columns reads less than whole windows.

    The maxima of rows are saved and loaded again, which counts. The maximum of maxima is the same."""
    rows, pixels = size[0] * outputs[1], math.prod(outputs)
    return (kernel[1] + SAVED_AND_LOADED) * rows + kernel[0] * pixels < math.prod(kernel) * pixels


def global_max_pool(state: Rewrite, node: Node) -> None:
    """Lower GlobalMaxPool."""
    _, *size = image_size(state.graph, node.input(0))
    two_axes(state, node, state.graph.shapes[node.input(0)][2:])
    _maximum(state, node, size, (1, 1))


def average_pool(state: Rewrite, node: Node) -> None:
    """Lower AveragePool with pads, dilations, ceil_mode and count_include_pad."""
    kernel = two_axes(state, node, node.attributes["kernel_shape"])
    batch, *size = image_size(state.graph, node.input(0))
    _, *outputs = image_size(state.graph, node.output)
    attributes = window_attributes(node, kernel, size)
    counted = bool(node.attributes.get("count_include_pad", 0))
    source = exact(state, node, node.input(0))
    channels = state.shapes[source][1]
    if _all_alike(attributes, kernel, size, outputs, counted):
        weights = np.full((channels, 1, *kernel), 1 / math.prod(kernel))
        made = per_image(state, node, source, lambda tensor: state.conv(
            node, tensor, weights, np.zeros(1), outputs, group=channels, **attributes))
    else:
        for axis in range(2):
            state.need_matrix(node, batch * outputs[axis], batch * size[axis])
        rows, columns = (_averages(axis, kernel, size, outputs, counted, attributes) for axis in range(2))
        made = weighted(state, node, source, np.kron(np.eye(batch), rows), columns)
    state.hold(node.output, made)


def _all_alike(attributes: dict, kernel: Sequence[int], size: Sequence[int], outputs: Sequence[int],
               counted: bool) -> bool:
    """Tell whether every window of an average pool has the same divisor."""
    pads = attributes["pads"]
    ends = [(outputs[axis] - 1) * attributes["strides"][axis] - pads[axis]
            + (kernel[axis] - 1) * attributes["dilations"][axis] + 1 for axis in range(2)]
    return (counted or not any(pads)) and all(ends[axis] <= size[axis] + pads[axis + 2] for axis in range(2))


def _averages(axis: int, kernel: Sequence[int], size: Sequence[int], outputs: Sequence[int], counted: bool,
              attributes: dict) -> np.ndarray:
    """Return [outputs, inputs] of an average pool along one axis, each row divided by the taps that count."""
    before, after = attributes["pads"][axis], attributes["pads"][axis + 2]
    matrix = np.zeros((outputs[axis], size[axis]))
    for output in range(outputs[axis]):
        first = output * attributes["strides"][axis] - before
        taps = first + attributes["dilations"][axis] * np.arange(kernel[axis])
        inside = taps[(taps >= 0) & (taps < size[axis])]
        counting = int((taps < size[axis] + after).sum()) if counted else len(inside)
        matrix[output, inside] = 1 / max(counting, 1)
    return matrix


# -- reductions ----------------------------------------------------------------------------------------------------
def reduced_axes(state: Rewrite, node: Node) -> list[int]:
    """Return the axes of a reduction, counted from 0."""
    rank = len(state.graph.shapes[node.input(0)])
    axes = node.attributes.get("axes")
    if node.input(1):
        axes = state.constant(node.input(1)).tolist()
    if not axes:
        return [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({axis % rank for axis in axes})


def _lying(state: Rewrite, name: str) -> tuple[str, list[int]]:
    """Return a tensor with its axes in the order in which they lie, and which axis each of them is.

    TensorFlow's last axis may lie as channels."""
    shape, index = state.graph.shapes[name], state.index(name)
    order = [0, len(shape) - 1, *range(1, len(shape) - 1)]
    turned = tuple(shape[axis] for axis in order) if len(shape) > 2 else ()
    if not turned or not np.array_equal(index.transpose(order), default_index(turned)):
        return name, list(range(len(shape)))
    if default_place(turned) != state.shapes[state.held[name].tensor]:
        return name, list(range(len(shape)))
    state.declare(f"{name}/turned", turned)
    state.hold(f"{name}/turned", state.held[name].tensor)
    return f"{name}/turned", order


def reduce_sum(state: Rewrite, node: Node) -> None:
    """Lower ReduceSum over any axes."""
    _reduce(state, node, False)


def reduce_mean(state: Rewrite, node: Node) -> None:
    """Lower ReduceMean over any axes, and GlobalAveragePool over all but the first two."""
    _reduce(state, node, True)


def _reduce(state: Rewrite, node: Node, divide: bool) -> None:
    """Lower a sum over axes, divided by the number of elements if ``divide``."""
    given = state.graph.shapes[node.input(0)]
    axes = list(range(2, len(given))) if node.op == "GlobalAveragePool" else reduced_axes(state, node)
    name, order = _lying(state, node.input(0))
    axes, shape = [number for number, axis in enumerate(order) if axis in axes], state.graph.shapes[name]
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    tensor = exact(state, node, name)
    lying = (*(1,) * (2 - len(shape)), *shape) if len(shape) < 2 else shape
    _, channels, height, width = default_place(shape)
    middle = [1] if len(shape) < 2 else [lying[0], *lying[2:-1]]
    reduced = [1 if number in axes else size
               for number, size in zip([0, *range(2, len(shape) - 1)], middle, strict=False)]
    last = len(shape) - 1
    state.need_matrix(node, math.prod(reduced), math.prod(middle))
    state.need_matrix(node, 1 if last in axes and last != 1 else width, width)
    rows = _sums(middle, reduced if len(shape) > 1 else [1])
    columns = _sums([width], [1 if last in axes and last != 1 else width])
    divisor = math.prod(shape[axis] for axis in axes) if divide else 1
    over_channels = 1 in axes and len(shape) > 1
    scale = divisor if not over_channels else divisor / channels if divide else 1
    made = weighted(state, node, tensor, rows / scale, columns)
    if over_channels:
        _, _, *size = state.shapes[made]
        made = state.conv(node, made, np.full((1, channels, 1, 1), 1 / channels if divide else 1.0), np.zeros(1), size)
    index, wanted = default_index(kept).transpose(np.argsort(order)), state.graph.shapes[node.output]
    state.hold(node.output, made, None if wanted == kept and name == node.input(0) else index.reshape(wanted))


def _sums(sizes: Sequence[int], kept: Sequence[int]) -> np.ndarray:
    """Return the 0/1 matrix that sums a flattened array of ``sizes`` over the axes whose size in ``kept`` is 1."""
    target = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), sizes).ravel()
    return (np.arange(math.prod(kept))[:, None] == target).astype(np.float64)


def reduce_max(state: Rewrite, node: Node) -> None:
    """Lower ReduceMax over any axes: they become the width of an image, and that one window."""
    shape = state.graph.shapes[node.input(0)]
    axes = reduced_axes(state, node)
    if not axes:
        held = state.held[node.input(0)]
        state.hold(node.output, held.tensor, held.where, held.fill)
        return
    others = [axis for axis in range(len(shape)) if axis not in axes]
    index = state.index(node.input(0))
    if 1 not in axes and shape[0] == 1 and 0 not in axes and len(shape) == 4 and axes == [2, 3]:
        flat, kernel = shape, (shape[2], shape[3])
    else:
        count = math.prod(shape[axis] for axis in axes)
        flat = (1, math.prod(shape[axis] for axis in others), 1, count)
        index, kernel = index.transpose(*others, *axes).reshape(flat), (1, count)
    name = f"{node.output}/flat"
    state.declare(name, flat)
    state.declare(f"{name}/max", (*flat[:2], 1, 1))
    held = state.held[node.input(0)]
    state.hold(name, held.tensor, index, held.fill)
    pooled = node.replace(inputs=(name,), outputs=(f"{name}/max",))
    _maximum(state, pooled, kernel, (1, 1))
    tensor, index = state.held[f"{name}/max"].tensor, state.index(f"{name}/max")  # perhaps with channels between
    state.hold(node.output, tensor, index.reshape(state.graph.shapes[node.output]))
