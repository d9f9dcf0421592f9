"""What is known of a network's numbers in eight bits: the tensors that its file quantises.

A real x is held as q = round_half_even(x / scale) + zero, a signed byte. Files that hold unsigned bytes are the same
with q and zero shifted by 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

LOWEST, HIGHEST = -128, 127
"""Of a signed byte."""

MOST_WEIGHT = 127
"""Weights are symmetric: -127..127, and 0 is 0."""


class TensorScale(NamedTuple):
    """``scale`` > 0 is the real number of one step, ``zero`` in -128..127 the byte that is the real 0."""

    scale: float
    zero: int

    @property
    def low(self) -> float:
        """The lowest real number that it holds."""
        return (LOWEST - self.zero) * self.scale

    @property
    def high(self) -> float:
        """The highest real number that it holds."""
        return (HIGHEST - self.zero) * self.scale

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Reals -> signed bytes as int64, saturated, halves to even."""
        steps = np.rint(np.asarray(values, np.float64) / self.scale)
        return np.clip(steps + self.zero, LOWEST, HIGHEST).astype(np.int64)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        """Signed bytes -> reals in double precision."""
        return (np.asarray(numbers, np.float64) - self.zero) * self.scale


@dataclass(frozen=True)
class Quantization:
    """``tensors``: those that keep the scale and zero of the network's file, by their names in the graph that layers
    are built of; no layer may go on over one, but with a ReLU of the same scale and zero.

    Empty for a network of real numbers: then calibration alone decides.
    """

    tensors: Mapping[str, TensorScale] = field(default_factory=dict)

    def text(self) -> str:
        lines = [f"tensor {name}: scale {entry.scale:.9g} zero {entry.zero}" for name, entry in self.tensors.items()]
        return "\n".join(lines or ["nothing is quantised by the file"]) + "\n"
