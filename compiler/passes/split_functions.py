"""Pass: functions that vary over a wide range of positive arguments become sums of functions over parts of it.

1 / sqrt(x) over 0.001 .. 1 in one table has hardly a key where it bends, and no binary point serves both ends. So each
part of a range has a table of its own that is constant elsewhere, and an argument of its own that saturates where the
part ends: f(x) = sum of f(x limited to part k) - f(end of part k), and in the last part f itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.passes.functions import FUNCTION, may_be_infinite, of_steps, real_function, value_table
from weft.compiler.passes.normalise import OPSET
from weft.compiler.passes.operators import FUNCTIONS
from weft.compiler.passes.rewrite import NO_WINDOW
from weft.compiler.passes.rules import SQUARE, Step

PART_LOG2 = 4
"""log2 of the largest argument of a part / its smallest one."""

MOST_PARTS = 4
ROOM_LOG2 = 1
"""Arguments may be twice as large as those seen, or half as large."""

ChannelRanges = Callable[[Sequence[str]], Mapping[str, tuple[np.ndarray, np.ndarray]]]


def split_functions(graph: Graph, measure: ChannelRanges) -> Graph:
    """``measure``: the lowest and the highest value of every channel of some tensors."""
    steep = [node for node in graph.nodes if any(map(may_be_infinite, _steps(node)))
             and not value_table(node.op, node.attributes).keeps_zero]  # unused lanes of parts would not stay zero
    if not steep:
        return graph
    ranges = measure(list(dict.fromkeys(node.input(0) for node in steep)))
    limits = {node.output: _limits(*(float(entry) for entry in (ranges[node.input(0)][0].min(),
                                                                ranges[node.input(0)][1].max()))) for node in steep}
    makers = {node.output: node for node in graph.nodes}
    constants, shapes = dict(graph.constants), dict(graph.shapes)
    nodes: list[Node] = []
    for node in graph.nodes:
        if len(limits.get(node.output, ())) > 1:
            nodes += _parts(node, makers, limits[node.output], constants, shapes)
        else:
            nodes.append(node)
    return graph.replace(shapes=shapes, constants=constants).with_nodes(_needed(nodes, graph.output_tensors()))


def _steps(node: Node) -> tuple[Step, ...]:
    if node.op == FUNCTION:
        return tuple(node.attributes["steps"])
    return ((node.op, (0,), tuple(sorted(node.attributes.items()))),) if node.op in FUNCTIONS else ()


def _limits(low: float, high: float) -> list[tuple[float, float]]:
    """The parts of a range of arguments, from the smallest; one where a single table serves it."""
    if low < 0 or high <= 0:
        return []
    low = max(low, high * 2.0 ** -(PART_LOG2 * MOST_PARTS))
    count = math.ceil(math.log2(high / low) / PART_LOG2)
    if count < 2:
        return []
    low, high = low * 2.0 ** -ROOM_LOG2, high * 2.0 ** ROOM_LOG2
    ends = np.geomspace(low, high, count + 1).tolist()
    return list(itertools.pairwise(ends))


def _parts(node: Node, makers: Mapping[str, Node], limits: Sequence[tuple[float, float]],
           constants: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]) -> list[Node]:
    made: list[Node] = []
    source, steps = node.input(0), _steps(node)
    total = ""
    for number, (low, high) in enumerate(limits):
        argument, part = f"{source}/{node.output}/{number}", f"{node.output}/part{number}"
        before, scale = _argument(source, argument, high, makers, constants, shapes)
        made += [*before, node.replace(op=FUNCTION, inputs=(argument,), outputs=(part,), attributes=dict(of_steps(
            _limited(steps, low, high, number == len(limits) - 1, scale), "any")))]
        shapes[argument], shapes[part] = shapes[source], shapes[node.output]
        if total:
            last = number == len(limits) - 1
            joined = node.output if last else f"{part}/sum"
            made.append(Node(node.name, "Add", (part, total), (joined,), {}, node.origin))
            shapes[joined], part = shapes[node.output], joined
        total = part
    return made


def _argument(source: str, name: str, high: float, makers: Mapping[str, Node], constants: dict[str, np.ndarray],
              shapes: dict[str, tuple[int, ...]]) -> tuple[list[Node], float]:
    """The argument once more, with a binary point of its own: made again where a convolution makes it. Where that is a
    mean of squares, these are limited to what all others being 0 would make ``high``: the mean is as large as that if
    and only if it was. Of equal weights it is made as a sum, whose weights of 1 need no bits, so that all are left for
    small squares. Returns what the new argument is to be multiplied by, too."""
    maker = makers.get(source)
    if maker is None or maker.op != "Conv":
        channels = shapes[source][1]
        constants |= {f"{name}/weights": np.ones((channels, 1, 1, 1), np.float32),
                      f"{name}/bias": np.zeros(channels, np.float32)}
        return [Node(name, "Conv", (source, f"{name}/weights", f"{name}/bias"), (name,),
                     {"group": channels, "kernel_shape": (1, 1), **NO_WINDOW})], 1.0
    squares, weights = makers.get(maker.input(0)), constants[maker.input(1)]
    least = weights[weights != 0].min(initial=np.inf)
    if squares is None or squares.attributes.get("steps") != SQUARE or least < 0 or constants[maker.input(2)].any():
        return [maker.replace(outputs=(name,))], 1.0
    limited = f"{name}/squares"
    shapes[limited] = shapes[squares.output]
    steps = (*SQUARE, ("Min", (len(SQUARE), float(high / least)), ()))
    inputs, scale = maker.inputs[1:], 1.0
    if weights.max() == least:
        inputs, scale = (f"{name}/weights", maker.input(2)), float(least)
        constants[inputs[0]] = (weights != 0).astype(np.float32)
    return [squares.replace(outputs=(limited,), attributes={**squares.attributes, "steps": steps}),
            maker.replace(inputs=(limited, *inputs), outputs=(name,))], scale


def _limited(steps: tuple[Step, ...], low: float, high: float, last: bool, scale: float) -> tuple[Step, ...]:
    """A function of the argument times ``scale``, limited to a part; but for the last part, without what it is at the
    part's end."""
    first: list[Step] = [("Mul", (0, scale), ()), ("Max", (1, low), ()), ("Min", (2, high), ())]
    moved = [(op, tuple(entry + len(first) if isinstance(entry, int) else entry for entry in arguments), attributes)
             for op, arguments, attributes in steps]
    if last:
        return *first[:2], ("Identity", (2,), ()), *moved
    at_end = float(real_function(FUNCTION, of_steps(steps, "any"), OPSET)(np.array([high]))[0])
    return *first, *moved, ("Sub", (len(first) + len(steps), at_end), ())


def _needed(nodes: Sequence[Node], outputs: frozenset[str]) -> list[Node]:
    """Without those that nobody reads any more."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.outputs):
            kept.append(node)
            read.update(node.inputs)
    return kept[::-1]
