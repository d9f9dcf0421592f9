# SPDX-License-Identifier: Apache-2.0
"""Pass: scale the numbers around lookup tables between convolutions so that they fill their range.

Far from where it bends a hard swish is a line, so are SiLU and GELU. A slope of 16 bits holds a power of two exactly.
So the line is right at any distance from its key, and the keys lie close together where the function bends. After a
normalisation the slope may be 0.633, whose rounding error grows with the distance, so that keys would have to lie far
out. Binary points are powers of two as well, and leave up to a bit of a tensor's range empty. Convolutions before and
after can take any factor, so the function reads and gives numbers s times as large: s f(x / s) has the same slopes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.functions import FUNCTION, of_steps, real_function
from weft.compiler.lowering.rules import Step

FAR = 2.0 ** np.arange(10, 13)
"""Arguments, on both sides of 0, at which functions are lines if they ever are."""
NEARLY = 2.0 ** -13
"""The relative difference below which two slopes count as equal."""

FACTORS = 2.0 ** (np.arange(-8, 8) / 16)
"""The factors that are tried; larger ones would only move the binary point."""

Sizes = Mapping[str, tuple[float, float]]
Measure = Callable[[Graph, Sequence[str]], Sizes]
"""A function that returns, for tensors of a graph, the magnitude that each has room for, and its root mean square."""


@dataclass(frozen=True)
class _Place:
    """A function that ends in a line of ``slope``, and the convolutions around it.

    ``readers`` read it or its product with other tensors; ``maker`` makes its argument, None if others read that
    too."""

    function: Node
    slope: float
    readers: tuple[Node, ...]
    maker: Node | None


def scale_functions(graph: Graph, width: int, measure: Measure) -> Graph:
    """Return the graph in which functions by table read and give numbers scaled by a factor.

    The functions are those that end in a line and that only convolutions read; without one the graph stays the same.
    ``width``: bits of the data type."""
    places = _places(graph)
    if not places:
        return graph
    tensors = [(place.function.input(0), place.function.output, *(node.input(0) for node in _convolutions(place)),
                *(node.output for node in _convolutions(place))) for place in places]
    sizes = measure(graph, list(dict.fromkeys(name for names in tensors for name in names)))
    constants = dict(graph.constants)
    changed: dict[str, Node] = {}
    for place in places:
        rest = place.slope / 2.0 ** round(math.log2(abs(place.slope)))
        rest = 1.0 if abs(rest - 1) < NEARLY else rest
        tried = FACTORS if place.maker is not None else (1.0,)
        factor = float(min(tried, key=functools.partial(_noise, place, rest, sizes, constants, changed, width)))
        if factor == rest == 1:
            continue
        if place.maker is not None:
            changed[place.maker.output] = times(changed.get(place.maker.output, place.maker), factor, True, constants)
        for node in place.readers:
            changed[node.output] = times(changed.get(node.output, node), rest / factor, False, constants)
        attributes = place.function.attributes
        changed[place.function.output] = place.function.replace(attributes=dict(of_steps(
            _scaled(attributes["steps"], 1 / factor, factor / rest), attributes["kind"])))
    return graph.with_nodes([changed.get(node.output, node) for node in graph.nodes], constants)


# -- where -------------------------------------------------------------------------------------------------------------
def _places(graph: Graph) -> list[_Place]:
    """Return the functions that end in a line and are read by convolutions only."""
    consumers, outputs = graph.consumers(), graph.output_tensors()
    makers = {node.output: node for node in graph.nodes}
    found = []
    for node in graph.nodes:
        readers = convolutions_behind(node.output, consumers, outputs) if node.op == FUNCTION else None
        slope = _end(node, graph.opset) if readers else 0.0
        if readers and slope:
            maker = makers.get(node.input(0))
            own = maker is not None and maker.op == "Conv" and graph.has_one_reader(maker.output)
            found.append(_Place(node, slope, tuple(readers), maker if own else None))
    return found


def convolutions_behind(name: str, consumers: Mapping[str, Sequence[Node]],
                        outputs: frozenset[str]) -> list[Node] | None:
    """Return the convolutions that read a tensor or its products with others; None if other nodes read it."""
    found: list[Node] = []
    if name in outputs:
        return None
    for node in consumers.get(name, []):
        if node.op == "Conv" and name not in node.inputs[1:]:
            found.append(node)
            continue
        once = node.op == "Mul" and node.inputs.count(name) == 1
        behind = convolutions_behind(node.output, consumers, outputs) if once else None
        if behind is None:
            return None
        found += behind
    return found


def _end(node: Node, opset: int) -> float:
    """Return the slope of the steeper of the lines in which a function ends, 0 if there is none."""
    function = real_function(FUNCTION, of_steps(node.attributes["steps"], node.attributes["kind"]), opset)
    ends = [side * _slope(function(side * FAR)) for side in (1.0, -1.0)]
    return max(filter(math.isfinite, ends), key=abs, default=0.0)


def _slope(values: np.ndarray) -> float:
    """Return the slope of function values at FAR; NaN if they do not lie on a line."""
    with np.errstate(invalid="ignore", over="ignore"):
        slopes = np.diff(values) / np.diff(FAR)
        return float(slopes[1]) if abs(slopes[1] - slopes[0]) <= NEARLY * abs(slopes[1]) else math.nan


# -- by how much -------------------------------------------------------------------------------------------------------
def _convolutions(place: _Place) -> list[Node]:
    """Return the convolutions whose weights are scaled."""
    return [*filter(None, [place.maker]), *place.readers]


def _noise(place: _Place, rest: float, sizes: Sizes, constants: Mapping[str, np.ndarray],
           changed: Mapping[str, Node], width: int, factor: float) -> float:
    """Return the squared rounding errors, relative to the tensors concerned, if a function is scaled by ``factor``.

    They come from the function's argument and result, and from the weights."""
    def rounded(magnitude: float, scale: float, size: float) -> float:
        if math.isinf(magnitude):
            return 0.0  # calibration refuses it, by its name
        step = 2.0 ** (math.ceil(math.log2(magnitude * scale)) - width + 1) / scale if magnitude else 0.0
        return (step / size) ** 2 / 12 if size else 0.0

    total = sum(rounded(sizes[name][0], scale, sizes[name][1]) for name, scale in (
        (place.function.input(0), factor), (place.function.output, factor / abs(rest))))
    for node in _convolutions(place):
        weights = constants[changed.get(node.output, node).input(1)]
        scale = factor if node is place.maker else abs(rest) / factor
        taps, made = weights[0].size, sizes[node.output][1]
        read = sizes[node.input(0)][1]
        total += taps * rounded(float(np.abs(weights).max()), scale, made / read) if read and made else 0.0
    return total


# -- how ---------------------------------------------------------------------------------------------------------------
def times(conv: Node, factor: float, biased: bool, constants: dict[str, np.ndarray]) -> Node:
    """Return a convolution with ``factor`` in its weights and, if ``biased``, in its bias."""
    inputs = [conv.input(0), *conv.inputs[1:]]
    for number in (1, 2)[:1 + biased]:
        name = f"{conv.output}/scaled.{number}"
        constants[name] = (constants[inputs[number]].astype(np.float64) * factor).astype(np.float32)
        inputs[number] = name
    return conv.replace(inputs=tuple(inputs))


def _scaled(steps: tuple[Step, ...], before: float, behind: float) -> tuple[Step, ...]:
    """Return the steps of ``behind`` * f(``before`` * x), where ``steps`` is f."""
    moved: list[Step] = [("Mul", (0, before), ())]
    moved += [(op, tuple(entry + 1 if isinstance(entry, int) else entry for entry in arguments), attributes)
              for op, arguments, attributes in steps]
    return *moved, ("Mul", (len(moved), behind), ())
