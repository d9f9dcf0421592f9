# SPDX-License-Identifier: Apache-2.0
"""Lower arithmetic of tensors and constants to convolutions, adds, products and ReLUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from weft.compiler.errors import refuse_node
from weft.compiler.frontend.graph import Node, Shape
from weft.compiler.indices.index import FILL, in_memory_order
from weft.compiler.lowering.axes import Axes, common_axes, default_axes, turn, turned_values
from weft.compiler.lowering.functions import RECIPROCAL
from weft.compiler.lowering.gather import broadcast, lie_as_they_are
from weft.compiler.lowering.lookup import lookup, several_steps
from weft.compiler.lowering.rewrite import Rewrite

CONSTANT_PIXELS = 4096
"""The most pixels of a constant that differs from pixel to pixel.

Each pixel costs an instruction or two for every channel tile."""


def _per_channel(values: np.ndarray) -> np.ndarray | None:
    """Return ``values`` [channels, height, width] as one number for each channel, or None if they differ within one."""
    return np.asarray(values[:, 0, 0]) if (values == values[:, :1, :1]).all() else None


def constant_image(state: Rewrite, node: Node, values: np.ndarray, source: str) -> str:
    """Add nodes that compute a tensor of the constant ``values`` [channels, height, width]; return its name.

    A first convolution makes one pixel, a 1, from the first pixel of ``source``; any tensor will do, as its weights are
    0. A second one spreads that pixel by a kernel as large as the image, of which every output pixel sees one weight.
    Raise CompileError for more than CONSTANT_PIXELS pixels."""
    _, height, width = values.shape
    if height * width > CONSTANT_PIXELS:
        raise state.refusal(node, "shape of a constant", [1, *values.shape],
                            f"one number, one a channel, or at most {CONSTANT_PIXELS} pixels")
    state.count_weights(node, values.size)
    pixel = state.view(node, source, (1, 1), 0, 1, 1)
    nothing = np.zeros((1, state.shapes[pixel][1], 1, 1))
    one = state.conv(node, pixel, nothing, np.ones(1), (1, 1), "one")
    pads = (height - 1, width - 1, height - 1, width - 1)
    return state.conv(node, one, values[:, None, ::-1, ::-1], np.zeros(1), (height, width), "constant", pads=pads)


@dataclass(frozen=True)
class Operands:
    """An elementwise operator's inputs, in order.

    Each is the name of a tensor, all with the same memory layout, or an array with one number for each channel.
    ``index`` is the index array of the result, None for the default place."""

    values: list[str | np.ndarray]
    index: np.ndarray | None

    @property
    def tensors(self) -> list[str]:
        """The names of the tensors among the inputs."""
        return [value for value in self.values if isinstance(value, str)]

    @property
    def constants(self) -> list[np.ndarray]:
        """The arrays among the inputs."""
        return [value for value in self.values if not isinstance(value, str)]


def _spread(node: Node, name: str, value: np.ndarray, shape: Shape) -> np.ndarray:
    """Return a constant broadcast to a shape. Raise CompileError if it cannot be."""
    try:
        return np.broadcast_to(value, shape)
    except ValueError:
        raise refuse_node(node, f"input {name!r}", f"shape {value.shape}", f"a shape that broadcasts to {shape}",
                          "give it the shape that is meant") from None


def operands_of(state: Rewrite, node: Node, known: Mapping[str, np.ndarray] | None = None) -> Operands:
    """Return a node's inputs in one memory layout; ``known`` replaces the values of constants.

    A tensor alone with constants stays where it lies, so that images with channels last are scaled in place. So do
    tensors that all lie alike; others are brought to their default places. A constant that differs from pixel to pixel
    becomes a tensor."""
    names = [name for name in node.inputs if name]
    shape = state.graph.shapes[node.output]
    full = {name: _spread(node, name, np.asarray((known or {}).get(name, state.constant(name)), np.float64), shape)
            for name in names if state.is_constant(name)}
    tensors = [name for name in names if name not in full]
    if len(tensors) == 1 and full and state.graph.shapes[tensors[0]] == shape:
        there = {name: per_channel_there(state, tensors[0], value) for name, value in full.items()}
        numbers_there = {name: value for name, value in there.items() if value is not None}
        if len(numbers_there) == len(full):
            held = state.held[tensors[0]]
            return Operands([numbers_there.get(name, held.tensor) for name in names], held.where)
    if not full and _lie_alike(state, tensors, shape):
        return Operands([state.held[name].tensor for name in tensors], state.held[tensors[0]].where)
    axes = common_axes(state, tensors, shape, [state.constant(name) for name in names if name in full])
    if axes != default_axes(len(shape)):
        return _turned_operands(state, node, known or {}, axes)
    lying = {name: broadcast(state, node, name, shape) for name in tensors}
    made: dict[str, str | np.ndarray] = {**lying}
    for name, value in full.items():
        numbers = _per_channel(in_memory_order(value))
        made[name] = numbers if numbers is not None else constant_image(
            state, node, in_memory_order(value), lying[tensors[0]])
    return Operands([made[name] for name in names], None)


def _turned_operands(state: Rewrite, node: Node, known: Mapping[str, np.ndarray], axes: Axes) -> Operands:
    """Return the operands of a node, as :func:`operands_of` does, after a turn that makes ``axes`` channels and pixels.

    The index of the result is that of the shape before the turn."""
    shape = state.graph.shapes[node.output]
    names = [turn(state, name, f"{node.output}/turned{number}", axes, shape)
             for number, name in enumerate(filter(None, node.inputs))]
    values = {made: turned_values(known[name], axes, shape)
              for made, name in zip(names, filter(None, node.inputs), strict=True) if name in known}
    made = f"{node.output}/turned"
    state.declare(made, axes.turned(shape))
    operands = operands_of(state, node.replace(inputs=tuple(names), outputs=(made,)), values)
    index = axes.places(shape) if operands.index is None else operands.index.ravel()[axes.places(shape)]
    return Operands(operands.values, index)


def _lie_alike(state: Rewrite, names: list[str], shape: Shape) -> bool:
    """Tell whether all tensors ``names`` have this ``shape``, and hold each element in the same place of memory.

    No element may be a constant that memory does not hold."""
    first = state.index(names[0])
    size = state.shapes[state.held[names[0]].tensor]
    return bool((first != FILL).all()) and all(
        state.graph.shapes[name] == shape and state.shapes[state.held[name].tensor] == size
        and np.array_equal(state.index(name), first) for name in names)


def per_channel_there(state: Rewrite, name: str, values: np.ndarray) -> np.ndarray | None:
    """Return ``values`` as one number for each channel of the memory tensor that holds ``name``, or None.

    ``values`` has the shape of ``name``. Channels that nobody uses get the number of another one."""
    held = state.held[name]
    if held.where is None and values.shape == state.shapes[held.tensor]:  # each element is where an image has it
        first = np.array(values[0, :, 0, 0], np.float64)
        return first if (values[0] == first[:, None, None]).all() else None
    index = state.index(name).ravel()
    _, channels, height, width = state.shapes[held.tensor]
    channel = index // (height * width)
    numbers = np.full(channels, np.nan)
    numbers[channel] = values.ravel()
    if (index == FILL).any() or not np.array_equal(numbers[channel], values.ravel()):
        return None
    return np.where(np.isnan(numbers), numbers[channel[0]], numbers)


# -- sums ----------------------------------------------------------------------------------------------------------
def add(state: Rewrite, node: Node) -> None:
    """Lower Add and Sum, of any number of tensors and constants."""
    _weighted(state, node, 1.0)


def mean(state: Rewrite, node: Node) -> None:
    """Lower Mean, of any number of tensors."""
    _weighted(state, node, 1 / len(node.inputs))


def _weighted(state: Rewrite, node: Node, weight: float) -> None:
    """Lower ``weight`` times the sum of all inputs."""
    operands = operands_of(state, node)
    total, *rest = operands.tensors
    scaled = bool(operands.constants) or weight != 1
    for number, tensor in enumerate(rest):
        total = state.add(node, total, tensor, "sum" if number < len(rest) - 1 or scaled else "")
    if scaled:
        total = state.scale(node, total, weight, np.sum(operands.constants, axis=0) * weight)
    state.hold(node.output, total, operands.index)


def sub(state: Rewrite, node: Node) -> None:
    """Lower Sub."""
    operands = operands_of(state, node)
    left, right = operands.values
    if not isinstance(left, str):
        made = state.scale(node, str(right), -1.0, left)
    elif not isinstance(right, str):
        made = state.scale(node, left, 1.0, -right)
    else:
        made = state.add(node, state.scale(node, right, -1.0, part="negative"), left)
    state.hold(node.output, made, operands.index)


def mul(state: Rewrite, node: Node) -> None:
    """Lower Mul: by a constant, or of two tensors (rounded to the data type's point on the way)."""
    _product(state, node, operands_of(state, node))


def _product(state: Rewrite, node: Node, operands: Operands) -> None:
    """Lower a product with a constant, or of two tensors."""
    tensors, constants = operands.tensors, operands.constants
    if constants:
        made = state.scale(node, tensors[0], constants[0])
    else:
        made = state.emit(node, "Mul", tensors, {}, state.shapes[tensors[0]])
    state.hold(node.output, made, operands.index)


def div(state: Rewrite, node: Node) -> None:
    """Lower Div: by a constant, or by a tensor, whose reciprocal is a lookup table."""
    left, right = node.inputs
    if state.is_constant(right):
        value = state.constant(right).astype(np.float64)
        if not value.all():
            raise state.refusal(node, f"constant {right!r}", 0, "no zeros")
        _product(state, node, operands_of(state, node, {right: 1 / value}))
        return
    inverse = f"{node.output}/reciprocal"
    state.declare(inverse, state.graph.shapes[right])
    lookup(state, node.replace(op="Reciprocal", inputs=(right,), outputs=(inverse,), attributes={}), RECIPROCAL)
    _product(state, node, operands_of(state, node.replace(inputs=(left, inverse))))


# -- extremes ------------------------------------------------------------------------------------------------------
def maximum(state: Rewrite, node: Node) -> None:
    """Lower Max: max(a, b) = a + relu(b - a)."""
    _extreme(state, node, 1.0)


def minimum(state: Rewrite, node: Node) -> None:
    """Lower Min: min(a, b) = a - relu(a - b)."""
    _extreme(state, node, -1.0)


def _extreme(state: Rewrite, node: Node, sign: float) -> None:
    """Lower Max (``sign`` 1) or Min (``sign`` -1) of all inputs."""
    operands = operands_of(state, node)
    total, *rest = operands.tensors
    for tensor in rest:
        other = state.scale(node, tensor, sign, part="side")
        minus = state.add(node, state.scale(node, total, -sign, part="difference"), other, "difference")
        beyond = state.relu(node, minus, "beyond")
        total = state.add(node, state.scale(node, beyond, sign, part="extreme"), total, "extreme")
    for bound in operands.constants:
        total = bounded_by(state, node, total, bound, sign)
    state.hold(node.output, total, operands.index)


def bounded_by(state: Rewrite, node: Node, tensor: str, bound: np.ndarray | float, sign: float) -> str:
    """Return the tensor max(x, bound) for ``sign`` 1 or min(x, bound) for -1.

    It is computed as bound + sign * relu(sign * (x - bound))."""
    unbounded = float(np.finfo(np.float32).max)
    if (sign * np.asarray(bound) <= -unbounded).all():
        return tensor
    difference = state.scale(node, tensor, sign, -sign * np.asarray(bound), "difference")
    return state.scale(node, state.relu(node, difference, "beyond"), sign, bound, "bounded")


def negate(state: Rewrite, node: Node) -> None:
    """Lower Neg."""
    source, index = lie_as_they_are(state, node)
    state.hold(node.output, state.scale(node, source, -1.0), index)


def power(state: Rewrite, node: Node) -> None:
    """Lower Pow with a constant exponent, the same for all elements, to a lookup table."""
    exponents, base = state.constant(node.input(1)).astype(np.float64), state.graph.shapes[node.input(0)]
    different = np.unique(exponents)
    if len(different) != 1:
        found = f"{len(different)} different ones, {different[0]:g} .. {different[-1]:g}"
        raise state.refusal(node, f"exponent {node.input(1)!r}", found, "one for all elements")
    if state.graph.shapes[node.output] != base:
        raise state.refusal(node, f"exponent {node.input(1)!r}", f"shape {list(exponents.shape)}, to which the base "
                            "is repeated", f"a shape that leaves the base's, {list(base)}, as it is")
    exponent = float(different[0])
    kind = "keeps_zero" if exponent >= 1 and exponent % 1 == 0 else "as_seen"
    several_steps(state, node.replace(inputs=node.inputs[:1], attributes={
        "kind": kind, "steps": (("Pow", (0, exponent), ()),)}))
