# SPDX-License-Identifier: Apache-2.0
"""The packings that pack_inputs chooses from: which taps of a convolution over a thin image become channels.

The packing itself, which the host does, is in ``tmodel/packing.py``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.tmodel.packing import AXES, Packing, Shape3
from weft.tmodel.window import Size, Window


@dataclass(frozen=True)
class InputPacking:
    """A ``packing`` of an image, in which taps along ``axes`` (0 rows, 1 columns) become channels.

    ``window`` is the convolution's window over the packed image."""

    axes: tuple[int, ...]
    packing: Packing
    window: Window

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Return a convolution's weights [out, in, height, width] reordered for ``window`` and the packed channels."""
        order = (0, *(2 + axis for axis in self.axes), 1, *(2 + axis for axis in AXES if axis not in self.axes))
        return weights.transpose(order).reshape(len(weights), self.packing.layout[0], *self.window.kernel)


def input_packings(window: Window, source: Shape3, output: Size) -> list[InputPacking]:
    """Return the four packings of a convolution's image; the first leaves it as it is.

    ``source`` [channels, height, width] is the image, ``output`` (rows, columns) the convolution's result."""
    found = []
    for axes in ((), (1,), (0,), (0, 1)):
        rest = tuple(axis for axis in AXES if axis not in axes)
        height, width = (output[axis] if axis in axes else source[1 + axis] for axis in AXES)
        found.append(InputPacking(axes, Packing(source, window.packed(rest), (height, width)), window.packed(axes)))
    return found
