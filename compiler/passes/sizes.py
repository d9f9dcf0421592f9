# SPDX-License-Identifier: Apache-2.0
"""Check: tensors that the machine's DRAM0 cannot hold are refused before anything of their size is made."""

from __future__ import annotations

import math

from weft.compiler.errors import refuse, refuse_node
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.indices.index import default_place
from weft.hw.contract.arch import Arch

MARGIN = 2
"""The ratio of a node's result to DRAM0 that is allowed, as it may be padded or repeated and cut again."""

MOST_ELEMENTS = 1 << 25
"""The most elements of a node's result: the place of each takes some 40 bytes while compiling."""


def check_sizes(graph: Graph, arch: Arch) -> Graph:
    """Return the graph itself. Raise CompileError for an input, or a node's result, that is too large."""
    held = arch.dram0_depth * arch.array_size
    for port in graph.inputs:
        if math.prod(port.shape) > held:
            raise refuse(f"input {port.name!r}", f"shape {list(port.shape)}, {math.prod(port.shape)} elements",
                         f"at most {held}, which DRAM0 of this machine holds", "raise dram0_depth, or cut the input")
    for node in graph.nodes:
        _check_node(graph, node, held)
    ends = {port.tensor for port in graph.outputs}
    for node in graph.nodes:
        if node.op in ("Conv", "ConvTranspose") and node.output in ends:
            _check_end(graph, node, arch)
    return graph


def _check_node(graph: Graph, node: Node, held: int) -> None:
    """Raise CompileError if a node's result is too large; ``held``: elements that DRAM0 holds."""
    most, why = min((MARGIN * held, f"{MARGIN} times what DRAM0 of this machine holds"),
                    (MOST_ELEMENTS, "more are not compiled"))
    for name in filter(None, node.outputs):
        shape = graph.shapes.get(name, ())
        if math.prod(shape) > most:
            raise refuse_node(node, f"output {name!r}", f"shape {list(shape)}, {math.prod(shape)} elements",
                              f"at most {most}: {why}", "end the network before it with --end")


def _check_end(graph: Graph, node: Node, arch: Arch) -> None:
    """Raise CompileError if the vectors of an output exceed DRAM0: one for each pixel and channel tile."""
    _, channels, height, width = default_place(graph.shapes[node.output])
    vectors = -(-channels // arch.array_size) * height * width
    if vectors > arch.dram0_depth:
        raise refuse_node(node, f"output {node.output!r}", f"{vectors} vectors of {arch.array_size} channels",
                          f"at most {arch.dram0_depth}, which DRAM0 of this machine holds",
                          "raise dram0_depth, or cut the input")
