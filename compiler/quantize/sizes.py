# SPDX-License-Identifier: Apache-2.0
"""Sizes of tensors' values, for passes that need them before layers exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.quantize.ranges import HEADROOM, Tally
from weft.compiler.quantize.samples import Samples
from weft.tmodel.onnx_engine import runner


def tensor_sizes(graph: Graph, samples: Samples, names: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    """Return, for each tensor in ``names``, the magnitude that it gets room for, and its root mean square."""
    given = {port.tensor for port in graph.inputs}
    run = runner(to_onnx(graph, [name for name in names if name not in given]))
    found = {name: Tally() for name in names}
    for _, inputs in samples.fed(graph):
        values = {**inputs, **run(inputs)}
        for name, tally in found.items():
            tally.add(values[name])
    ranges = {name: tally.range() for name, tally in found.items()}
    return {name: (entry.expected(HEADROOM), entry.root_mean_square) for name, entry in ranges.items()}
