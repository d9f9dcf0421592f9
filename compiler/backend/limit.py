# SPDX-License-Identifier: Apache-2.0
"""The least cycles that a network costs the array, and the vectors that a program really sends through it.

The array takes one vector a cycle."""

from __future__ import annotations

import math

import numpy as np

from weft.compiler import lir
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.layers.stages import Convolution
from weft.compiler.layers.taps import passes, vectors
from weft.compiler.layers.var import Var
from weft.compiler.lir_table import LirTable
from weft.compiler.lowering.operators import RELABEL
from weft.compiler.lowering.windows import image_size, pair, transposed_pads, window_attributes
from weft.compiler.passes.input_packings import input_packings
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Window


def array_vectors(table: LirTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of a program's MatMuls, and how many vectors each sends through the array."""
    places, mat_mul = table.of_kind(lir.MatMul)
    return places, mat_mul.size * mat_mul.rows


def limit_cycles(graph: Graph, arch: Arch) -> int:
    """Return the cycles below which no weight-stationary array like that of ``arch`` computes a network as drawn.

    ``graph`` is the frontend's. Each Conv, ConvTranspose, Gemm and MatMul counts a product of two numbers. One is how
    many pairs there are of an output pixel and a tap inside the image. The other is how many pairs of an input and an
    output channel tile some group joins. Convolutions that read an input of the network are packed in the cheapest way.
    Depthwise ones run in passes, on machines that have them."""
    return sum(layer_limits(graph, arch).values())


def layer_limits(graph: Graph, arch: Arch) -> dict[str, int]:
    """Return the :func:`limit_cycles` of every layer, by the tensor that it makes."""
    given = {port.tensor for port in graph.inputs}
    limits: dict[str, int] = {}
    for node in graph.nodes:
        if (node.op in RELABEL or node.op == FAKE_QUANTIZE) and node.input(0) in given:
            given.add(node.output)
        elif node.op in ("Conv", "ConvTranspose"):
            limits[node.output] = _convolution(graph, node, arch, node.input(0) in given)
        elif node.op in ("Gemm", "MatMul"):
            limits[node.output] = _matrix(graph, node, arch.array_size)
    return limits


def _convolution(graph: Graph, node: Node, arch: Arch, packed: bool) -> int:
    """Return the least cycles of a convolution; ``packed``: its input may be packed on the host."""
    lanes = arch.array_size
    weights = graph.constants[node.input(1)].shape
    kernel = (1, weights[2]) if len(weights) == 3 else (weights[2], weights[3])
    (batch, *size), (_, *output) = image_size(graph, node.input(0)), image_size(graph, node.output)
    source, result = (size[0], size[1]), (output[0], output[1])
    channels, made = graph.shapes[node.input(0)][1], graph.shapes[node.output][1]
    group = node.attributes.get("group", 1)
    if node.op == "ConvTranspose":  # which output pixels a tap of the kernel reaches from an input pixel
        pads = transposed_pads(node, kernel, (batch, *size), (batch, *output))
        window = Window(kernel, pair(node, "strides"), pads, pair(node, "dilations"))
        return batch * window.work(result, source) * _tile_pairs(channels, made, group, lanes)
    attributes = window_attributes(node, kernel, size)
    window = Window(kernel, attributes["strides"], attributes["pads"][:2], attributes["dilations"])
    allowed = input_packings(window, (channels, *source), result)[:None if packed and group == 1 else 1]
    joined = min(entry.window.work(entry.packing.size, result)
                 * _tile_pairs(entry.packing.layout[0], made, group, lanes) for entry in allowed)
    depthwise = Convolution(Var(node.input(0), channels, *source), "", "", group, window, result, 0)
    found = passes(depthwise, arch) if arch.depthwise_taps and group == channels == made else []
    if not found:
        return batch * joined
    return batch * min(joined, -(-channels // lanes) * sum(vectors(depthwise, part) for part in found))


def _matrix(graph: Graph, node: Node, lanes: int) -> int:
    """Return the least cycles of a Gemm or MatMul."""
    right = node.input(1)
    factor = graph.shape(right)
    inner = factor[-1] if node.attributes.get("transB", 0) else factor[-2 if len(factor) > 1 else 0]
    shape = graph.shapes[node.output]
    made = shape[-1] if len(factor) > 1 else 1
    return math.prod(shape) // made * _tile_pairs(inner, made, 1, lanes)


def _tile_pairs(channels: int, made: int, group: int, lanes: int) -> int:
    """Return the pairs of an input and an output channel tile between which there are weights."""
    inputs, outputs = channels // group, made // group
    pairs = {(source, result) for index in range(group)
             for source in range(index * inputs // lanes, ((index + 1) * inputs - 1) // lanes + 1)
             for result in range(index * outputs // lanes, ((index + 1) * outputs - 1) // lanes + 1)}
    return len(pairs)
