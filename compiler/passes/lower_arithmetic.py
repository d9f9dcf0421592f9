"""Arithmetic of tensors and constants, and activations of straight pieces: all of it convolutions, adds and ReLUs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.compiler.frontend.graph import Node, Shape
from weft.compiler.passes.index import FILL, default_place, in_memory_order
from weft.compiler.passes.rewrite import Rewrite
from weft.compiler.passes.take import broadcast, exact, image


def _split(state: Rewrite, node: Node) -> tuple[list[str], list[str]]:
    """Inputs computed at run time, and constant ones."""
    names = [name for name in node.inputs if name]
    tensors = [name for name in names if not state.is_constant(name)]
    return tensors, [name for name in names if state.is_constant(name)]


def per_channel(state: Rewrite, node: Node, name: str, shape: Shape) -> np.ndarray:
    """A constant that is broadcast to ``shape`` as one number a channel."""
    value = in_memory_order(np.broadcast_to(state.constant(name).astype(np.float64), shape))
    if not (value == value[:, :1, :1]).all():
        raise state.refusal(node, f"shape of constant {name!r}", list(state.constant(name).shape),
                            f"one number, or one a channel ([1, {default_place(shape)[1]}, 1, 1])")
    return np.asarray(value[:, 0, 0])


def _operands(state: Rewrite, node: Node) -> tuple[list[str], list[np.ndarray], np.ndarray | None]:
    """Tensors of like order, constants as one number a channel of them, and where the result's elements lie. A lone
    tensor stays as it lies, so that images with channels last are scaled where they are."""
    names, constants = _split(state, node)
    shape = state.graph.shapes[node.output]
    if len(names) == 1 and constants and state.graph.shapes[names[0]] == shape:
        held = state.held[names[0]]
        numbers = [_per_channel_there(state, names[0], np.broadcast_to(state.constant(name), shape))
                   for name in constants]
        found = [entry for entry in numbers if entry is not None]
        if len(found) == len(numbers):
            return [held.tensor], found, held.where
    return _tensors(state, node, names), [per_channel(state, node, name, shape) for name in constants], None


def _per_channel_there(state: Rewrite, name: str, values: np.ndarray) -> np.ndarray | None:
    """``values`` for a tensor's elements as one number for each channel of where they lie, None where that is not so.
    Channels that nobody uses get the number of another."""
    index = state.index(name).ravel()
    _, channels, height, width = state.shapes[state.held[name].tensor]
    channel = index // (height * width)
    numbers = np.full(channels, np.nan)
    numbers[channel] = values.ravel()
    if (index == FILL).any() or not np.array_equal(numbers[channel], values.ravel()):
        return None
    return np.where(np.isnan(numbers), numbers[channel[0]], numbers)


def _tensors(state: Rewrite, node: Node, names: Sequence[str]) -> list[str]:
    """Tensors broadcast to the output's shape. Those that lie alike stay as they are."""
    shape = state.graph.shapes[node.output]
    return [broadcast(state, node, name, shape) for name in names]


# -- sums ----------------------------------------------------------------------------------------------------------
def add(state: Rewrite, node: Node) -> None:
    """Add, Sum: any number of tensors and constants."""
    _weighted(state, node, 1.0)


def mean(state: Rewrite, node: Node) -> None:
    """Mean of any number of tensors."""
    _weighted(state, node, 1 / len(node.inputs))


def _weighted(state: Rewrite, node: Node, weight: float) -> None:
    (total, *rest), constants, index = _operands(state, node)
    for number, tensor in enumerate(rest):
        total = state.add(node, total, tensor, "sum" if number < len(rest) - 1 or constants or weight != 1 else "")
    if constants or weight != 1:
        total = state.scale(node, total, weight, np.sum(constants, axis=0) * weight)
    state.hold(node.output, total, index)


def sub(state: Rewrite, node: Node) -> None:
    """Sub."""
    tensors, constants, index = _operands(state, node)
    if not constants:
        made = state.add(node, state.scale(node, tensors[1], -1.0, part="negative"), tensors[0])
    else:
        first = state.is_constant(node.input(0))
        made = state.scale(node, tensors[0], -1.0 if first else 1.0, constants[0] if first else -constants[0])
    state.hold(node.output, made, index)


def mul(state: Rewrite, node: Node) -> None:
    """Mul: by a constant, or of two tensors (rounded to the data type's point on the way)."""
    tensors, constants, index = _operands(state, node)
    if constants:
        made = state.scale(node, tensors[0], constants[0])
    else:
        made = state.emit(node, "Mul", tensors, {}, state.shapes[tensors[0]])
    state.hold(node.output, made, index)


def div(state: Rewrite, node: Node) -> None:
    """Div by a constant."""
    if not state.is_constant(node.input(1)):
        raise state.refusal(node, f"input 1 ({node.input(1)!r})", "a tensor computed at run time", "a constant")
    if not state.constant(node.input(1)).all():
        raise state.refusal(node, f"constant {node.input(1)!r}", 0, "no zeros")
    tensors, constants, index = _operands(state, node)
    state.hold(node.output, state.scale(node, tensors[0], 1 / constants[0]), index)


# -- extremes ------------------------------------------------------------------------------------------------------
def maximum(state: Rewrite, node: Node) -> None:
    """Max: max(a, b) = a + relu(b - a)."""
    _extreme(state, node, 1.0)


def minimum(state: Rewrite, node: Node) -> None:
    """Min: min(a, b) = a - relu(a - b)."""
    _extreme(state, node, -1.0)


def _extreme(state: Rewrite, node: Node, sign: float) -> None:
    names, constants = _split(state, node)
    shape = state.graph.shapes[node.output]
    total, *rest = _tensors(state, node, names)
    for tensor in rest:
        other = state.scale(node, tensor, sign, part="side")
        minus = state.add(node, state.scale(node, total, -sign, part="difference"), other, "difference")
        beyond = state.relu(node, minus, "beyond")
        total = state.add(node, state.scale(node, beyond, sign, part="extreme"), total, "extreme")
    for name in constants:
        total = _bounded(state, node, total, per_channel(state, node, name, shape), sign)
    state.hold(node.output, total)


def _bounded(state: Rewrite, node: Node, tensor: str, bound: np.ndarray | float, sign: float) -> str:
    """max(x, bound) with sign 1, min(x, bound) with sign -1: bound + sign * relu(sign * (x - bound))."""
    difference = state.scale(node, tensor, sign, -sign * np.asarray(bound), "difference")
    return state.scale(node, state.relu(node, difference, "beyond"), sign, bound, "bounded")


# -- activations of straight pieces --------------------------------------------------------------------------------
def _source(state: Rewrite, node: Node) -> tuple[str, np.ndarray | None]:
    """Input 0 for an operator that treats all elements alike: whatever order they are in, they keep it."""
    held = state.held[node.input(0)]
    if held.where is not None and (held.where == -1).any():
        return exact(state, node, node.input(0)), None
    return held.tensor, held.where


def relu(state: Rewrite, node: Node) -> None:
    """Relu."""
    source, index = _source(state, node)
    state.hold(node.output, state.relu(node, source), index)


def leaky_relu(state: Rewrite, node: Node) -> None:
    """LeakyRelu: max(x, slope * x), for slopes that are not between 0 and 1 as PRelu."""
    source, index = _source(state, node)
    slope = float(node.attributes.get("alpha", 0.01))
    if 0 < slope < 1:
        made = state.emit(node, "LeakyRelu", [source], {"alpha": slope}, state.shapes[source])
    else:
        made = _two_slopes(state, node, source, slope)
    state.hold(node.output, made, index)


def _two_slopes(state: Rewrite, node: Node, source: str, slope: np.ndarray | float) -> str:
    """x where it is positive, else slope * x: x + (1 - slope) * relu(-x)."""
    negative = state.relu(node, state.scale(node, source, -1.0, part="negative"), "below")
    return state.add(node, state.scale(node, negative, 1 - np.asarray(slope), part="below"), source)


def prelu(state: Rewrite, node: Node) -> None:
    """PRelu with one slope a channel."""
    slope = per_channel(state, node, node.input(1), state.graph.shapes[node.output])
    source = exact(state, node, node.input(0))
    state.hold(node.output, _two_slopes(state, node, source, slope))


def absolute(state: Rewrite, node: Node) -> None:
    """Abs: x + 2 * relu(-x)."""
    source, index = _source(state, node)
    state.hold(node.output, _two_slopes(state, node, source, -1.0), index)


def negate(state: Rewrite, node: Node) -> None:
    """Neg."""
    source, index = _source(state, node)
    state.hold(node.output, state.scale(node, source, -1.0), index)


def clip(state: Rewrite, node: Node) -> None:
    """Clip: bounds as attributes or inputs, each may be absent."""
    low, high = (float(state.constant(node.input(index)).reshape(-1)[0]) if node.input(index)
                 else node.attributes.get(key, default)
                 for index, key, default in ((1, "min", -math.inf), (2, "max", math.inf)))
    if low > high:
        raise state.refusal(node, "min and max", [low, high], "min not above max")
    source, index = _source(state, node)
    state.hold(node.output, _clipped(state, node, source, low, high), index)


def _clipped(state: Rewrite, node: Node, source: str, low: float, high: float) -> str:
    unbounded = float(np.finfo(np.float32).max)
    if low <= -unbounded:
        return source if high >= unbounded else _bounded(state, node, source, high, -1.0)
    if low == high:
        return state.scale(node, source, 0.0, low)
    shifted = state.scale(node, source, 1.0, -low, "shifted") if low else source
    bounded = state.relu(node, shifted, "bounded" if low else "") if high >= unbounded else state.limit(
        node, shifted, high - low, "bounded" if low else "")
    return state.scale(node, bounded, 1.0, low) if low else bounded


def hard_sigmoid(state: Rewrite, node: Node) -> None:
    """HardSigmoid: alpha * x + beta limited to 0..1."""
    source, index = _source(state, node)
    made = state.scale(node, source, node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5), "line")
    state.hold(node.output, state.limit(node, made, 1.0), index)


def hard_swish(state: Rewrite, node: Node) -> None:
    """HardSwish: x times (x / 6 + 0.5 limited to 0..1)."""
    source, index = _source(state, node)
    gate = state.limit(node, state.scale(node, source, 1 / 6, 0.5, "line"), 1.0, "gate")
    state.hold(node.output, state.emit(node, "Mul", [source, gate], {}, state.shapes[source]), index)


ZERO_AT_ZERO = frozenset({"Tanh", "Elu", "Selu", "Gelu", "Mish", "Sqrt"})
"""Functions that leave unused lanes at zero."""


def lookup(state: Rewrite, node: Node) -> None:
    """Sigmoid, Tanh, Elu, Selu, Softplus, Mish, Gelu, Exp, Sqrt, Reciprocal: a value table. Where the function of 0 is
    not 0, unused lanes become channels (copies of the first), so that what reads the result knows of them."""
    source, channels = image(state, node, node.input(0))
    _, count, *size = state.shapes[source]
    full = -(-count // state.lanes) * state.lanes
    if channels is not None or (full != count and node.op not in ZERO_AT_ZERO):
        source = exact(state, node, node.input(0))
        count = state.shapes[source][1]
        full = count if node.op in ZERO_AT_ZERO else -(-count // state.lanes) * state.lanes
    if full != count:
        eye = np.zeros((full, count, 1, 1))
        eye[range(full), [*range(count), *[0] * (full - count)]] = 1
        source = state.conv(node, source, eye, np.zeros(1), size, "lanes")
    made = state.emit(node, node.op, [source], node.attributes, state.shapes[source])
    state.hold(node.output, made, None if full == count else state.index_of_shape(node.output))
