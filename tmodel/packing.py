# SPDX-License-Identifier: Apache-2.0
"""Packing on the host (im2col) for a thin first layer: taps of its kernel become channels of its input.

Three channels on eight lanes leave five idle. If the taps along an axis become channels, the image has the output's
size along that axis, padding is included, and one tap is left of the kernel."""

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
    """The packing of an image of ``source`` [channels, height, width] into one of ``size`` (height, width).

    ``window`` tells which pixels lie in one packed pixel: channel number tap * channels + c is channel c of the pixel
    that the tap reads, taps row by row. Pixels outside the image are zero."""

    source: Shape3
    window: Window
    size: Size

    @property
    def layout(self) -> Shape3:
        """[channels, height, width] of the packed image."""
        return self.source[0] * math.prod(self.window.kernel), *self.size

    def pack(self, image: np.ndarray) -> np.ndarray:
        """Return an image [..., channels, height, width] of ``source`` as [..., *layout]."""
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
        """Return the packing's entry in a ``.tmodel``."""
        window = self.window
        return {"source": self.source, "size": self.size, "kernel": window.kernel, "strides": window.strides,
                "pads": window.pads, "dilations": window.dilations}
