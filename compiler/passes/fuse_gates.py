# SPDX-License-Identifier: Apache-2.0
"""Pass: x times a limited line of itself, such as a hard swish, becomes one operation on a convolution's result.

x * clip(a x + b, 0, m) is z * clip(z + b / s, 0, m / s) with z = s x and s the root of a. The factor s goes into the
weights of the convolution that makes x. So the SIMD unit only needs two numbers, to add and to limit, before it
multiplies in the accumulators. Unfused it would be a convolution of one weight a channel and a layer that multiplies.
Machines with lookup tables compute the whole function by table instead. Both factors have one binary point, so only
every other point is possible for the product. If only convolutions read the product, a factor between 1/2 and 2, which
they take back, makes it fill its range. If z is small beside the line's numbers, that point would leave little of z,
and the graph stays as it is."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.passes.fold import is_channelwise
from weft.compiler.passes.scale_functions import Measure, Sizes, convolutions_behind, times
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import filling_point, largest_point

GATE = "Gate"
"""The canonical operator z * clip(z + ``offset``, 0, ``limit``)."""

BODY = 4
"""The SIMD instructions for one vector; a loop must have room for them."""

FEWEST_STEPS = 128
"""The least root mean square of z in steps of its point; rounding is then some 53 dB below it."""


def fuse_gates(graph: Graph, arch: Arch, measure: Measure) -> Graph:
    """Return the graph in which each product of a tensor and a limited line of itself is a Gate node.

    It stays the same if the SIMD unit has no register or no loop long enough, or if there is no such product."""
    places = _places(graph) if arch.simd_registers_depth and arch.simd_loop_depth >= BODY else []
    if not places:
        return graph
    sizes = measure(graph, [name for place in places for name in (place.conv.output, place.product.output)])
    constants, shapes = dict(graph.constants), dict(graph.shapes)
    changed: dict[str, Node] = {}
    gone: set[str] = set()
    for place in places:
        if not _is_exact(place, graph, sizes, arch):
            continue
        readers = convolutions_behind(place.product.output, graph.consumers(), graph.output_tensors())
        filling = _filling(sizes[place.product.output][0], arch) if readers else 1.0
        for node in readers or ():
            changed[node.output] = times(changed.get(node.output, node), 1 / filling, False, constants)
        source, (line, offset) = place.conv.output, place.numbers
        factor, name = math.sqrt(filling * line), f"{source}/gated"
        scaled = times(changed.get(source, place.conv), factor, True, constants)
        changed[source], shapes[name] = scaled.replace(outputs=(name,)), shapes[source]
        attributes = {"offset": filling * offset / factor, "limit": filling * place.most(graph) / factor}
        changed[place.product.output] = place.product.replace(op=GATE, inputs=(name,), attributes=attributes)
        gone |= {place.line.output, place.limit.output}
    return graph.replace(shapes=shapes).with_nodes(
        [changed.get(node.output, node) for node in graph.nodes if node.output not in gone], constants)


def _is_exact(place: Place, graph: Graph, sizes: Sizes, arch: Arch) -> bool:
    """Tell whether z keeps FEWEST_STEPS at the largest point at which both factors and the product fit."""
    line, offset = place.numbers
    scale = math.sqrt(line)
    magnitude, spread = (scale * size for size in sizes[place.conv.output])
    widest = max(magnitude, abs(offset) / scale, place.most(graph) / scale)
    made = max(sizes[place.product.output][0], 2.0 ** -arch.number.width)
    width = arch.number.width
    point = min((largest_point(made, width) + arch.number.point) // 2, largest_point(widest, width))
    return spread * 2.0 ** point >= FEWEST_STEPS


def _filling(magnitude: float, arch: Arch) -> float:
    """Return the factor, between 1/2 and 2, that makes a product up to ``magnitude`` fill its range.

    The product's point is the sum of two equal points, less the data type's own."""
    if not magnitude:
        return 1.0
    room = filling_point(magnitude, arch.number.width) + arch.number.point
    return float(2.0 ** (room - 2 * round(room / 2)) * (1 - 2.0 ** -10))


class Place(NamedTuple):
    """A product of the result of ``conv`` with the ``limit`` of a ``line`` of it.

    ``numbers``: the line's factor and offset."""

    conv: Node
    line: Node
    limit: Node
    product: Node
    numbers: tuple[float, float]

    def most(self, graph: Graph) -> float:
        """Return the largest value that ``limit``, a Clip, lets through."""
        return float(graph.constants[self.limit.input(2)])


def _places(graph: Graph) -> list[Place]:
    """Return the products of this form in which nothing else reads the tensors in between."""
    makers, consumers, outputs = {node.output: node for node in graph.nodes}, graph.consumers(), graph.output_tensors()
    found = []
    for node in graph.nodes:
        for source, gate in (node.inputs, node.inputs[::-1]) if node.op == "Mul" else ():
            conv, limit = makers.get(source), makers.get(gate)
            line = makers.get(limit.input(0)) if limit is not None and limit.op == "Clip" else None
            if conv is None or limit is None or line is None or line.input(0) != source or conv.op != "Conv":
                continue
            numbers, inside = _line(graph, line), (source, line.output, limit.output)
            readers = sorted(reader.output for name in inside for reader in consumers[name])
            if numbers is not None and outputs.isdisjoint(inside) and readers == sorted(
                    (line.output, node.output, limit.output, node.output)):
                found.append(Place(conv, line, limit, node, numbers))
    return found


def _line(graph: Graph, node: Node) -> tuple[float, float] | None:
    """Return (factor, offset) of a convolution that is one rising line for all channels, else None."""
    if not is_channelwise(graph, node):
        return None
    factors, offsets = (graph.constants[name].astype(np.float64).ravel() for name in node.inputs[1:])
    alike = (factors == factors[0]).all() and (offsets == offsets[0]).all() and factors[0] > 0
    return (float(factors[0]), float(offsets[0])) if alike else None
