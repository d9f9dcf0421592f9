# SPDX-License-Identifier: Apache-2.0
"""Count the useful multiply-accumulates of the array."""

from __future__ import annotations

import numpy as np

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Product


def done_macs(layer: Layer, weights: np.ndarray | None, lanes: int) -> int:
    """Return the multiply-accumulates of the network that an array of ``lanes`` lanes does in a layer.

    ``weights`` [out, in / group, height, width] are integers. Not counted: pixels that nobody reads, taps that see
    padding, lanes without channels, and tiles of weights that are all 0. A weight of 0 among others counts."""
    core = layer.core
    if not isinstance(core, Convolution) or weights is None:
        return core.macs if isinstance(core, Product) else 0
    taps = _products(weights, core.group, lanes)
    rows, columns = (np.array([high - low for low, high in (
        core.window.outputs(axis, tap, 0, core.size[axis], core.input.size[axis]) for tap in range(taps.shape[axis]))])
        for axis in range(2))
    return min(int(rows @ taps @ columns), core.macs)  # copies in other lanes are no work of the network


def _products(weights: np.ndarray, group: int, lanes: int) -> np.ndarray:
    """Return [height, width]: for each tap the pairs of channels that weight tiles with a nonzero weight join.

    With groups it counts pairs of the groups with a nonzero weight, as their blocks lie side by side in a tile."""
    if group > 1:
        blocks = weights.reshape(group, -1, *weights.shape[2:]).any(1)
        return np.asarray(blocks.sum(0) * (len(weights) // group * weights.shape[1]))
    firsts = [np.arange(0, size, lanes) for size in weights.shape[:2]]
    used = np.logical_or.reduceat(weights[::lanes] != 0, firsts[1], 1)  # by the first row of each tile
    if not used.all():
        used = np.logical_or.reduceat(np.logical_or.reduceat(weights != 0, firsts[0], 0), firsts[1], 1)
    outputs, inputs = (np.diff(np.append(first, size)) for first, size in zip(firsts, weights.shape[:2], strict=True))
    return np.asarray(np.einsum("oi...,o,i->...", used, outputs, inputs))
