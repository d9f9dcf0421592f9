# SPDX-License-Identifier: Apache-2.0
"""Windows over images: the arithmetic of kernels that convolutions, pools, scheduler and passes share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

Size = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class Window:
    """The window of a kernel over an image: output pixel y reads inputs y * stride - pad + k * dilation, k < kernel.

    Pairs are (height, width); ``pads`` counts pixels above and left, what overhangs below and right is clipped."""

    kernel: Size = (1, 1)
    strides: Size = (1, 1)
    pads: Size = (0, 0)
    dilations: Size = (1, 1)

    def taps(self) -> list[Size]:
        """Return the taps (row, column) of the kernel, row by row."""
        return [(y, x) for y in range(self.kernel[0]) for x in range(self.kernel[1])]

    def inputs(self, axis: int, low: int, high: int, size: int) -> tuple[int, int]:
        """Return the input range [low, high) that outputs [low, high) read, clipped to an image of ``size``."""
        stride, pad = self.strides[axis], self.pads[axis]
        reach = (self.kernel[axis] - 1) * self.dilations[axis]
        first = min(max(low * stride - pad, 0), size)
        return first, max(min((high - 1) * stride - pad + reach + 1, size), first)

    def input_counts(self, axis: int, low: np.ndarray, high: np.ndarray, size: int) -> np.ndarray:
        """Return how many inputs each of the output ranges [``low``, ``high``) reads; see :meth:`inputs`."""
        stride, pad = self.strides[axis], self.pads[axis]
        reach = (self.kernel[axis] - 1) * self.dilations[axis]
        first = np.maximum(low * stride - pad, 0)
        return np.asarray(np.maximum(np.minimum((high - 1) * stride - pad + reach + 1, size) - first, 0))

    def outputs(self, axis: int, tap: int, low: int, high: int, size: int) -> tuple[int, int]:
        """Return the outputs within [low, high) for which this tap falls into the image; the rest reads padding."""
        stride, offset = self.strides[axis], tap * self.dilations[axis] - self.pads[axis]
        first = max(low, -(offset // stride))
        last = min(high, (size - 1 - offset) // stride + 1)
        return first, max(first, last)

    def reads(self, axis: int, output: int, limits: tuple[int, int]) -> tuple[int, ...]:
        """Return the input coordinates, within [low, high) of ``limits``, that one output reads."""
        first = output * self.strides[axis] - self.pads[axis]
        taps = (first + tap * self.dilations[axis] for tap in range(self.kernel[axis]))
        return tuple(tap for tap in taps if limits[0] <= tap < limits[1])

    def work(self, size: Size, output: Size) -> int:
        """Return the vectors of one channel tile through the array: pairs of an output pixel and a tap in the image.

        ``size`` is that of the image, ``output`` that of the result."""
        pairs = 1
        for axis in range(2):
            spans = (self.outputs(axis, tap, 0, output[axis], size[axis]) for tap in range(self.kernel[axis]))
            pairs *= sum(high - low for low, high in spans)
        return pairs

    def partitions(self, size: Size, output: Size) -> bool:
        """Tell whether each pixel of an image of ``size`` is read for exactly one pixel of the result."""
        whole = tuple(count * stride for count, stride in zip(output, self.strides, strict=True))
        return self.kernel == self.strides and self.dilations == (1, 1) and not any(self.pads) and whole == size

    def packed(self, axes: Iterable[int]) -> Window:
        """Return the window that is left if the taps along these axes are packed into channels.

        Along these axes the image then has the output's size."""
        kernel, strides, pads, dilations = map(list, (self.kernel, self.strides, self.pads, self.dilations))
        for axis in axes:
            kernel[axis], strides[axis], pads[axis], dilations[axis] = 1, 1, 0, 1
        return Window(*((pair[0], pair[1]) for pair in (kernel, strides, pads, dilations)))

    def only(self, taps: Iterable[Size]) -> Window:
        """Return the smallest window that has these taps (at least one) in the same places."""
        spans = [(min(axis), max(axis)) for axis in zip(*taps, strict=True)]
        (top, bottom), (left, right) = spans
        return replace(self, kernel=(bottom - top + 1, right - left + 1),
                       pads=(self.pads[0] - top * self.dilations[0], self.pads[1] - left * self.dilations[1]))


@dataclass(frozen=True)
class Enlargement(Window):
    """A window that repeats each pixel ``factors`` (height, width) times: output y reads input y // factor."""

    factors: Size = (1, 1)

    def inputs(self, axis: int, low: int, high: int, size: int) -> tuple[int, int]:
        """Return the input range [low, high) that outputs [low, high) read."""
        factor = self.factors[axis]
        return low // factor, max(-(-high // factor), low // factor)

    def input_counts(self, axis: int, low: np.ndarray, high: np.ndarray, size: int) -> np.ndarray:
        """Return how many inputs each of the output ranges [``low``, ``high``) reads."""
        factor = self.factors[axis]
        return np.asarray(np.maximum(-(-high // factor) - low // factor, 0))

    def work(self, size: Size, output: Size) -> int:
        """Return the number of output pixels, each of which reads one pixel."""
        return output[0] * output[1]

    def only(self, taps: Iterable[Size]) -> Window:
        """Return the window itself, which has a single tap."""
        return self
