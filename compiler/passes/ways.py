# SPDX-License-Identifier: Apache-2.0
"""The ways to pack the image of a thin first layer (``tmodel/packing.py``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.tmodel.packing import AXES, Packing, Shape3
from weft.tmodel.window import Size, Window


@dataclass(frozen=True)
class Way:
    """A way to pack an image: taps along ``axes`` become channels.

    ``window`` is what is left of the convolution's window."""

    axes: tuple[int, ...]
    packing: Packing
    window: Window

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Return weights [out, in, height, width] as those of the remaining window, over the packed channels."""
        order = (0, *(2 + axis for axis in self.axes), 1, *(2 + axis for axis in AXES if axis not in self.axes))
        return weights.transpose(order).reshape(len(weights), self.packing.layout[0], *self.window.kernel)


def ways(window: Window, source: Shape3, output: Size) -> list[Way]:
    """Return all ways to pack the image of a convolution; the first packs nothing."""
    found = []
    for axes in ((), (1,), (0,), (0, 1)):
        rest = tuple(axis for axis in AXES if axis not in axes)
        height, width = (output[axis] if axis in axes else source[1 + axis] for axis in AXES)
        found.append(Way(axes, Packing(source, window.packed(rest), (height, width)), window.packed(axes)))
    return found
