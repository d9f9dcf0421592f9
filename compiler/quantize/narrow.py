# SPDX-License-Identifier: Apache-2.0
"""Narrow the ranges of INT8 tensors: some extreme values may saturate, so that all others get finer steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.quantize.ranges import Calibration
from weft.compiler.quantize.samples import Samples
from weft.tmodel.onnx_engine import runner
from weft.tmodel.scales import HIGHEST, LOWEST

BINS = 2048
KEPT = 0.9999
"""The share of a tensor's values that a range by percentile keeps."""

CANDIDATES = 64
"""The number of range ends that are tried on either side of 0."""

Range2 = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The ``counts`` of a tensor's values other than 0, in BINS bins evenly spaced from ``low`` to ``high``."""

    low: float
    high: float
    counts: np.ndarray

    @property
    def middles(self) -> np.ndarray:
        """The middle value of each bin."""
        edges = np.linspace(self.low, self.high, BINS + 1)
        return np.asarray((edges[1:] + edges[:-1]) / 2)


def by_percentile(histogram: Histogram) -> Range2:
    """Return the range (low, high) that keeps the share KEPT of values, cutting as many at both ends."""
    reached = np.cumsum(histogram.counts) / max(histogram.counts.sum(), 1)
    inside = np.flatnonzero((reached > (1 - KEPT) / 2) & (np.append(0, reached[:-1]) < (1 + KEPT) / 2))
    edges = np.linspace(histogram.low, histogram.high, BINS + 1)
    return (float(edges[inside[0]]), float(edges[inside[-1] + 1])) if len(inside) else (histogram.low, histogram.high)


def by_error(histogram: Histogram) -> Range2:
    """Return the range (low, high) with the least squared error of rounding and saturation together."""
    shares = np.arange(1, CANDIDATES + 1) / CANDIDATES
    above = max(histogram.high, 0.0) * shares
    below = min(histogram.low, 0.0) * shares
    middles, counts = histogram.middles, histogram.counts
    lost_above = (counts * np.maximum(middles - above[:, None], 0) ** 2).sum(1)
    lost_below = (counts * np.minimum(middles - below[:, None], 0) ** 2).sum(1)
    steps = (above - below[:, None]) / (HIGHEST - LOWEST)
    errors = counts.sum() * steps ** 2 / 12 + lost_above + lost_below[:, None]
    low, high = np.unravel_index(int(errors.argmin()), errors.shape)
    return float(below[low]), float(above[high])


METHODS: dict[str, Callable[[Histogram], Range2]] = {"percentile": by_percentile, "error": by_error}
MINMAX = "minmax"
RANGES = (MINMAX, *METHODS)
"""The names of the methods to find a range: what was seen, and two that are narrower."""


def known_ranges(name: str) -> str:
    """Return ``name`` if it is one of RANGES. Raise CompileError otherwise."""
    if name not in RANGES:
        raise refuse("--ranges", repr(name), ", ".join(RANGES), "choose one of them")
    return name


def narrowed(graph: Graph, samples: Samples, calibration: Calibration, method: str) -> Calibration:
    """Return the calibration with ranges of all tensors by ``method``, one of RANGES.

    Tensors with mathematical bounds keep these."""
    if method == MINMAX:
        return calibration
    found = {name: METHODS[method](histogram) for name, histogram in _histograms(graph, samples, calibration).items()}
    ranges = {name: dataclasses.replace(entry, low=found[name][0], high=found[name][1]) if name in found else entry
              for name, entry in calibration.ranges.items()}
    return dataclasses.replace(calibration, ranges=ranges)


def _histograms(graph: Graph, samples: Samples, calibration: Calibration) -> Mapping[str, Histogram]:
    """Return the histograms of all unbounded tensors, by running the graph on every sample."""
    names = [name for name, entry in calibration.ranges.items() if entry.low < entry.high and not entry.bounded]
    given = {port.tensor for port in graph.inputs}
    run = runner(to_onnx(graph, [name for name in names if name not in given]))
    counts = {name: np.zeros(BINS) for name in names}
    for _, inputs in samples.fed(graph):
        values = {**inputs, **run(inputs)}
        for name in names:
            entry, value = calibration.ranges[name], values[name].ravel()
            counts[name] += np.histogram(value[value != 0], BINS, (entry.low, entry.high))[0]
    return {name: Histogram(calibration.ranges[name].low, calibration.ranges[name].high, counts[name])
            for name in names}
