"""Pass: every operator in the one form that the later passes know, every tensor with shape 1 x C x H x W.

Conv(x, w, b) with explicit strides, pads (top, left, bottom, right), dilations and group; Relu; Clip; Add of two
tensors; MaxPool. Reshapes vanish: a flattened tensor keeps its place in memory, and a Gemm that reads it becomes a
convolution whose kernel is the whole image. BatchNormalization and arithmetic with per-channel constants become a
1x1 convolution with one weight a channel; average pools one with constant weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.compiler.errors import refuse, refuse_node
from weft.compiler.frontend.graph import Graph, Node, Port, Shape
from weft.compiler.passes.operators import USE_HOST
from weft.compiler.passes.windows import average_divisor_ok, no_window_empty, window_attributes

OPSET = 13
"""Opset of the normalised graph."""

NO_WINDOW: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


@dataclass
class Rewrite:
    """The graph being built: tensors of the old graph -> their place (an alias) in the new one."""

    graph: Graph
    aliases: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def tensor(self, name: str) -> str:
        return self.aliases.get(name, name)

    def place(self, name: str) -> Shape:
        """1 x C x H x W of the tensor that holds ``name``."""
        return self.shapes[self.tensor(name)]

    def constant(self, name: str) -> np.ndarray:
        return self.graph.constants[name]

    def is_constant(self, name: str) -> bool:
        return self.graph.is_constant(name)

    def emit(self, node: Node, op: str, inputs: list[str], attributes: Mapping[str, Any], shape: Shape) -> None:
        self.nodes.append(Node(node.name, op, tuple(inputs), (node.output,), dict(attributes), node.op))
        self.shapes[node.output] = shape

    def emit_conv(self, node: Node, weights: np.ndarray, bias: np.ndarray, attributes: Mapping[str, Any],
                  size: tuple[int, int]) -> None:
        """A Conv on the tensor of input 0 (or of the one input that is no constant)."""
        source = next(name for name in node.inputs if not self.is_constant(name))
        names = [f"{node.output}/weights", f"{node.output}/bias"]
        self.constants.update(zip(names, (weights.astype(np.float32), bias.astype(np.float32)), strict=True))
        full = {"group": 1, **NO_WINDOW, **attributes, "kernel_shape": weights.shape[2:]}
        self.emit(node, "Conv", [self.tensor(source), *names], full, (1, weights.shape[0], *size))


def normalise(graph: Graph) -> Graph:
    """The graph in canonical form."""
    state = Rewrite(graph)
    for port in graph.inputs:
        state.shapes[port.tensor] = _input_place(port)
    for node in graph.nodes:
        HANDLERS[node.op](state, node)
    outputs = tuple(Port(port.name, port.shape, state.tensor(port.tensor)) for port in graph.outputs)
    for port in outputs:
        if state.tensor(port.tensor) not in state.shapes:
            raise refuse(f"output {port.name!r}", "a constant", "a tensor computed from the inputs", "remove it")
    return Graph(graph.name, tuple(state.nodes), graph.inputs, outputs, state.shapes, state.constants, OPSET)


def _input_place(port: Port) -> Shape:
    if len(port.shape) == 4:
        return port.shape
    if len(port.shape) == 2:
        return (*port.shape, 1, 1)
    raise refuse(f"shape of input {port.name!r}", list(port.shape), "1 x channels x height x width, or 1 x channels",
                 "reshape the input of the model")


# -- reshapes ------------------------------------------------------------------------------------------------------
def _alias(state: Rewrite, node: Node) -> None:
    state.aliases[node.output] = state.tensor(node.input(0))


def _reshape(state: Rewrite, node: Node) -> None:
    """A change of shape that keeps the order of elements: to a vector, back, or by dimensions of 1."""
    place, shape = state.place(node.input(0)), state.graph.shapes[node.output]
    essence = [size for size in shape if size != 1]
    if essence not in ([size for size in place if size != 1], [math.prod(place)], []) or shape[:1] not in ((1,), ()):
        raise refuse_node(node, "output shape", list(shape),
                          f"the same elements as {list(place)} flattened to 1 x {math.prod(place)}, or dimensions of 1 "
                          "added or removed", USE_HOST)
    _alias(state, node)


def _need_image(state: Rewrite, node: Node) -> None:
    """Convolutions and pools need the tensor in memory as the model sees it."""
    shape, place = state.graph.shapes[node.input(0)], state.place(node.input(0))
    if shape != place:
        raise refuse_node(node, f"shape of input 0 ({node.input(0)!r})", list(shape),
                          f"its shape before it was reshaped, {list(place)}", USE_HOST)


# -- convolutions --------------------------------------------------------------------------------------------------
def _conv(state: Rewrite, node: Node) -> None:
    _need_image(state, node)
    weights = state.constant(node.input(1))
    bias = state.constant(node.input(2)) if node.input(2) else np.zeros(len(weights))
    _, _, height, width = state.graph.shapes[node.output]
    attributes = window_attributes(node, weights.shape[2:], state.place(node.input(0))[2:])
    state.emit_conv(node, weights, bias, {**attributes, "group": node.attributes.get("group", 1)}, (height, width))


def _fully_connected(state: Rewrite, node: Node, matrix: np.ndarray, bias: np.ndarray) -> None:
    """``matrix`` is inputs x outputs; the kernel is the image which the flattened input was."""
    _, channels, height, width = state.place(node.input(0))
    weights = matrix.T.reshape(-1, channels, height, width)
    state.emit_conv(node, weights, bias, {}, (1, 1))


def _gemm(state: Rewrite, node: Node) -> None:
    matrix = state.constant(node.input(1)).astype(np.float64) * node.attributes.get("alpha", 1.0)
    matrix = matrix.T if node.attributes.get("transB", 0) else matrix
    bias = state.constant(node.input(2)) * node.attributes.get("beta", 1.0) if node.input(2) else np.zeros(1)
    _fully_connected(state, node, matrix, np.broadcast_to(bias.reshape(-1), matrix.shape[1]))


def _mat_mul(state: Rewrite, node: Node) -> None:
    matrix = state.constant(node.input(1))
    if matrix.ndim != 2:
        raise refuse_node(node, "shape of input 1", list(matrix.shape), "2 dimensions", USE_HOST)
    _fully_connected(state, node, matrix, np.zeros(matrix.shape[1]))


# -- one number a channel ------------------------------------------------------------------------------------------
def _channelwise(state: Rewrite, node: Node, scale: np.ndarray, shift: np.ndarray) -> None:
    source = next(name for name in node.inputs if not state.is_constant(name))
    _, channels, *size = state.place(source)
    scale, shift = (np.broadcast_to(value, channels) for value in (scale, shift))
    state.emit_conv(node, scale.reshape(channels, 1, 1, 1), shift, {"group": channels}, (size[0], size[1]))


def _batch_normalization(state: Rewrite, node: Node) -> None:
    gamma, beta, mean, variance = (state.constant(name).astype(np.float64) for name in node.inputs[1:5])
    scale = gamma / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    _channelwise(state, node, scale, beta - mean * scale)


def _per_channel(state: Rewrite, node: Node, name: str) -> np.ndarray:
    """A constant operand as one number a channel, or one for all."""
    value = state.constant(name)
    other = next(entry for entry in node.inputs if not state.is_constant(entry))
    shape = state.graph.shapes[other]
    aligned = (1,) * (len(shape) - value.ndim) + value.shape
    channels = state.place(other)[1]
    flat_ok = len(shape) == 2 and state.place(other)[2:] != (1, 1) and value.size > 1
    if len(aligned) != len(shape) or any(size != 1 for axis, size in enumerate(aligned) if axis != 1) or flat_ok:
        raise refuse_node(node, f"shape of constant {name!r}", list(value.shape),
                          f"one number, or one a channel ([1, {channels}, 1, 1])", USE_HOST)
    return value.astype(np.float64).reshape(-1)


def _arithmetic(scale: Callable[[np.ndarray], np.ndarray], shift: Callable[[np.ndarray], np.ndarray],
                ) -> Callable[[Rewrite, Node], None]:
    """x op constant as x * scale + shift."""
    def handle(state: Rewrite, node: Node) -> None:
        names = [name for name in node.inputs if state.is_constant(name)]
        if len(names) != 1:
            raise refuse_node(node, "inputs", list(node.inputs), "a tensor and a constant", USE_HOST)
        value = _per_channel(state, node, names[0])
        _channelwise(state, node, scale(value), shift(value))
    return handle


_add_constant = _arithmetic(np.ones_like, lambda value: value)


def _add(state: Rewrite, node: Node) -> None:
    if any(state.is_constant(name) for name in node.inputs):
        _add_constant(state, node)
        return
    left, right = (state.place(name) for name in node.inputs)
    if left != right:
        raise refuse_node(node, "shapes", f"{list(left)} and {list(right)}", "two tensors of one shape, or a tensor "
                          "and a constant a channel", USE_HOST)
    state.emit(node, "Add", [state.tensor(name) for name in node.inputs], {}, left)


# -- pools and activations -----------------------------------------------------------------------------------------
def _max_pool(state: Rewrite, node: Node) -> None:
    _need_image(state, node)
    kernel = tuple(node.attributes["kernel_shape"])
    attributes = window_attributes(node, kernel, state.place(node.input(0))[2:])
    size = state.graph.shapes[node.output]
    no_window_empty(node, attributes, state.place(node.input(0))[2:], size[2:])
    ceil_mode = {"ceil_mode": node.attributes.get("ceil_mode", 0)}
    state.emit(node, "MaxPool", [state.tensor(node.input(0))], {**attributes, **ceil_mode, "kernel_shape": kernel},
               size)


def _average(state: Rewrite, node: Node, kernel: tuple[int, int], attributes: Mapping[str, Any]) -> None:
    channels = state.place(node.input(0))[1]
    height, width = state.graph.shapes[node.output][2:]
    weights = np.full((channels, 1, *kernel), 1 / math.prod(kernel))
    state.emit_conv(node, weights, np.zeros(channels), {**attributes, "group": channels}, (height, width))


def _average_pool(state: Rewrite, node: Node) -> None:
    _need_image(state, node)
    kernel = tuple(node.attributes["kernel_shape"])
    attributes = window_attributes(node, kernel, state.place(node.input(0))[2:])
    average_divisor_ok(node, attributes["pads"])
    _average(state, node, kernel, attributes)


def _global_average_pool(state: Rewrite, node: Node) -> None:
    _need_image(state, node)
    height, width = state.place(node.input(0))[2:]
    _average(state, node, (height, width), {})


def _relu(state: Rewrite, node: Node) -> None:
    state.emit(node, "Relu", [state.tensor(node.input(0))], {}, state.place(node.input(0)))


def _leaky_relu(state: Rewrite, node: Node) -> None:
    alpha = node.attributes.get("alpha", 0.01)
    state.emit(node, "LeakyRelu", [state.tensor(node.input(0))], {"alpha": alpha}, state.place(node.input(0)))


def _clip(state: Rewrite, node: Node) -> None:
    """Clip from 0 upwards: Relu, and below a finite maximum a Clip of which only the maximum matters."""
    bounds = [float(state.constant(node.input(index))) if node.input(index) else node.attributes.get(key, default)
              for index, key, default in ((1, "min", -math.inf), (2, "max", math.inf))]
    if bounds[0] != 0 or bounds[1] <= 0:
        raise refuse_node(node, "min and max", bounds, "min 0 and max above 0", USE_HOST)
    if bounds[1] >= np.finfo(np.float32).max:
        _relu(state, node)
        return
    names = [f"{node.output}/min", f"{node.output}/max"]
    state.constants.update(zip(names, np.array(bounds, np.float32), strict=True))
    state.emit(node, "Clip", [state.tensor(node.input(0)), *names], {}, state.place(node.input(0)))


HANDLERS: dict[str, Callable[[Rewrite, Node], None]] = {
    "Add": _add,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Conv": _conv,
    "Div": _arithmetic(lambda value: 1 / value, np.zeros_like),
    "Dropout": _alias,
    "Flatten": _reshape,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "Identity": _alias,
    "LeakyRelu": _leaky_relu,
    "MatMul": _mat_mul,
    "MaxPool": _max_pool,
    "Mul": _arithmetic(lambda value: value, np.zeros_like),
    "Relu": _relu,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Sub": _arithmetic(np.ones_like, lambda value: -value),
    "Unsqueeze": _reshape,
}
