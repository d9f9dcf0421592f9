# SPDX-License-Identifier: Apache-2.0
"""Pass: choose how the host packs inputs with fewer channels than lanes, if that makes their convolution faster."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.passes.input_packings import InputPacking, input_packings
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch

NEAR = 1.125
"""The ratio to the least cycles up to which packings count as equally fast.

Among these the smallest input is best: it leaves more local memory to weights, and a max pool reads fewer rows
twice."""

SHARE = 4
"""The part of DRAM0, one in so many, that a packed input may take; it stays there to the end.

A tensor of copies (``pack_taps.py``) may take as much, so that nothing lacks room because of it."""


def pack_inputs(graph: Graph, arch: Arch, request: Request) -> Graph:
    """Return the same network with packed inputs, described in its ports."""
    for port in graph.inputs:
        readers = graph.consumers().get(port.tensor, [])
        thin = graph.shapes[port.tensor][1] < arch.array_size
        if thin and readers and all(_is_alike(node, readers[0]) for node in readers):
            chosen = _best(graph, readers[0], arch, request.input_cycles)
            graph = _packed(graph, port, readers, chosen) if chosen.axes else graph
    return graph


def _is_alike(node: Node, first: Node) -> bool:
    """Tell whether a node is a convolution without groups, over the same windows as ``first``."""
    return node.op == "Conv" and node.attributes["group"] == 1 and node.attributes == first.attributes


def _best(graph: Graph, node: Node, arch: Arch, input_cycles: float) -> InputPacking:
    """Return the packing with the smallest input among those of about the least cycles.

    Cycles are those of the slower of array and DRAM0, plus ``input_cycles`` for each byte that the host sends.
    Among equals the packing with the fewest vectors through the array wins."""
    _, channels, height, width = graph.shapes[node.input(0)]
    _, made, rows, columns = graph.shapes[node.output]
    lanes, beats = arch.array_size, arch.vector_beats

    def loaded(chosen: InputPacking) -> int:
        return -(-chosen.packing.layout[0] // lanes) * math.prod(chosen.packing.size)

    def passed(chosen: InputPacking) -> int:
        tiles = -(-chosen.packing.layout[0] // lanes) * -(-made // lanes)
        return chosen.window.work(chosen.packing.size, (rows, columns)) * tiles

    def cycles(chosen: InputPacking) -> float:
        return max(passed(chosen), loaded(chosen) * beats) + loaded(chosen) * arch.vector_bytes * input_cycles

    plain, *others = input_packings(node.window, (channels, height, width), (rows, columns))
    fitting = [plain, *(chosen for chosen in others if loaded(chosen) * SHARE <= arch.dram0_depth)]
    least = min(map(cycles, fitting))
    fast = [chosen for chosen in fitting if cycles(chosen) <= NEAR * least]
    return min(fast, key=lambda chosen: (loaded(chosen), passed(chosen)))


def _packed(graph: Graph, port: GraphPort, readers: Sequence[Node], chosen: InputPacking) -> Graph:
    """Return the graph with an input packed as chosen, and its convolutions' weights and windows adapted."""
    _, _, bottom, right = readers[0].attributes["pads"]
    ends = [0 if axis in chosen.axes else end for axis, end in enumerate((bottom, right))]
    attributes = {**readers[0].attributes, "kernel_shape": chosen.window.kernel, "strides": chosen.window.strides,
                  "pads": (*chosen.window.pads, *ends), "dilations": chosen.window.dilations}
    weights, made = {}, {}
    for node in readers:
        name = f"{node.output}/packed_weights"
        weights[name] = chosen.weights(np.asarray(graph.constants[node.input(1)]))
        made[node.output] = node.replace(inputs=(node.input(0), name, *node.inputs[2:]), attributes=attributes)
    inputs = tuple(dataclasses.replace(entry, packing=chosen.packing) if entry is port else entry
                   for entry in graph.inputs)
    shapes = {**graph.shapes, port.tensor: (1, *chosen.packing.layout)}
    smaller = graph.with_nodes([made.get(entry.output, entry) for entry in graph.nodes], weights)
    return smaller.replace(inputs=inputs, shapes=shapes)
