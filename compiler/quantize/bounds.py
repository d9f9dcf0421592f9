# SPDX-License-Identifier: Apache-2.0
"""Mathematical bounds of tensors: what a value can be, whatever the network's inputs are.

Calibration sees only some inputs. The result of a sigmoid, a softmax or a clip is bounded for all of them, and a tensor
with a smaller range gives wrong results. So interval analysis goes through the graph, by operator (``RULES``), and
begins with what passes stated (``Graph.bounds``). A tensor without a bound keeps its range of calibration. Some tensors
only choose among the elements of an unbounded tensor, or take their differences. They get room for whatever that tensor
has room for (``Within``). Then a maximum stays right until its operands saturate."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.compiler.frontend.graph import Graph, Interval, Limited, Node, Within
from weft.compiler.frontend.quantizers import scale_of
from weft.compiler.lowering.functions import may_be_infinite, real_function, steps_of
from weft.compiler.lowering.operators import CANONICAL_FUNCTIONS
from weft.compiler.quantize.ranges import HEADROOM, SUMS, Calibration, sum_key_of

UNBOUNDED: Interval = (-math.inf, math.inf)
FAR = 2.0 ** 20
"""The largest magnitude of the arguments at which a function's values are examined; they stand for all beyond."""

ARGUMENTS = np.concatenate([-np.geomspace(2.0 ** -20, FAR, 4001)[::-1], [0.0], np.geomspace(2.0 ** -20, FAR, 4001)])

OCTAVE = 4001 // 40
"""The distance in ARGUMENTS after which the magnitude has doubled."""

CONSTANT = 2.0 ** -13
"""The share of a function's largest value below which a change over an octave counts as none."""

SMALL = 64.0
"""The ratio of a Limited tensor's bound to the root mean square for which rounding errors are weighed."""

Rule = Callable[[Graph, Node, Sequence[Interval]], Interval]


def bounds(graph: Graph, room: Callable[[str], Interval] | None = None) -> dict[str, Interval]:
    """Return the bounds (low, high) of every tensor that is bounded on both sides.

    A bound on one side alone is only used for the nodes that follow. ``room`` says what range a tensor without a bound
    has room for, once that is decided."""
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        stated = graph.bounds.get(node.output)
        if isinstance(stated, Within):
            found[node.output] = UNBOUNDED if room is None else _within(stated, found, room)
        else:
            found[node.output] = stated or _rule(graph, node, [found.get(name, UNBOUNDED) for name in node.inputs])
    return {name: bound for name, bound in found.items() if _finite(bound)}


def _within(bound: Within, found: Mapping[str, Interval], room: Callable[[str], Interval]) -> Interval:
    """Return the bound of a tensor that chooses elements of ``bound.source`` times a factor, or their differences."""
    known = found.get(bound.source, UNBOUNDED)
    low, high = sorted(end * bound.factor for end in (known if _finite(known) else room(bound.source)))
    low, high = (low - high, high - low) if bound.differences else (low, high)
    return low - bound.margin, high


def _finite(bound: Interval) -> bool:
    """Tell whether a bound is finite on both sides."""
    return all(map(math.isfinite, bound))


def with_bounds(graph: Graph, seen: Calibration, own_points: bool) -> Calibration:
    """Return the calibration with bounds in place of the seen ranges of bounded tensors, and room for their sums.

    With ``own_points`` (fixed point) an unbounded tensor has room for magnitudes beyond those seen, else for what was
    seen."""
    ranges, sums = dict(seen.ranges), dict(seen.sums)

    def room(name: str) -> Interval:
        if not own_points:
            return seen.ranges[name].low, seen.ranges[name].high
        reached = seen.ranges[name].expected(HEADROOM)
        return -reached, reached

    known = bounds(graph, room)
    for name in known.keys() & ranges.keys():
        low, high = known[name]
        own = dataclasses.replace(ranges[name], low=low, high=high, bounded=True)
        if isinstance(graph.bounds.get(name), Limited):
            own = dataclasses.replace(own, squares=min(own.squares, own.count * (own.magnitude / SMALL) ** 2))
        ranges[name] = own
    for node in graph.nodes:
        if node.op in SUMS and node.output in known:
            key = sum_key_of(node)
            sums[key] = max(sums[key], *map(abs, known[node.output]))
    return dataclasses.replace(seen, ranges=ranges, sums=sums)


def limited(graph: Graph, seen: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[
        str, tuple[np.ndarray, np.ndarray]]:
    """Return measured ranges (low, high) [channels] of tensors, with the bounds of those that are bounded."""
    known = bounds(graph)
    return {name: (np.full_like(low, known[name][0]), np.full_like(high, known[name][1])) if name in known
            else (low, high) for name, (low, high) in seen.items()}


# -- rules by operator -------------------------------------------------------------------------------------------------
def _rule(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of a node's result, given the bounds of what it reads."""
    if node.op in CANONICAL_FUNCTIONS:
        return _image(graph, node, read[0])
    rule = RULES.get(node.op)
    return UNBOUNDED if rule is None else rule(graph, node, read)


def _image(graph: Graph, node: Node, argument: Interval) -> Interval:
    """Return the lowest and the highest value of a function over the interval ``argument``.

    It is unbounded if the function goes on growing, or has a pole that its argument can reach."""
    if not _finite(argument) and any(map(may_be_infinite, steps_of(node.op, node.attributes))):
        return UNBOUNDED
    low, high = np.clip(argument, -FAR, FAR)
    inside = ARGUMENTS[(low < ARGUMENTS) & (high > ARGUMENTS)]
    with np.errstate(all="ignore"):
        values = real_function(node.op, tuple(sorted(node.attributes.items())), graph.opset)(
            np.concatenate([[low], inside, [high]]))
    if not np.isfinite(values).all():
        return UNBOUNDED
    flat = CONSTANT * float(np.abs(values).max())
    grows = [math.isinf(end) and abs(values[at] - values[near]) > flat
             for end, at, near in zip(argument, (0, -1), (OCTAVE, -1 - OCTAVE), strict=True)]
    return UNBOUNDED if any(grows) else (float(values.min()), float(values.max()))


def _chosen(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of an operator's result that holds only numbers of its input, such as a max pool's."""
    return read[0]


def _conv(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of a convolution each of whose channels scales and offsets one input channel.

    Other convolutions are unbounded: a sum of many terms reaches its end only if all of them do."""
    weights, bias = (graph.constants[name].astype(np.float64) for name in node.inputs[1:3])
    flat = weights.reshape(len(weights), -1)
    if not _finite(read[0]) or (np.count_nonzero(flat, axis=1) > 1).any():
        return UNBOUNDED
    ends = np.array([*read[0], *([0.0] if any(node.attributes["pads"]) else [])])
    values = flat.sum(1)[:, None] * ends + bias[:, None]
    return float(values.min()), float(values.max())


def _product(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of the product of two tensors with finite bounds, from all products of their ends."""
    if not all(map(_finite, read)):
        return UNBOUNDED
    values = [left * right for left, right in itertools.product(*read)]
    return min(values), max(values)


def _abs(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of a magnitude: 0, or what is nearest to it, to the larger magnitude of both ends."""
    low, high = read[0]
    return max(low, -high, 0.0), max(-low, high)


def _relu(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of a ReLU's result: that of its input, cut at 0."""
    return max(read[0][0], 0.0), max(read[0][1], 0.0)


def _clip(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of a Clip's result: that of its input, limited to the node's constants."""
    low, high = (float(graph.constants[name].reshape(-1)[0]) for name in node.inputs[1:3])
    return min(max(read[0][0], low), high), min(max(read[0][1], low), high)


def _fake_quantize(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of a tensor that a quantised file rounds: within the ends of its scale."""
    held = scale_of(node)
    return min(max(read[0][0], held.low), held.high), min(max(read[0][1], held.low), held.high)


def _assemble(graph: Graph, node: Node, read: Sequence[Interval]) -> Interval:
    """Return the bound of several tensors in one, with zeros between them."""
    ends = [end for bound in read for end in bound]
    return min(0.0, *ends), max(0.0, *ends)


RULES: dict[str, Rule] = {
    "Abs": _abs, "Assemble": _assemble, "Clip": _clip, "Conv": _conv,
    "Enlarge": _chosen, "FakeQuantize": _fake_quantize, "MaxPool": _chosen, "Mul": _product, "Relu": _relu,
    "ScaleChannels": _product, "View": _chosen}
"""Canonical operator -> the function that bounds its result from the bounds of its inputs.

Functions by lookup table use :func:`_image`. Results of other operators are unbounded, sums too: in a gated unit h + z
(n - h) never leaves the range of n and h, but intervals grow with every step."""
