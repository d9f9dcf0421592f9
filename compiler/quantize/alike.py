# SPDX-License-Identifier: Apache-2.0
"""Layers that do the same with different tensors, as the steps of an LSTM do: what makes their constants equal.

Equal constants are stored once (``consts.py``), and an equal lookup table is made once. So layers with the same weights
have one binary point for these, one for what they read, and one mean for each channel of it, which decides what is
taken off the bias. Lookups of one function in a node with such layers have one range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution
from weft.compiler.quantize.ranges import Calibration, Range


def with_same_weights(layers: Sequence[Layer]) -> dict[str, list[int]]:
    """Return weights that several convolutions read -> the numbers of these layers."""
    return _of_several((layer.core.weights, number) for number, layer in enumerate(layers)
                       if isinstance(layer.core, Convolution))


def in_common(layers: Sequence[Layer], calibration: Calibration) -> Calibration:
    """Return the calibration with means and ranges that layers which are alike have in common."""
    means, ranges = dict(calibration.means), dict(calibration.ranges)
    shared = with_same_weights(layers)
    for numbers in shared.values():
        names = {layers[number].core.input.name for number in numbers}
        if names <= means.keys():
            common: np.ndarray = np.mean([means[name] for name in sorted(names)], axis=0)
            means |= dict.fromkeys(names, common)
    steps = {layers[number].name for numbers in shared.values() for number in numbers}
    lookups = ((layer.name, layer.lookup) for layer in layers if layer.lookup is not None and layer.name in steps)
    same = _of_several(((name, replace(lookup, source="")), lookup.source) for name, lookup in lookups)
    for sources in same.values():
        ranges |= dict.fromkeys(sources, _union([ranges[name] for name in sources]))
    return replace(calibration, means=means, ranges=ranges)


def agreed(points: Mapping[str, int], roots: Sequence[str]) -> dict[str, int]:
    """Return the smallest binary point of the Vars ``roots`` for each of them."""
    return dict.fromkeys(roots, min(points[root] for root in roots))


def _of_several(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return each first part of ``pairs`` that comes several times, with its second parts."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return {key: values for key, values in found.items() if len(values) > 1}


def _union(ranges: Sequence[Range]) -> Range:
    """Return the range of all values of tensors with these ``ranges``, which saw the same samples."""
    return Range(min(entry.low for entry in ranges), max(entry.high for entry in ranges),
                 tuple(map(sum, zip(*(entry.at_least for entry in ranges), strict=True))),
                 sum(entry.count for entry in ranges), sum(entry.squares for entry in ranges),
                 tuple(map(max, zip(*(entry.peaks for entry in ranges), strict=True))),
                 max(entry.unclipped for entry in ranges), all(entry.bounded for entry in ranges))
