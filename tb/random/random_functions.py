# SPDX-License-Identifier: Apache-2.0
"""Operators of random networks for machines with lookup tables: attention, norms, reductions, functions, recurrence.

Arguments are kept away from poles, and what is divided by from 0: there rounding costs what it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from weft.tb.random.random_network import Network, Tensor
from weft.tb.random.random_operators import like

MOST_STEPS, MOST_UNITS = 4, 6
"""Of a recurrent layer, which is written out step by step."""
EPSILON = 0.1
"""Of normalisations: random tensors have pixels and channels that are nearly constant."""

FUNCTIONS = ("Sigmoid", "Tanh", "Elu", "Erf", "Mish", "Softplus", "Softsign", "Selu", "Celu")
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2")


def _number(net: Network, value: float) -> str:
    return net.maker.constant(np.float32(value))


def _positive(net: Network, source: Tensor) -> str:
    """Add the magnitudes of a tensor's elements, and some more; return the result's name."""
    return net.node("Add", net.node("Abs", source), _number(net, 0.3))


def function(net: Network) -> None:
    net.same(str(net.random.choice(FUNCTIONS)), net.pick())


def root(net: Network) -> None:
    source = net.pick()
    net.made(net.node(str(net.random.choice(["Sqrt", "Log"])), _positive(net, source)), source.channels, *source.size)


def power(net: Network) -> None:
    """Add a power by a constant; a root only of what is positive."""
    source, exponent = net.pick(), float(net.random.choice([2, 3, 0.5, 1.5, -1, -0.5]))
    plain = exponent in (2, 3)
    base = net.node("Tanh", source) if plain else _positive(net, source)
    net.made(net.node("Pow", base, _number(net, exponent)), source.channels, *source.size)


def swish(net: Network) -> None:
    source = net.pick()
    net.made(net.node("Mul", source, net.node("Sigmoid", source)), source.channels, *source.size)


def gelu(net: Network) -> None:
    """Add a GELU as PyTorch writes it."""
    source = net.pick()
    bent = net.node("Add", net.node("Erf", net.node("Div", source, _number(net, 2 ** 0.5))), _number(net, 1))
    net.made(net.node("Mul", net.node("Mul", source, bent), _number(net, 0.5)), source.channels, *source.size)


def softmax(net: Network) -> None:
    net.same("Softmax" if net.maybe(0.8) else "LogSoftmax", net.pick(), axis=net.integer(1, 4))


def layer_norm(net: Network) -> None:
    """Add a normalisation over the last axes."""
    source = net.pick()
    axis = net.integer(1, 4)
    shape = (source.channels, *source.size)[axis - 1:]
    net.same("LayerNormalization", source, net.scaled(1, *shape), net.scaled(4, *shape), axis=axis, epsilon=EPSILON)


def channel_norm(net: Network) -> None:
    """Add a normalisation over the channels of each pixel, written out."""
    source = net.pick()
    axes = net.ints(1)
    rest = net.node("Sub", source, net.node("ReduceMean", source, axes, keepdims=1))
    variance = net.node("ReduceMean", net.node("Mul", rest, rest), axes, keepdims=1)
    deviation = net.node("Sqrt", net.node("Add", variance, _number(net, EPSILON)))
    net.made(net.node("Div", rest, deviation), source.channels, *source.size)


def group_norm(net: Network) -> None:
    """Add a group normalisation as PyTorch exports it; of one group for each channel as InstanceNormalization alone."""
    source = net.pick()
    groups = int(net.random.choice([number for number in range(1, source.channels + 1)
                                    if source.channels % number == 0]))
    flat = net.node("Reshape", source, net.ints(1, groups, -1))
    ones, zeros = (net.floats(*[value] * groups) for value in (1.0, 0.0))
    normal = net.node("InstanceNormalization", flat, ones, zeros, epsilon=EPSILON)
    shaped = net.node("Reshape", normal, net.ints(1, source.channels, *source.size))
    scaled = net.node("Mul", shaped, net.scaled(1, source.channels, 1, 1))
    net.made(net.node("Add", scaled, net.scaled(4, source.channels, 1, 1)), source.channels, *source.size)


def reduction(net: Network) -> None:
    """Add a reduction over some axes, with its result spread over the image again, or not."""
    source, kind = net.pick(), str(net.random.choice(REDUCTIONS))
    axes = [axis for axis in (1, 2, 3) if net.maybe(0.5)] or [net.integer(1, 4)]
    shape = [1 if axis in axes else size for axis, size in enumerate((source.channels, *source.size), 1)]
    count = source.channels * source.height * source.width / np.prod(shape)
    name = net.node(kind, source, net.ints(*axes), keepdims=1)
    if kind in ("ReduceSum", "ReduceL2"):
        name = net.node("Mul", name, _number(net, count ** -0.5))
    if net.maybe(0.5):
        net.made(net.node("Sub", source, name), source.channels, *source.size)
    else:
        net.made(name, *shape)


def masked(net: Network) -> None:
    """Mask a tensor by a constant of elements, channels or pixels, or by another tensor."""
    source = net.pick()
    shape = [size if net.maybe(0.7) else 1 for size in (source.channels, *source.size)]
    mask = net.maker.constant(net.random.random((1, *shape)) < 0.5)
    other = like(net, source) if net.maybe(0.5) else _number(net, float(net.random.choice([0, -2, 0.5])))
    first, second = (source, other) if net.maybe(0.5) else (other, source)
    net.made(net.node("Where", mask, first, second), source.channels, *source.size)


def limited(net: Network) -> None:
    net.same("Max", net.pick(), _number(net, float(net.random.choice([-np.inf, 0, -0.5]))))


def quotient(net: Network) -> None:
    source = net.pick()
    net.made(net.node("Div", source, _positive(net, like(net, source))), source.channels, *source.size)


def recurrent(net: Network) -> None:
    """Add a recurrence along the pixels; all states are read, in one or two directions."""
    source = net.pick()
    kind, units, both = str(net.random.choice(["LSTM", "GRU", "RNN"])), net.integer(1, MOST_UNITS + 1), net.maybe(0.3)
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + both
    steps = min(source.height * source.width, MOST_STEPS)
    rows = net.node("Reshape", source, net.ints(1, source.channels, -1))
    cut = net.node("Slice", rows, net.ints(0), net.ints(steps), net.ints(2))
    sequence = net.node("Transpose", cut, perm=(2, 0, 1))
    weights = [net.scaled(size, ways, gates * units, size) for size in (source.channels, units)]
    attributes: dict[str, Any] = {"linear_before_reset": net.integer(0, 2)} if kind == "GRU" else {}
    name = f"states{len(net.maker.nodes)}"
    net.maker.nodes.append(helper.make_node(kind, [sequence, *weights, net.scaled(4, ways, 2 * gates * units)], [name],
                                            name=name, hidden_size=units,
                                            direction="bidirectional" if both else "forward", **attributes))
    moved = net.node("Transpose", name, perm=(2, 1, 3, 0))
    net.made(net.node("Reshape", moved, net.ints(1, ways * units, steps, 1)), ways * units, steps, 1)


FUNCTION_OPERATORS: dict[Callable[[Network], None], float] = {
    function: 2.5, root: 1, power: 1, swish: 1, gelu: 1, softmax: 1.5, layer_norm: 1, channel_norm: 0.6,
    group_norm: 0.8, reduction: 2, masked: 1, limited: 0.4, quotient: 0.5, recurrent: 0.6}
"""How often each is taken, relative to the others and to those of ``random_operators.py``."""
