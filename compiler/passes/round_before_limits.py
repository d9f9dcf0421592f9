# SPDX-License-Identifier: Apache-2.0
"""Pass for INT8 machines: what a Clip limits is rounded before it, where a quantised file rounds the Clip's result.

Rounded and then limited to rounded limits, a number is what it is when it is limited and then rounded. So a convolution
before the Clip is saved in the file's own bytes, not in coarser ones for its wider range. Where these bytes end at the
limits, no Clip is left; elsewhere it becomes a table. A Clip from 0 needs neither and stays, and so does one of the
file's bytes."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.passes.fuse_functions import has_byte_tables, limits_of
from weft.hw.contract.arch import Arch
from weft.tmodel.scales import HIGHEST, LOWEST, TensorScale


def _end_of_bytes(held: TensorScale, low: float, high: float) -> bool:
    """Tell whether limits are rounded to the lowest and the highest byte of a scale, or are beyond."""
    first, last = np.rint(np.array((low, high), np.float32) / np.float32(held.scale))
    return bool(first <= LOWEST - held.zero and last >= HIGHEST - held.zero)


def round_before_limits(graph: Graph, arch: Arch) -> Graph:
    """Return the graph with roundings before limits. Without tables only limits at which bytes end anyway change."""
    quantizers = {node.input(0): node for node in graph.nodes if node.op == FAKE_QUANTIZE}
    rounded: set[str] = set()
    shapes = dict(graph.shapes)
    nodes: list[Node] = []
    direct: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == FAKE_QUANTIZE or (node.op == "Identity" and node.input(0) in rounded):
            rounded.add(node.output)
        single = node.op == "Clip" and graph.has_one_reader(node.output)
        after = quantizers.get(node.output) if single and node.input(0) not in rounded else None
        limits = limits_of(graph, node) if after is not None else None
        if after is None or limits is None or limits[0] == 0:
            nodes.append(node.replace(inputs=tuple(direct.get(name, name) for name in node.inputs)))
            continue
        if _end_of_bytes(scale_of(after), *limits):
            direct[node.output] = node.input(0)
        elif has_byte_tables(arch):
            name = graph.free_name(f"{node.output}/rounded")
            shapes[name] = shapes[node.output]
            nodes += (after.replace(inputs=node.inputs[:1], outputs=(name,)),
                      node.replace(inputs=(name, *node.inputs[1:])))
        else:
            nodes.append(node)
    return graph.replace(shapes=shapes).with_nodes(nodes)
