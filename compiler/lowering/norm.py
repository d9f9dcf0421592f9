# SPDX-License-Identifier: Apache-2.0
"""Lower softmax, normalisations, and reductions that need a function by lookup table.

Numbers stay small: exponentials have arguments of at most 0, and squares are of centred values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from weft.compiler.frontend.graph import Interval, Node, Within
from weft.compiler.lowering.arithmetic import add, mul, per_channel_there
from weft.compiler.lowering.groups import Groups, groups, largest, spread, total
from weft.compiler.lowering.lookup import function
from weft.compiler.lowering.pool import reduced_axes
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.lowering.rules import SQUARE, Step

EXPONENTIAL: tuple[Step, ...] = (("Min", (0, 0.0), ()), ("Exp", (1,), ()))
"""The exponential of arguments that are at most 0, except for their rounding."""

LOGARITHM: tuple[Step, ...] = (("Max", (0, 1.0), ()), ("Log", (1,), ()))
"""The logarithm of sums of exponentials, one of which is 1."""

VANISHING: Interval = (-15.5, 0.0)
"""The arguments that an exponential beside 1 must tell apart.

From -11.8 on it is less than half a step of 16 bits beside 1. Its table has 256 keys, so that pieces of 1/16 reach this
far in any case."""

MOST_DEVIATIONS = 16.0
"""The magnitude that normalised values have room for, in root mean squares, whatever calibration saw.

n values reach at most sqrt(n) of them."""

FEW_VECTORS = 256
"""So many vectors are saved, loaded and multiplied in about the time in which a lookup table is loaded."""

FEW_CLASSES = 32
"""The inverse of the sum of so many exponentials is right to 0.4 %.

Of 96 alike it was 7 % off, where the logarithm is 0.3 % off."""

ROOT: tuple[Step, ...] = (("Max", (0, 0.0), ()), ("Sqrt", (1,), ()))
MAGNITUDE: tuple[Step, ...] = (("Abs", (0,), ()),)
INVERSE: tuple[Step, ...] = (("Max", (0, 1.0), ()), ("Reciprocal", (1,), ()))
"""The inverse of sums of exponentials, one of which is 1."""

ANY_LOGARITHM: tuple[Step, ...] = (("Log", (0,), ()),)


def inverse_root(epsilon: float) -> tuple[Step, ...]:
    """Return the steps of 1 / sqrt(x + epsilon)."""
    return ("Max", (0, 0.0), ()), ("Add", (1, float(epsilon)), ()), ("Sqrt", (2,), ()), ("Reciprocal", (3,), ())


# -- softmax -----------------------------------------------------------------------------------------------------------
def softmax(state: Rewrite, node: Node) -> None:
    """Lower Softmax: exp(x - max - log(sum of exp(x - max))).

    Of few vectors and few classes it is exp(x - max) / sum, which loads one table less."""
    of = _classes(state, node)
    if _vectors(state, of.tensor) <= FEW_VECTORS and math.prod(of.members) <= FEW_CLASSES:
        made = _divided(state, node, of)
    else:
        made = function(state, node, _log_softmax(state, node, of, VANISHING), EXPONENTIAL, "any")
    state.hold(node.output, made, of.where)


def log_softmax(state: Rewrite, node: Node) -> None:
    """Lower LogSoftmax."""
    of = _classes(state, node)
    state.hold(node.output, _log_softmax(state, node, of), of.where)


def _classes(state: Rewrite, node: Node) -> Groups:
    """Return the groups of elements that a Softmax normalises together."""
    rank, flat = len(state.graph.shapes[node.input(0)]), state.graph.opset < 13
    axis = node.attributes.get("axis", 1 if flat else -1) % rank
    return groups(state, node, node.input(0), range(axis, rank) if flat else [axis])


def _divided(state: Rewrite, node: Node, of: Groups) -> str:
    """Return the name of exp(x - max) / (sum of exp(x - max))."""
    _, exponentials, sums = _exponentials(state, node, of, largest(state, node, of), VANISHING)
    inverse = function(state, node, sums, INVERSE, "any", "inverse")
    state.bound(inverse, (0.0, 1.0))
    factor = spread(state, node, inverse, of, filled=state.shapes[exponentials][1])
    return state.bound(state.emit(node, "Mul", [exponentials, factor], {}, state.shapes[exponentials]), (0.0, 1.0))


def _log_softmax(state: Rewrite, node: Node, of: Groups, told_apart: Interval | None = None) -> str:
    """Return the name of x - max - log(sum of exp(x - max)). ``told_apart``: see _exponentials."""
    shifted, logarithm = _log_sum(state, node, of, largest(state, node, of), told_apart)
    made = state.add(node, spread(state, node, logarithm, of, -1.0), shifted, "difference")
    most = math.log(math.prod(of.members))
    return state.bound(made, told_apart or Within(of.tensor, differences=True, margin=most))


def _log_sum(state: Rewrite, node: Node, of: Groups, most: str,
             told_apart: Interval | None = None) -> tuple[str, str]:
    """Return the names of x - max, for each group's maxima ``most``, and of log(sum of exp(x - max)).

    ``told_apart``: see _exponentials."""
    shifted, _, sums = _exponentials(state, node, of, most, told_apart)
    logarithm = function(state, node, sums, LOGARITHM, "any", "logarithm")
    return shifted, state.bound(logarithm, (0.0, math.log(math.prod(of.members))))


def _exponentials(state: Rewrite, node: Node, of: Groups, most: str,
                  told_apart: Interval | None) -> tuple[str, str, str]:
    """Return the names of x - max, for each group's maxima ``most``, of exp(x - max), and of the sum of these.

    The sum lies in 1..n, whatever calibration saw, and its parts in 0..n. ``told_apart``: the interval of x - max that
    its readers tell apart, None if that is everything."""
    shifted = state.add(node, spread(state, node, most, of, -1.0), of.tensor, "shifted")
    state.bound(shifted, told_apart or Within(of.tensor, differences=True))
    exponentials, count = function(state, node, shifted, EXPONENTIAL, "any", "exponential"), len(state.nodes)
    sums = total(state, node, exponentials, of, 1.0, "sum")
    members = float(math.prod(of.members))
    for made in state.nodes[count:]:
        state.bound(made.output, (0.0, members))
    return shifted, exponentials, state.bound(sums, (1.0, members))


# -- normalisations ----------------------------------------------------------------------------------------------------
def layer_normalization(state: Rewrite, node: Node) -> None:
    """Lower LayerNormalization; also its outputs mean and 1 / deviation if they are read."""
    rank = len(state.graph.shapes[node.input(0)])
    axes = range(node.attributes.get("axis", -1) % rank, rank)
    of, inverse = _normalised(state, node, node.input(0), axes, node.attributes.get("epsilon", 1e-5), centred=True)
    for name, kind in zip(node.outputs[1:], ("mean", "inverse"), strict=False):
        if name:
            mean = partial(total, state, node, of.tensor, of, 1 / math.prod(of.members), "mean")
            state.hold(name, inverse if kind == "inverse" else mean(), of.result_index(state.graph.shapes[name]))
    _affine(state, node, *(_constant(state, node, number) for number in (1, 2)))


def rms_normalization(state: Rewrite, node: Node) -> None:
    """Lower RMSNormalization."""
    rank = len(state.graph.shapes[node.input(0)])
    axes = range(node.attributes.get("axis", -1) % rank, rank)
    _normalised(state, node, node.input(0), axes, node.attributes.get("epsilon", 1e-5), centred=False)
    _affine(state, node, _constant(state, node, 1), None)


def instance_normalization(state: Rewrite, node: Node) -> None:
    """Lower InstanceNormalization."""
    rank = len(state.graph.shapes[node.input(0)])
    _normalised(state, node, node.input(0), range(2, rank), node.attributes.get("epsilon", 1e-5), centred=True)
    _affine(state, node, *(_of_channels(state, node, number) for number in (1, 2)))


def group_normalization(state: Rewrite, node: Node) -> None:
    """Lower GroupNormalization, whose factors are those of channels, as of opset 21."""
    shape, count = state.graph.shapes[node.input(0)], int(node.attributes["num_groups"])
    name = f"{node.output}/groups"
    state.declare(name, (shape[0], count, math.prod(shape[1:]) // count))
    held = state.held[node.input(0)]
    state.hold(name, held.tensor, state.index(node.input(0)).reshape(state.graph.shapes[name]), held.fill)
    _normalised(state, node, name, [2], node.attributes.get("epsilon", 1e-5), centred=True)
    state.held[node.output] = state.held[node.output]._replace(where=state.index(f"{name}/normal").reshape(shape))
    _affine(state, node, *(_of_channels(state, node, number) for number in (1, 2)))


def mean_variance_normalization(state: Rewrite, node: Node) -> None:
    """Lower MeanVarianceNormalization."""
    rank = len(state.graph.shapes[node.input(0)])
    axes = [axis % rank for axis in node.attributes.get("axes", (0, 2, 3))]
    _normalised(state, node, node.input(0), axes, 1e-9, centred=True)


def _normalised(state: Rewrite, node: Node, name: str, axes: Sequence[int], epsilon: float, *,
                centred: bool) -> tuple[Groups, str]:
    """Normalise the tensor ``name`` as the output of ``node``; return its groups and the factor tensor.

    It is divided by its deviation, and with ``centred`` the mean is subtracted before."""
    of = groups(state, node, name, axes)
    tensor = _centred(state, node, of) if centred else of.tensor
    square = _squared(state, node, tensor)
    variance = total(state, node, square, of, 1 / math.prod(of.members), "variance")
    inverse = function(state, node, variance, inverse_root(epsilon), "as_seen", "inverse")
    factor = spread(state, node, inverse, of)
    factor = _same_channels(state, node, factor, tensor)
    made = state.emit(node, "Mul", [tensor, factor], {}, state.shapes[tensor], "normal")
    reached = math.sqrt(math.prod(of.members))
    if reached <= MOST_DEVIATIONS:
        state.bound(made, (-reached, reached))
    state.declare(f"{name}/normal", state.graph.shapes[name])
    for entry in (node.output, f"{name}/normal"):
        state.hold(entry, made, of.where)
    return of, inverse


def _squared(state: Rewrite, node: Node, tensor: str) -> str:
    """Return the square of ``tensor``: by a lookup table behind the layer that makes it.

    Few vectors are multiplied, in a layer of their own."""
    if _vectors(state, tensor) > FEW_VECTORS:
        return function(state, node, tensor, SQUARE, "keeps_zero", "square")
    return state.emit(node, "Mul", [tensor, tensor], {}, state.shapes[tensor], "square")


def _vectors(state: Rewrite, tensor: str) -> int:
    """Return how many vectors ``tensor`` takes."""
    _, channels, *size = state.shapes[tensor]
    return -(-channels // state.lanes) * math.prod(size)


def _same_channels(state: Rewrite, node: Node, tensor: str, like: str) -> str:
    """Return ``tensor`` without the channels that fill lanes, so that it has as many as ``like``."""
    count = state.shapes[like][1]
    if state.shapes[tensor][1] == count:
        return tensor
    weights = state.weights(node, (count, state.shapes[tensor][1], 1, 1))
    weights[np.arange(count), np.arange(count)] = 1
    return state.conv(node, tensor, weights, np.zeros(1), state.shapes[tensor][2:], "channels")


def _centred(state: Rewrite, node: Node, of: Groups) -> str:
    """Return the tensor minus the mean of each group.

    Over channels alone that is one convolution, unless its weight tiles take longer than two more layers."""
    channels, pixels = of.members
    tiles = -(-len(of.channels) // state.lanes)
    times = state.lanes + math.prod(state.shapes[of.tensor][2:])
    if pixels == 1 and tiles ** 2 * times <= 2 * (tiles * times + FEW_VECTORS):
        state.count_weights(node, len(of.channels) ** 2)
        alike = of.channels[:, None] == of.channels
        weights = np.eye(len(of.channels)) - alike / channels
        return state.conv(node, of.tensor, weights[..., None, None], np.zeros(1), state.shapes[of.tensor][2:],
                          "centred")
    mean = total(state, node, of.tensor, of, 1 / (channels * pixels), "mean")
    return state.add(node, spread(state, node, mean, of, -1.0), of.tensor, "centred")


def _constant(state: Rewrite, node: Node, number: int) -> np.ndarray | None:
    """Return the constant input ``number`` as float64, or None if it is absent."""
    return state.constant(node.input(number)).astype(np.float64) if node.input(number) else None


def _of_channels(state: Rewrite, node: Node, number: int) -> np.ndarray | None:
    """Return a constant input with one number for each channel, in a shape that broadcasts."""
    value, shape = _constant(state, node, number), state.graph.shapes[node.output]
    if value is None:
        return None
    return value.reshape(-1, *[1] * (len(shape) - 2))


def _affine(state: Rewrite, node: Node, factor: np.ndarray | None, offset: np.ndarray | None) -> None:
    """Multiply the output by a constant and add another one: one convolution if both are alike within a channel."""
    shape, name = state.graph.shapes[node.output], f"{node.output}/plain"
    factor = np.broadcast_to(1.0 if factor is None else factor, shape)
    offset = np.broadcast_to(0.0 if offset is None else offset, shape)
    state.declare(name, shape)
    held = state.held[name] = state.held[node.output]
    numbers = [per_channel_there(state, name, value) for value in (factor, offset)]
    if numbers[0] is not None and numbers[1] is not None:
        if (numbers[0] != 1).any() or numbers[1].any():
            state.hold(node.output, state.scale(node, held.tensor, numbers[0], numbers[1]), held.where)
        return
    names = [f"{node.output}/{part}" for part in ("factor", "offset", "scaled")]
    state.know(names[0], factor)
    state.know(names[1], offset)
    state.declare(names[2], shape)
    mul(state, node.replace(op="Mul", inputs=(name, names[0]), outputs=(names[2],), attributes={}))
    add(state, node.replace(op="Add", inputs=(names[2], names[1]), outputs=node.outputs[:1], attributes={}))


# -- reductions --------------------------------------------------------------------------------------------------------
def reduce_l1(state: Rewrite, node: Node) -> None:
    """Lower ReduceL1."""
    _reduced(state, node, MAGNITUDE, "keeps_zero")


def reduce_l2(state: Rewrite, node: Node) -> None:
    """Lower ReduceL2."""
    _reduced(state, node, SQUARE, "keeps_zero", ROOT, "any")


def reduce_sum_square(state: Rewrite, node: Node) -> None:
    """Lower ReduceSumSquare."""
    _reduced(state, node, SQUARE, "keeps_zero")


def reduce_log_sum(state: Rewrite, node: Node) -> None:
    """Lower ReduceLogSum."""
    _reduced(state, node, (), "", ANY_LOGARITHM, "as_seen")


def reduce_log_sum_exp(state: Rewrite, node: Node) -> None:
    """Lower ReduceLogSumExp: max + log(sum of exp(x - max))."""
    of = groups(state, node, node.input(0), reduced_axes(state, node))
    most = largest(state, node, of)
    _, logarithm = _log_sum(state, node, of, most, VANISHING)
    made = state.add(node, _same_channels(state, node, logarithm, most), most)
    state.hold(node.output, made, of.result_index(state.graph.shapes[node.output]))


def reduce_min(state: Rewrite, node: Node) -> None:
    """Lower ReduceMin: -max(-x)."""
    name, source = f"{node.output}/negative", state.held[node.input(0)]
    state.declare(name, state.graph.shapes[node.input(0)])
    state.hold(name, state.scale(node, source.tensor, -1.0, part="negative"), source.where, -source.fill)
    of = groups(state, node, name, reduced_axes(state, node))
    made = state.scale(node, largest(state, node, of), -1.0)
    state.hold(node.output, made, of.result_index(state.graph.shapes[node.output]))


def _reduced(state: Rewrite, node: Node, before: tuple[Step, ...], kind: str, after: tuple[Step, ...] = (),
             kind_after: str = "") -> None:
    """Lower a reduction: the sum of a function ``before`` of the elements, then a function ``after`` of it."""
    of = groups(state, node, node.input(0), reduced_axes(state, node))
    tensor = function(state, node, of.tensor, before, kind, "inner") if before else of.tensor
    made = total(state, node, tensor, of, 1.0, "sum" if after else "")
    if after:
        made = function(state, node, made, after, kind_after)
    state.hold(node.output, made, of.result_index(state.graph.shapes[node.output]))
