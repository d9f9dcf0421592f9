"""Check: tensors that the machine's DRAM0 cannot hold are refused before anything of their size is made."""

from __future__ import annotations

import math

from weft.compiler.errors import refuse, refuse_node
from weft.compiler.frontend.graph import Graph
from weft.hw.contract.arch import Arch

MARGIN = 2
"""What a node makes may be padded or repeated, and cut again, before it is ever written."""


def check_sizes(graph: Graph, arch: Arch) -> Graph:
    """The graph itself; raises CompileError for an input, or a node's result, that is too large."""
    most = arch.dram0_depth * arch.array_size
    for port in graph.inputs:
        if math.prod(port.shape) > most:
            raise refuse(f"input {port.name!r}", f"shape {list(port.shape)}, {math.prod(port.shape)} elements",
                         f"at most {most}, which DRAM0 of this machine holds", "raise dram0_depth, or cut the input")
    for node in graph.nodes:
        for name in filter(None, node.outputs):
            size = math.prod(graph.shapes.get(name, ()))
            if size > MARGIN * most:
                raise refuse_node(node, f"output {name!r}", f"shape {list(graph.shapes[name])}, {size} elements",
                                  f"at most {MARGIN * most}: {MARGIN} times what DRAM0 of this machine holds",
                                  "raise dram0_depth, or end the network before it with --end")
    return graph
