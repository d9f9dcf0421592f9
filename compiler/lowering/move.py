# SPDX-License-Identifier: Apache-2.0
"""Lower operators that move elements, to index arrays: these cost nothing at run time until an order is needed."""

from __future__ import annotations

import math

import numpy as np

from weft.compiler.errors import reason
from weft.compiler.frontend.graph import Node
from weft.compiler.indices.boxes import Walk, boxes
from weft.compiler.indices.index import (
    FILL,
    SMALL_ENOUGH,
    default_index,
    default_place,
    in_memory_order,
    run_on_indices,
)
from weft.compiler.lowering.arithmetic import constant_image
from weft.compiler.lowering.axes import Axes, common_axes, default_axes, turn
from weft.compiler.lowering.gather import exact, lying
from weft.compiler.lowering.pieces import PIECES, choose
from weft.compiler.lowering.rewrite import PartPlace, Rewrite

TAIL_VECTORS = 8
"""The cost of moving a pixel of a partly used tile: vectors through the array, and to and from DRAM0."""


def dropout(state: Rewrite, node: Node) -> None:
    """Lower Dropout, in inference mode, to its input."""
    if node.input(2) and state.constant(node.input(2)).any():
        raise state.refusal(node, f"input 2 ({node.input(2)!r}, training_mode)", True, "False")
    alias(state, node)


def alias(state: Rewrite, node: Node) -> None:
    """Lower Identity to its input."""
    held = state.held[node.input(0)]
    state.hold(node.output, held.tensor, held.where, held.fill)


def move(state: Rewrite, node: Node) -> None:
    """Lower an operator that only moves elements, by running it on indices.

    These are Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Slice, Split, Gather, Expand, Tile, DepthToSpace and
    SpaceToDepth."""
    _moved(state, node, {}, 0.0)


def lie(state: Rewrite, name: str, source: str, index: np.ndarray) -> None:
    """Declare the tensor ``name``, whose elements are those of ``source`` that lie at ``index``."""
    held = state.held[source]
    state.declare(name, index.shape)
    same = state.graph.shapes[source] == index.shape and np.array_equal(index, state.index(source))
    state.hold(name, held.tensor, held.where if same else index, held.fill)


def pad(state: Rewrite, node: Node) -> None:
    """Lower Pad in the modes constant, reflect, edge and wrap."""
    fill, constants, attributes = 0.0, {}, dict(node.attributes)
    if attributes.get("mode", "constant") == "constant":
        if state.graph.opset >= 11:
            fill = float(state.constant(node.input(2)).reshape(-1)[0]) if node.input(2) else 0.0
            constants[2] = np.array(FILL, np.float32)
            node = node.replace(inputs=(*(node.inputs + ("", ""))[:2], "fill", *node.inputs[3:]))
        else:
            fill = attributes.get("value", 0.0)
            attributes["value"] = float(FILL)
    held = state.held[node.input(0)]
    if fill != held.fill and held.where is not None and (held.where == FILL).any():
        state.hold(node.input(0), exact(state, node, node.input(0)))
    _moved(state, node.replace(attributes=attributes), constants, fill)


def _moved(state: Rewrite, node: Node, constants: dict[int, np.ndarray], fill: float) -> None:
    """Run a node on the indices of its input and note where its outputs lie; elements without a source get ``fill``."""
    index = state.index(node.input(0))
    if index.size > SMALL_ENOUGH:
        raise state.refusal(node, "elements of input 0", index.size, f"at most {SMALL_ENOUGH}")
    known = {number: state.constant(name) for number, name in enumerate(node.inputs)
             if name and number and number not in constants}
    held = state.held[node.input(0)]
    try:
        results = run_on_indices(node, state.graph.opset, index, {**known, **constants}, node.attributes)
    except Exception as error:
        raise state.refusal(node, "attributes and constants", reason(error), "what ONNX allows") from None
    for name, result in zip(node.outputs, results, strict=True):
        plain = result.size == np.prod(state.shapes[held.tensor]) and np.array_equal(
            in_memory_order(result).ravel(), np.arange(result.size))
        same = plain and in_memory_order(result).shape == state.shapes[held.tensor][1:]
        state.hold(name, held.tensor, None if same else result, fill if constants or fill else held.fill)


# -- concatenation -------------------------------------------------------------------------------------------------
def concat(state: Rewrite, node: Node) -> None:
    """Lower Concat on any axis: its inputs are written where the result lies.

    Channels start at a lane 0 each, so that the result may have unused ones in between."""
    shape = state.graph.shapes[node.output]
    axis = node.attributes["axis"] % len(shape)
    names = [name for name in node.inputs if name]
    axes = common_axes(state, [name for name in names if not state.is_constant(name)], shape)
    if len(names) > 1 and axes != default_axes(len(shape)):
        _concat_turned(state, node, names, axis, axes)
        return
    names = [_computed(state, node, name, names) for name in names]
    if len(names) == 1:
        alias(state, node)
    elif axis == 1:
        _concat_channels(state, node, names)
    else:
        _concat_pixels(state, node, names, axis)


def _computed(state: Rewrite, node: Node, name: str, names: list[str]) -> str:
    """Return ``name``, or a tensor of the machine that holds it if it is a constant."""
    if not state.is_constant(name):
        return name
    value, made = state.constant(name), f"{node.output}/{name}"
    beside = next(entry for entry in names if not state.is_constant(entry))
    state.declare(made, value.shape)
    state.hold(made, constant_image(state, node, in_memory_order(value.astype(np.float64)), state.held[beside].tensor))
    return made


def _concat_turned(state: Rewrite, node: Node, names: list[str], axis: int, axes: Axes) -> None:
    """Lower a Concat of tensors that lie with ``axes`` as channels and pixels.

    The axis that grows becomes the outermost of its kind."""
    kind = int(axis not in axes.channels)
    axes = Axes(*((axis, *(entry for entry in own if entry != axis)) if axis in own else own for own in axes))
    turned = [turn(state, name, f"{node.output}/turned{number}", axes, state.shape(name))
              for number, name in enumerate(names)]
    made, shape = f"{node.output}/turned", state.graph.shapes[node.output]
    state.declare(made, axes.turned(shape))
    concat(state, node.replace(inputs=tuple(turned), outputs=(made,), attributes={"axis": 1 + kind}))
    state.hold(node.output, state.held[made].tensor, state.index(made).ravel()[axes.places(shape)])


def _concat_channels(state: Rewrite, node: Node, names: list[str]) -> None:
    """Lower a Concat along channels."""
    parts: list[tuple[str, PartPlace]] = []
    channels: list[np.ndarray] = []
    used = 0
    for name in names:
        tensor, places = lying(state, node, name)
        parts.append((tensor, state.whole(tensor)._replace(channel=used)))
        channels.append(used + places)
        count = state.shapes[tensor][1]
        end, used = used + count, used + -(-count // state.lanes) * state.lanes
    size = state.shapes[parts[0][0]][2:]
    chosen = np.concatenate(channels)
    joins = _gains_by_joining(state, node, chosen // state.lanes)
    made = state.assemble(node, parts, (1, end, *size), "apart" if joins else "")
    if joins:
        made, chosen = _tails_joined(state, node, made, chosen)
    state.hold_channels(node.output, made, chosen)


def _gains_by_joining(state: Rewrite, node: Node, tiles: np.ndarray) -> bool:
    """Tell whether joining the partly used tiles of the result pays.

    It pays if the convolutions that read the result save more vectors than joining costs. ``tiles`` [channels]: the
    tile of each channel."""
    used = np.bincount(tiles)
    tails = used[(used > 0) & (used < state.lanes)]
    saved = len(tails) - -(-int(tails.sum()) // state.lanes)
    readers = [reader for reader in state.graph.consumers().get(node.output, [])
               if reader.op == "Conv" and reader.attributes.get("group", 1) == 1]
    return saved * sum(_passes(state, reader) for reader in readers) > TAIL_VECTORS * len(tails)


def _passes(state: Rewrite, conv: Node) -> float:
    """Return how often a convolution sends a pixel of an input channel tile through the array, on average."""
    weights = state.constant(conv.input(1))
    made, read = (math.prod(state.graph.shapes[name][2:]) for name in (conv.output, conv.input(0)))
    return -(-len(weights) // state.lanes) * math.prod(weights.shape[2:]) * made / read


def _tails_joined(state: Rewrite, node: Node, apart: str, channels: np.ndarray) -> tuple[str, np.ndarray]:
    """Return a tensor with the channels of partly used tiles in full tiles at its end, and [channels].

    ``apart`` is the tensor before, whose ``channels`` are used. The second result has the new place of each of these
    channels; the partly used tiles are no longer read."""
    _, end, *size = state.shapes[apart]
    tiles = channels // state.lanes
    tail = np.bincount(tiles)[tiles] < state.lanes
    joined = choose(state, node, apart, channels[tail], part="tails")
    start = -(-end // state.lanes) * state.lanes
    made = state.assemble(node, [(apart, state.whole(apart)), (joined, state.whole(joined)._replace(channel=start))],
                          (1, start + int(tail.sum()), *size))
    places = channels.copy()
    places[tail] = start + np.arange(tail.sum())
    return made, places


def _concat_pixels(state: Rewrite, node: Node, names: list[str], axis: int) -> None:
    """Lower a Concat along an axis whose elements lie as pixels."""
    _, _, height, width = default_place(state.graph.shapes[node.output])
    parts: list[tuple[str, PartPlace]] = []
    begin = 0
    for name in names:
        tensor = exact(state, node, name)
        length = state.graph.shapes[name][axis]
        inside = np.take(default_index(state.graph.shapes[node.output]), range(begin, begin + length), axis)
        target = in_memory_order(inside)[0] % (height * width)
        begin += length
        for rows, columns in boxes(np.ones(target.shape, bool), [target]):
            parts.append(_box(state, node, tensor, target, rows, columns, (height, width)))
            if len(parts) > PIECES:
                raise state.refusal(node, "concatenation", f"more than {PIECES} pieces", f"at most {PIECES}")
    channels = state.shapes[parts[0][0]][1]
    state.hold(node.output, state.assemble(node, parts, (1, channels, height, width)))


def _box(state: Rewrite, node: Node, tensor: str, target: np.ndarray, rows: Walk, columns: Walk,
         size: tuple[int, int]) -> tuple[str, PartPlace]:
    """Return a View of a box of the pixels of ``tensor``, and its place in the result."""
    own = state.shapes[tensor][3]
    view = state.view(node, tensor, (rows.length, columns.length), rows.first * own + columns.first, rows.stride * own,
                      columns.stride)
    corner = int(target[rows.first, columns.first])
    down = int(target[rows.first + rows.stride, columns.first]) - corner if rows.length > 1 else size[1]
    right = int(target[rows.first, columns.first + columns.stride]) - corner if columns.length > 1 else 1
    return view, PartPlace(0, corner, down, right)
