# SPDX-License-Identifier: Apache-2.0
"""Calibration: the graph runs in floating point on sample inputs, which gives the range of every tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.quantize.ranges import BINADES, LARGEST, SUMS, Calibration, Tally, sum_key_of
from weft.compiler.quantize.samples import Samples
from weft.tmodel.onnx_engine import into_same_arrays, runner, session

MOST_HELD = 1 << 26
"""The most numbers of tensors that one run of a sample keeps in memory: 256 MB."""


def calibrate(graph: Graph, samples: Samples) -> Calibration:
    """Return the calibration of a graph on the given samples.

    The graph runs several times if its tensors do not fit memory at once. Raise CompileError for NaN, infinity, and
    numbers beyond LARGEST."""
    for node in graph.nodes:
        for name in filter(graph.is_constant, node.inputs if node.op in SUMS else ()):
            _need_below(f"constant {name!r} of node {node.name!r}", float(np.abs(graph.constants[name]).max(initial=0)))
    seen = _Seen(graph)
    given = [port.tensor for port in graph.inputs]
    for number, nodes in enumerate(_looked_at_together(graph)):
        seen.run(samples, nodes, () if number else given)
    clipped = {node.output: node.input(0) for node in graph.nodes if node.op == "Relu"}
    ranges = {name: tally.range(seen.tallies[clipped[name]].magnitude if name in clipped else 0.0)
              for name, tally in seen.tallies.items()}
    ranges |= {name: ranges[copied.source] for name, copied in graph.copies.items()}
    return Calibration(ranges, seen.sums, len(samples.numbers), samples.random,
                       seen.means | _of_copies(graph, seen.means))


def _of_copies(graph: Graph, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the mean of every channel of tensors of copies: that of their source, without what lies beside it."""
    return {name: np.append(means[copied.source], 0.0)[list(copied.channels)] for name, copied in graph.copies.items()}


def _looked_at_together(graph: Graph) -> list[list[Node]]:
    """Return the nodes in groups whose results take at most MOST_HELD numbers, or that are one node."""
    groups: list[list[Node]] = [[]]
    held = 0
    for node in graph.nodes:
        size = math.prod(graph.shapes[node.output]) * (2 if node.op in SUMS else 1)
        if groups[-1] and held + size > MOST_HELD:
            groups.append([])
            held = 0
        groups[-1].append(node)
        held += size
    return groups


class _Seen:
    """Statistics of a graph's tensors on the samples run so far.

    ``tallies``: by tensor. ``sums``: the largest partial sum of every convolution and product, by its key. ``means``:
    by channel, of tensors that convolutions read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tallies: dict[str, Tally] = {}
        self.sums: dict[str, float] = {}
        self.means = {node.input(0): np.zeros(graph.shapes[node.input(0)][1]) for node in graph.nodes
                      if node.op == "Conv"}
        self.ends = {node.input(0): scale_of(node) for node in graph.nodes if node.op == FAKE_QUANTIZE}
        """An infinite number (1 / sqrt of what the file rounds to 0) saturates there."""

    def run(self, samples: Samples, nodes: Sequence[Node], given_names: Sequence[str]) -> None:
        """Run every sample and add to the statistics: the results of ``nodes`` and the inputs ``given_names``."""
        summed = [node for node in nodes if node.op in SUMS]
        extra, constants = _sum_nodes(self.graph, summed)
        sums = [node.output for node in extra if node.op != "Abs"]
        apart: dict[str, np.ndarray] = {}
        run = into_same_arrays(session(to_onnx(self.graph, [*(node.output for node in nodes), *sums], extra, constants,
                                               apart), apart))
        for number, given in samples.fed(self.graph):
            values = {**given, **run(given)}
            for name in (*given_names, *(node.output for node in nodes)):
                self._look(name, values[name], number, len(samples.numbers))
            for node, name in zip(summed, sums, strict=True):
                key = sum_key_of(node)
                self.sums[key] = max(self.sums.get(key, 0.0), _largest_partial_sum(values[name], values[node.output]))

    def _look(self, name: str, value: np.ndarray, number: int, count: int) -> None:
        """Add a tensor's ``value`` on sample ``number``, one of ``count``. Raise CompileError for NaN or infinity."""
        if name in self.ends:
            value = np.nan_to_num(value, nan=np.nan, neginf=self.ends[name].low, posinf=self.ends[name].high)
        tally = self.tallies.setdefault(name, Tally())
        tally.add(value)
        if not math.isfinite(tally.peaks[-1]):
            raise refuse(f"tensor {name!r} on calibration input {number}", "NaN or infinity",
                         "finite numbers", "calibrate with inputs of the kind that the network is made for")
        _need_below(f"tensor {name!r} on calibration input {number}", tally.peaks[-1])
        if name in self.means:
            self.means[name] += value.mean((0, 2, 3), dtype=np.float64) / count


def _largest_partial_sum(magnitudes: np.ndarray, sums: np.ndarray) -> float:
    """Return a limit of the partial sums in any order: all positive terms, or all negative ones.

    ``magnitudes`` are the sums of the terms' magnitudes. Together both parts are ``magnitudes``; their difference is
    ``sums``. Both arrays are overwritten."""
    return float(np.add(magnitudes, np.abs(sums, out=sums), out=magnitudes).max()) / 2


def _need_below(what: str, magnitude: float) -> None:
    """Raise CompileError if a magnitude is LARGEST or more."""
    if not magnitude < LARGEST:
        raise refuse(what, f"a value of {magnitude:.3g}", f"magnitudes below 2**{BINADES[-1]}",
                     "look for a damaged file, or a network that needs its inputs scaled")


def channel_ranges(graph: Graph, samples: Samples,
                   names: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the lowest and the highest value [channels] of each tensor in ``names``, over all samples.

    It runs the network. A pass calls it with its own graph, because earlier passes have changed the tensors."""
    apart: dict[str, np.ndarray] = {}
    engine = session(to_onnx(graph, names, apart=apart), apart)
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for _, given in samples.fed(graph):
        for output, value in zip(engine.get_outputs(), engine.run(None, given), strict=True):
            low, high = value.min((0, 2, 3)), value.max((0, 2, 3))
            before = found.get(output.name, (low, high))
            found[output.name] = np.minimum(before[0], low), np.maximum(before[1], high)
    return found


def tensor_ranges(graph: Graph, samples: Samples, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each tensor in ``names``, over all samples."""
    run = runner(to_onnx(graph, names))
    found: dict[str, tuple[float, float]] = {}
    for _, given in samples.fed(graph):
        values = {**given, **run(given)}
        for name in names:
            low, high = found.get(name, (math.inf, -math.inf))
            found[name] = min(low, float(values[name].min())), max(high, float(values[name].max()))
    return found


def _sum_nodes(graph: Graph, summed: list[Node]) -> tuple[list[Node], dict[str, np.ndarray]]:
    """Return nodes, and their constants, that compute each convolution or product with operands' magnitudes."""
    nodes: list[Node] = []
    constants: dict[str, np.ndarray] = {}
    makers = {node.output: node for node in graph.nodes}
    for node in summed:
        names = [source if _is_magnitude(graph, source, makers) else f"{node.output}/magnitude{number}"
                 for number, source in enumerate(node.inputs)]
        for name, source in zip(names, node.inputs, strict=True):
            if name == source:
                continue
            if graph.is_constant(source):
                constants[name] = np.abs(graph.constants[source])
            else:
                nodes.append(Node(name, "Abs", (source,), (name,)))
        total = f"{node.output}/magnitude"
        nodes.append(node.replace(name=total, inputs=tuple(names), outputs=(total,)))
    return nodes, constants


def _is_magnitude(graph: Graph, name: str, makers: Mapping[str, Node]) -> bool:
    """Tell whether no number of a computed tensor is below 0: a ReLU made it, or what has a lower limit."""
    maker = makers.get(name)
    if maker is not None and maker.op == "Clip" and maker.input(1):
        return graph.is_constant(maker.input(1)) and bool(graph.constants[maker.input(1)].min(initial=0) >= 0)
    return maker is not None and maker.op in ("Abs", "Relu")
