"""The ways to pack the image of a thin first layer (``tmodel/packing.py``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from weft.tmodel.packing import AXES, Packing, Shape3
from weft.tmodel.window import Size, Window


@dataclass(frozen=True)
class Way:
    """Taps along ``axes`` packed: how, and the window that is left."""

    axes: tuple[int, ...]
    packing: Packing
    window: Window

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """[out, in, height, width] -> those of the window that is left, over the packed channels."""
        order = (0, *(2 + axis for axis in self.axes), 1, *(2 + axis for axis in AXES if axis not in self.axes))
        return weights.transpose(order).reshape(len(weights), self.packing.layout[0], *self.window.kernel)


def ways(window: Window, source: Shape3, output: Size) -> list[Way]:
    """All ways to pack the image of a convolution, none at all first."""
    found = []
    for axes in ((), (1,), (0,), (0, 1)):
        rest = tuple(axis for axis in AXES if axis not in axes)
        height, width = (output[axis] if axis in axes else source[1 + axis] for axis in AXES)
        found.append(Way(axes, Packing(source, window.packed(rest), (height, width)), window.packed(axes)))
    return found
