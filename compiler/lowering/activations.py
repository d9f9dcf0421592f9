# SPDX-License-Identifier: Apache-2.0
"""Lower activations of straight pieces to convolutions, adds and ReLUs, and SiLU to a lookup table."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.lowering.arithmetic import bounded_by, maximum, minimum, operands_of
from weft.compiler.lowering.gather import lie_as_they_are
from weft.compiler.lowering.lookup import several_steps
from weft.compiler.lowering.rewrite import Rewrite


def relu(state: Rewrite, node: Node) -> None:
    """Lower Relu."""
    source, index = lie_as_they_are(state, node)
    state.hold(node.output, state.relu(node, source), index)


def leaky_relu(state: Rewrite, node: Node) -> None:
    """Lower LeakyRelu, max(x, slope * x).

    Slopes that are not between 0 and 1, and all where the machine has no such operation, are lowered as PRelu."""
    source, index = lie_as_they_are(state, node)
    slope = float(node.attributes.get("alpha", 0.01))
    if 0 < slope < 1 and state.has_slopes:
        made = state.emit(node, "LeakyRelu", [source], {"alpha": slope}, state.shapes[source])
    else:
        made = _two_slopes(state, node, source, slope)
    state.hold(node.output, made, index)


def _two_slopes(state: Rewrite, node: Node, source: str, slope: np.ndarray | float) -> str:
    """Return the tensor that is x if x is positive, else slope * x: x + (1 - slope) * relu(-x).

    If the file rounds its sum, it is relu(x) - slope * relu(-x): one of its terms is 0, so that both can be rounded
    before."""
    negative = state.relu(node, state.scale(node, source, -1.0, part="negative"), "below")
    if state.rounds:
        return state.add(node, state.relu(node, source, "above"),
                         state.scale(node, negative, -np.asarray(slope), part="below"))
    return state.add(node, state.scale(node, negative, 1 - np.asarray(slope), part="below"), source)


def prelu(state: Rewrite, node: Node) -> None:
    """Lower PRelu, with one slope for each channel or element: x + (1 - slope) * relu(-x).

    Slopes of channels stay one operation where the SIMD unit has room for them."""
    slope = state.constant(node.input(1)).astype(np.float64)
    operands = operands_of(state, node, {node.input(1): 1 - slope})
    source, factor = operands.values
    if isinstance(factor, str):
        below = state.relu(node, state.scale(node, str(source), -1.0, part="negative"), "below")
        product = state.emit(node, "Mul", [below, factor], {}, state.shapes[below], "below")
        made = state.add(node, product, str(source))
    else:
        slopes = np.broadcast_to(1 - factor, state.shapes[str(source)][1])
        make = state.slopes if _in_simd(state, node, slopes) else partial(_two_slopes, state)
        made = make(node, str(source), slopes)
    state.hold(node.output, made, operands.index)


def _in_simd(state: Rewrite, node: Node, slopes: np.ndarray) -> bool:
    """Tell whether the SIMD unit computes a PRelu with ``slopes`` [channels] in its convolution's layer.

    Where max pools alone read the result, and do not commute with the slopes, the second of two layers pools it. Then
    the SIMD unit would be what everything waits for."""
    readers = state.graph.consumers().get(node.output, ())
    pooled = bool(readers) and all(reader.op == "MaxPool" for reader in readers)
    commutes = slopes.min() >= 0 and slopes.max() <= 1
    return (slopes.size <= state.most_slopes and np.abs(slopes).max() + 1 <= state.largest_slope
            and (commutes or not pooled))


def absolute(state: Rewrite, node: Node) -> None:
    """Lower Abs; on machines that cannot compute it in place, to x + 2 * relu(-x)."""
    source, index = lie_as_they_are(state, node)
    if source not in state.magnitudes:  # parts of one tensor share the magnitude of the whole
        state.magnitudes[source] = (state.emit(node, "Abs", [source], {}, state.shapes[source]) if state.has_abs
                                    else _two_slopes(state, node, source, -1.0))
    state.hold(node.output, state.magnitudes[source], index)


def clip(state: Rewrite, node: Node) -> None:
    """Lower Clip, whose bounds are attributes or inputs and may be absent.

    If the minimum exceeds the maximum, every element becomes the maximum. Bounds that are computed are operands of Max
    and Min."""
    if not all(map(state.is_constant, filter(None, node.inputs[1:]))):
        _clip_to_tensors(state, node)
        return
    low, high = (float(state.constant(node.input(index)).reshape(-1)[0]) if node.input(index)
                 else node.attributes.get(key, default)
                 for index, key, default in ((1, "min", -math.inf), (2, "max", math.inf)))
    source, index = lie_as_they_are(state, node)
    state.hold(node.output, _clipped(state, node, source, min(low, high), high), index)


def _clip_to_tensors(state: Rewrite, node: Node) -> None:
    """Lower Clip as the minimum, with input 2, of the maximum of inputs 0 and 1."""
    source, last = node.input(0), node.input(2)
    if node.input(1):
        made = f"{node.output}/raised" if last else node.output
        state.declare(made, state.graph.shapes[node.output])
        maximum(state, node.replace(op="Max", inputs=(source, node.input(1)), outputs=(made,)))
        source = made
    if last:
        minimum(state, node.replace(op="Min", inputs=(source, last)))


def _clipped(state: Rewrite, node: Node, source: str, low: float, high: float) -> str:
    """Return ``source`` limited to low..high."""
    unbounded = float(np.finfo(np.float32).max)
    if low <= -unbounded:
        return source if high >= unbounded else bounded_by(state, node, source, high, -1.0)
    if low == high:
        return state.scale(node, source, 0.0, low)
    shifted = state.scale(node, source, 1.0, -low, "shifted") if low else source
    bounded = state.relu(node, shifted, "bounded" if low else "") if high >= unbounded else state.limit(
        node, shifted, high - low, "bounded" if low else "")
    return state.scale(node, bounded, 1.0, low) if low else bounded


def hard_sigmoid(state: Rewrite, node: Node) -> None:
    """Lower HardSigmoid: alpha * x + beta limited to 0..1."""
    source, index = lie_as_they_are(state, node)
    made = state.scale(node, source, node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5), "line")
    state.hold(node.output, state.limit(node, made, 1.0), index)


def hard_swish(state: Rewrite, node: Node) -> None:
    """Lower HardSwish: x times (x / 6 + 0.5 limited to 0..1)."""
    source, index = lie_as_they_are(state, node)
    gate = state.limit(node, state.scale(node, source, 1 / 6, 0.5, "line"), 1.0, "gate")
    state.hold(node.output, state.emit(node, "Mul", [source, gate], {}, state.shapes[source]), index)


def swish(state: Rewrite, node: Node) -> None:
    """Lower Swish, also called SiLU: x times sigmoid(alpha * x)."""
    steps = ("Mul", (0, float(node.attributes.get("alpha", 1.0))), ()), ("Sigmoid", (1,), ()), ("Mul", (0, 2), ())
    several_steps(state, node.replace(attributes={"kind": "keeps_zero", "steps": steps}))
