# SPDX-License-Identifier: Apache-2.0
"""Pass: functions that vary over a wide range of positive arguments become sums of functions over parts of it.

1 / sqrt(x) over 0.001 .. 1 in one table has hardly a key where it bends, and no binary point serves both ends. So each
part of a range has a table of its own, which is constant elsewhere. It also has an argument of its own, which saturates
where the part ends. f(x) is the sum of f(x limited to part k) - f(end of part k), and in the last part f itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph, Interval, Node, Within
from weft.compiler.lowering.functions import FUNCTION, may_be_infinite, of_steps, real_function, steps_of, value_table
from weft.compiler.lowering.operators import FUNCTIONS
from weft.compiler.lowering.rewrite import NO_WINDOW
from weft.compiler.lowering.rules import SQUARE, Step, filled
from weft.compiler.passes.normalise import OPSET
from weft.compiler.passes.order import needed
from weft.compiler.passes.split_powers import PowerParts, parts_of, powers_of

PART_LOG2 = 4
"""log2 of the ratio of a part's largest argument to its smallest one."""

MOST_PARTS = 4
ROOM_LOG2 = 1
"""log2 of the factor by which arguments may exceed those seen, upwards or downwards."""

LEAST_SQUARES = 8
"""Squares are not limited to less than twice this many times a part's end."""

SHORTFALL = 2.0 ** -10
"""The share of a mean that limiting its squares may take away on calibration inputs."""

UNKNOWN: Interval = (-math.inf, math.inf)
"""The bound stated for squares: none, as they are limited far above what occurs and bits would be lost."""

ChannelRanges = Callable[[Graph, Sequence[str]], Mapping[str, tuple[np.ndarray, np.ndarray]]]
"""A function that returns the lowest and the highest value of every channel of tensors of a graph."""


def split_functions(graph: Graph, measure: ChannelRanges) -> Graph:
    """Return the graph with steep functions split into parts; ``measure`` gives the ranges of arguments.

    Raise CompileError for arguments that are NaN or infinite."""
    steep = [node for node in graph.nodes if any(map(may_be_infinite, _steps(node)))
             and not value_table(node.op, node.attributes).keeps_zero]  # unused lanes of parts would not stay zero
    if not steep:
        return graph
    ranges = measure(graph, list(dict.fromkeys(node.input(0) for node in steep)))
    for name, ends in ranges.items():
        if not np.isfinite(ends).all():
            raise refuse(f"tensor {name!r} on the calibration inputs", "NaN or infinity", "finite numbers",
                         "calibrate with inputs of the kind that the network is made for")
    seen = {node.output: ranges[node.input(0)] for node in steep}
    limits = {node.output: _limits(node, *_ends(seen[node.output])) for node in steep}
    makers = {node.output: node for node in graph.nodes}
    constants, shapes, stated = dict(graph.constants), dict(graph.shapes), dict(graph.bounds)
    nodes: list[Node] = []
    halved: dict[str, list[Node]] = {}
    for node in graph.nodes:
        powers, steps = powers_of(graph, node.input(0), makers) if node.output in limits else None, _steps(node)
        parts = [] if powers is None else parts_of(steps, graph.opset, powers.degree, *_ends(seen[node.output]))
        if powers is not None and parts:
            nodes += PowerParts(graph, node, powers, shapes, constants, stated, halved).nodes(steps, parts, measure)
        elif len(limits.get(node.output, ())) > 1:
            most = _limits_of_squares(graph, node, makers, limits[node.output], constants, measure)
            nodes += _parts(node, makers, limits[node.output], most, constants, shapes, stated)
        else:
            nodes.append(node)
    nodes = [made for node in nodes for made in halved.get(node.output, [node])]
    made = graph.replace(shapes=shapes, constants=constants, bounds=stated)
    return made.with_nodes(needed(nodes, graph.output_tensors()))


def _ends(seen: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Return the lowest and the highest of the ranges of all channels."""
    return float(seen[0].min()), float(seen[1].max())


def _steps(node: Node) -> tuple[Step, ...]:
    """Return the steps of a node's function, empty if the node is none."""
    return steps_of(node.op, node.attributes) if node.op == FUNCTION or node.op in FUNCTIONS else ()


def _limits(node: Node, low: float, high: float) -> list[tuple[float, float]]:
    """Return the parts (low, high) of a function's range of arguments from the smallest, empty if one table serves.

    If arguments are smaller than the parts reach, the first part goes down to 0, provided the function has a value
    there."""
    if low < 0 or high <= 0:
        return []
    reach = high * 2.0 ** -(PART_LOG2 * MOST_PARTS)
    beyond, low = low < reach and _has_value_at_zero(node), max(low, reach)
    count = math.ceil(math.log2(high / low) / PART_LOG2)
    if count < 2:
        return []
    low, high = low * 2.0 ** -ROOM_LOG2, high * 2.0 ** ROOM_LOG2
    ends = np.geomspace(low, high, count + 1).tolist()
    if beyond:
        ends[0] = 0.0
    return list(itertools.pairwise(ends))


def _has_value_at_zero(node: Node) -> bool:
    """Tell whether a node's function is finite at 0."""
    with np.errstate(divide="ignore"):
        return bool(np.isfinite(real_function(FUNCTION, of_steps(_steps(node), "any"), OPSET)(np.zeros(1))).all())


def _parts(node: Node, makers: Mapping[str, Node], limits: Sequence[tuple[float, float]],
           most: Sequence[float | None], constants: dict[str, np.ndarray],
           shapes: dict[str, tuple[int, ...]], stated: dict[str, Interval | Within]) -> list[Node]:
    """Return the nodes that compute a function as the sum of its parts.

    ``most``: for each part the limit of the squares whose mean is the argument, None if it is no such mean. ``stated``:
    the bounds of tensors, to which each part's end is added if the argument is bounded."""
    made: list[Node] = []
    source, steps = node.input(0), _steps(node)
    total, least = "", 0.0
    for number, (low, high) in enumerate(limits):
        argument, part = f"{source}/{node.output}/{number}", f"{node.output}/part{number}"
        before, scale = _argument(source, argument, high, most[number], makers, constants, shapes)
        stated |= {made.output: UNKNOWN for made in before[:-1]}
        made += [*before, node.replace(op=FUNCTION, inputs=(argument,), outputs=(part,), attributes=dict(of_steps(
            _limited(steps, low, high, number == len(limits) - 1, scale), "any")))]
        shapes[argument], shapes[part] = shapes[source], shapes[node.output]
        if source in stated:
            stated[argument] = 0.0, filled(high)
            least += _span(steps, low, high)
        if total:
            last = number == len(limits) - 1
            joined = node.output if last else f"{part}/sum"
            made.append(Node(node.name, "Add", (part, total), (joined,), {}, node.origin))
            shapes[joined], part = shapes[node.output], joined
            if source in stated and not last:
                stated[joined] = -least, least
        total = part
    return made


def _span(steps: tuple[Step, ...], low: float, high: float) -> float:
    """Return the difference of a monotonic function's values at two arguments."""
    ends = real_function(FUNCTION, of_steps(steps, "any"), OPSET)(np.array([low, high]))
    return float(abs(ends[1] - ends[0]))


def _argument(source: str, name: str, high: float, most: float | None, makers: Mapping[str, Node],
              constants: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]) -> tuple[list[Node], float]:
    """Return the nodes that make a part's argument with a binary point of its own, and a factor still to apply.

    A convolution is made again. If it is a mean of squares, these are limited to ``most``. A mean with equal weights is
    made as a sum. Its weights of 1 need no bits, so that all bits are left for small squares."""
    maker = makers.get(source)
    if maker is None or maker.op != "Conv":
        channels = shapes[source][1]
        constants |= {f"{name}/weights": np.ones((channels, 1, 1, 1), np.float32),
                      f"{name}/bias": np.zeros(channels, np.float32)}
        return [Node(name, "Conv", (source, f"{name}/weights", f"{name}/bias"), (name,),
                     {"group": channels, "kernel_shape": (1, 1), **NO_WINDOW})], 1.0
    found = _mean_of_squares(source, makers, constants)
    if found is None:
        return [maker.replace(outputs=(name,))], 1.0
    squares, maker, least = found
    limited = f"{name}/squares"
    shapes[limited] = shapes[squares.output]
    weights = constants[maker.input(1)]
    inputs, scale = maker.inputs[1:], 1.0
    if weights.max() == least:
        inputs, scale = (f"{name}/weights", maker.input(2)), least
        constants[inputs[0]] = (weights != 0).astype(np.float32)
    return [_limited_squares(squares, limited, high / least if most is None else most),
            maker.replace(inputs=(limited, *inputs), outputs=(name,))], scale


# -- means of squares --------------------------------------------------------------------------------------------------
def _mean_of_squares(source: str, makers: Mapping[str, Node],
                     constants: dict[str, np.ndarray]) -> tuple[Node, Node, float] | None:
    """Return the squares whose mean ``source`` is, the convolution that makes it, and its least weight.

    Return None if it is no such mean."""
    maker = makers.get(source)
    if maker is None or maker.op != "Conv":
        return None
    maker = _of_squares(maker, makers, constants) or maker
    squares, weights = makers.get(maker.input(0)), constants[maker.input(1)]
    least = float(weights[weights != 0].min(initial=np.inf))
    if squares is None or not _are_squares(squares) or least < 0 or constants[maker.input(2)].any():
        return None
    return squares, maker, least


def _are_squares(node: Node) -> bool:
    """Tell whether a node makes squares, by a table or as products of a tensor with itself."""
    return node.attributes.get("steps") == SQUARE or (node.op == "Mul" and len(set(node.inputs)) == 1)


def _limited_squares(squares: Node, name: str, most: float) -> Node:
    """Return the squares limited to ``most``, as the tensor ``name``."""
    steps = (*SQUARE, ("Min", (len(SQUARE), most), ()))
    return squares.replace(op=FUNCTION, inputs=squares.inputs[:1], outputs=(name,),
                           attributes=dict(of_steps(steps, "keeps_zero")))


def _limits_of_squares(graph: Graph, node: Node, makers: Mapping[str, Node], limits: Sequence[tuple[float, float]],
                       constants: dict[str, np.ndarray], measure: ChannelRanges) -> list[float | None]:
    """Return, for each part of a function of a mean, the limit up to which squares are told apart, or None.

    A limit at which one square alone brings the mean to the part's end is always right. If no square is nearly so large
    beside small others, a smaller limit does as well and leaves more bits to the others. So limits are halved as long
    as the measured means stay the same, as far as the part tells them apart; then doubled once."""
    found = _mean_of_squares(node.input(0), makers, constants)
    if found is None:
        return [None] * len(limits)
    squares, maker, least = found
    shapes, known, nodes, names = dict(graph.shapes), dict(constants), [], {}
    for part, (_, high) in enumerate(limits):
        for halvings in range(1, max(int(math.log2(1 / (least * LEAST_SQUARES))), 0) + 1):
            name = f"{node.output}/limit.{part}.{halvings}"
            names[name] = part, high / least * 2.0 ** -halvings
            nodes += _shortfall(name, squares, maker, node.input(0), high, names[name][1], shapes, known)
    chosen: list[float | None] = [high / least for _, high in limits]
    if names:
        seen = measure(graph.replace(shapes=shapes).with_nodes([*graph.nodes, *nodes], known), list(names))
        for name, (part, limit) in names.items():
            if seen[name][1].max() <= SHORTFALL:
                chosen[part] = min(2 * limit, chosen[part] or math.inf)
    return chosen


def _shortfall(name: str, squares: Node, maker: Node, mean: str, high: float, most: float,
               shapes: dict[str, tuple[int, ...]], constants: dict[str, np.ndarray]) -> list[Node]:
    """Return the nodes that compute by which share a mean shrinks if its squares are limited to ``most``.

    The mean counts only up to ``high``."""
    inner = [f"{name}/{part}" for part in ("squares", "mean", "limited", "wanted", "lost", "least")]
    shapes |= dict.fromkeys((*inner[1:], name), shapes[mean]) | {inner[0]: shapes[squares.output]}
    ends = [f"{name}/{part}" for part in ("high", "low")]
    constants |= {ends[0]: np.array(high, np.float32), ends[1]: np.array(np.finfo(np.float32).tiny)}
    return [_limited_squares(squares, inner[0], most), maker.replace(inputs=(inner[0], *maker.inputs[1:]),
                                                                     outputs=(inner[1],)),
            Node(name, "Min", (inner[1], ends[0]), (inner[2],)), Node(name, "Min", (mean, ends[0]), (inner[3],)),
            Node(name, "Sub", (inner[3], inner[2]), (inner[4],)), Node(name, "Max", (inner[3], ends[1]), (inner[5],)),
            Node(name, "Div", (inner[4], inner[5]), (name,))]


def _of_squares(maker: Node, makers: Mapping[str, Node], constants: dict[str, np.ndarray]) -> Node | None:
    """Return two 1x1 convolutions in a row, of squares, as one convolution; None for other nodes."""
    before = makers.get(maker.input(0))
    if before is None or not (_is_pointwise(before) and _is_pointwise(maker)):
        return None
    squares = makers.get(before.input(0))
    if squares is None or not _are_squares(squares):
        return None
    (first, first_bias), (then, bias) = ([constants[name].astype(np.float64) for name in node.inputs[1:]]
                                         for node in (before, maker))
    names = [f"{maker.output}/{part}_of_squares" for part in ("weights", "bias")]
    constants[names[0]] = np.einsum("oi...,ij...->oj...", then, first).astype(np.float32)
    constants[names[1]] = (then[..., 0, 0] @ first_bias + bias).astype(np.float32)
    return maker.replace(inputs=(before.input(0), *names))


def _is_pointwise(node: Node) -> bool:
    """Tell whether a node is a 1x1 convolution without groups, strides and padding."""
    attributes = {"kernel_shape": (1, 1), "group": 1, **NO_WINDOW}
    return node.op == "Conv" and all(tuple(np.ravel(node.attributes[key])) == tuple(np.ravel(value))
                                     for key, value in attributes.items())


def _limited(steps: tuple[Step, ...], low: float, high: float, last: bool, scale: float) -> tuple[Step, ...]:
    """Return the steps of a function of the scaled argument, limited to a part.

    Except for the last part, the function's value at the part's end is subtracted."""
    first: list[Step] = [("Mul", (0, scale), ()), ("Max", (1, low), ()), ("Min", (2, high), ())]
    moved = [(op, tuple(entry + len(first) if isinstance(entry, int) else entry for entry in arguments), attributes)
             for op, arguments, attributes in steps]
    if last:
        return *first[:2], ("Identity", (2,), ()), *moved
    at_end = float(real_function(FUNCTION, of_steps(steps, "any"), OPSET)(np.array([high]))[0])
    return *first, *moved, ("Sub", (len(first) + len(steps), at_end), ())
