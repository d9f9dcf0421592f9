"""The work of a network that the array does, with the weights that it has."""

from __future__ import annotations

import numpy as np

from weft.compiler.layers.hir import Convolution, Layer, Product


def done_macs(layer: Layer, weights: np.ndarray | None) -> int:
    """Return the multiply-accumulates of the network that the array does in a layer whose ``weights`` [out, in / group,
    height, width] are integers: those of weights that are not 0 with pixels inside the image. Pixels that nobody reads
    are left out, taps that see padding too, and so are tiles of weights that round to 0."""
    core = layer.core
    if not isinstance(core, Convolution) or weights is None:
        return core.macs if isinstance(core, Product) else 0
    taps = np.count_nonzero(weights, axis=(0, 1))
    rows, columns = (np.array([high - low for low, high in (
        core.window.outputs(axis, tap, 0, core.size[axis], core.input.size[axis]) for tap in range(taps.shape[axis]))])
        for axis in range(2))
    return min(int(rows @ taps @ columns), core.macs)  # copies in other lanes are no work of the network
