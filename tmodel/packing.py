"""A thin first layer is packed by the host: taps of its kernel, padding included, lie in channels of its input.

Three channels on eight lanes leave five idle. Where the taps along an axis become channels, the image has the output's
size along that axis, and what is left of the kernel is one tap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from weft.tmodel.window import Size, Window

AXES = (0, 1)
Shape3 = tuple[int, int, int]


@dataclass(frozen=True)
class Packing:
    """``window`` says which pixels of an image of ``source`` [channels, height, width] lie in one pixel of the packed
    one of ``size``: channel number tap * channels + c is channel c of the pixel that the tap reads, taps row by row.
    What lies outside the image is zero."""

    source: Shape3
    window: Window
    size: Size

    @property
    def layout(self) -> Shape3:
        """[channels, height, width] of the packed image."""
        return self.source[0] * math.prod(self.window.kernel), *self.size

    def pack(self, image: np.ndarray) -> np.ndarray:
        """An image [..., channels, height, width] of ``source`` -> [..., *layout]."""
        window, (channels, *size) = self.window, self.source
        packed = np.zeros((*image.shape[:-3], math.prod(window.kernel), channels, *self.size), image.dtype)
        for number, tap in enumerate(window.taps()):
            inside, read = [], []
            for axis in AXES:
                low, high = window.outputs(axis, tap[axis], 0, self.size[axis], size[axis])
                first = low * window.strides[axis] - window.pads[axis] + tap[axis] * window.dilations[axis]
                inside.append(slice(low, high))
                read.append(first + window.strides[axis] * np.arange(high - low))
            packed[..., number, :, inside[0], inside[1]] = image[..., read[0][:, None], read[1]]
        return packed.reshape(*image.shape[:-3], *self.layout)

    def to_json(self) -> dict[str, Any]:
        window = self.window
        return {"source": self.source, "size": self.size, "kernel": window.kernel, "strides": window.strides,
                "pads": window.pads, "dilations": window.dilations}
