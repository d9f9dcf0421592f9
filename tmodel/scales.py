# SPDX-License-Identifier: Apache-2.0
"""The encoding of real numbers in a tensor: at a binary point, or in bytes with a scale and a zero point."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weft.hw.contract.numerics import DataType

LOWEST, HIGHEST = -128, 127
"""The ends of a signed byte."""

SHIFTS = {"int8": 0, "uint8": 128}
"""numpy's name of a user's byte type -> its difference to the signed byte that is stored."""


class TensorPoint(NamedTuple):
    """A tensor at a binary point: a real x is round(x * 2**``point``), saturated.

    ``point`` None: the data type's own."""

    number: DataType
    point: int | None

    @property
    def zero(self) -> int:
        """The scalar that is the real 0."""
        return 0

    @property
    def step(self) -> float:
        """The real number of one step."""
        return 2.0 ** -(self.number.point if self.point is None else self.point)

    @property
    def low(self) -> float:
        """The lowest real number that can be encoded."""
        return self.number.minimum * self.step

    @property
    def high(self) -> float:
        """The highest real number that can be encoded."""
        return self.number.maximum * self.step

    @property
    def exponent(self) -> int:
        """The exponent from which on magnitudes 2**exponent saturate."""
        return self.number.width - 1 - (self.number.point if self.point is None else self.point)

    def saturated(self, numbers: np.ndarray, values: np.ndarray) -> int:
        """Return how many scalars are at the ends of their range."""
        return int(np.isin(numbers, (self.number.minimum, self.number.maximum)).sum())

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Return real numbers as scalars, rounded and saturated."""
        return self.number.quantize(values, self.point)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        """Return scalars as real numbers."""
        return self.number.dequantize(numbers, self.point)


class TensorScale(NamedTuple):
    """A tensor of bytes: ``scale`` > 0 is the real number of one step, ``zero`` in -128..127 the byte of the real 0."""

    scale: float
    zero: int

    @property
    def low(self) -> float:
        """The lowest real number that can be encoded."""
        return (LOWEST - self.zero) * self.scale

    @property
    def high(self) -> float:
        """The highest real number that can be encoded."""
        return (HIGHEST - self.zero) * self.scale

    def holds(self, low: float, high: float) -> bool:
        """Tell whether the range low..high can be encoded, to a step."""
        return self.low - self.scale <= low and high <= self.high + self.scale

    @property
    def mirrored(self) -> TensorScale:
        """The scale whose bytes are the negative of this one's."""
        return TensorScale(self.scale, -1 - self.zero)

    @property
    def step(self) -> float:
        """The real number of one step."""
        return self.scale

    @property
    def exponent(self) -> int:
        """The exponent from which on magnitudes 2**exponent saturate."""
        return math.ceil(math.log2(max(self.high, -self.low) + self.scale))

    def saturated(self, numbers: np.ndarray, values: np.ndarray) -> int:
        """Return how many bytes are at the ends of their range while the real value is a step beyond it."""
        ends = np.isin(numbers, (LOWEST, HIGHEST))
        return int((ends & ((values <= self.low - self.scale) | (values >= self.high + self.scale))).sum())

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Return real numbers as signed bytes (int64), saturated, halves to even.

        It divides in single precision, as onnxruntime does."""
        with np.errstate(over="ignore"):  # infinity saturates too
            steps = np.rint(np.asarray(values, np.float32) / np.float32(self.scale))
        return np.clip(steps + self.zero, LOWEST, HIGHEST).astype(np.int64)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        """Return signed bytes as real numbers in double precision."""
        return (np.asarray(numbers, np.float64) - self.zero) * self.scale


class FactorScale(TensorScale):
    """The scale of factors that LoadScale reads as multipliers: unsigned bytes, 0 is the real 0."""

    __slots__ = ()

    @classmethod
    def of(cls, scale: float) -> FactorScale:
        """Return the scale with this step."""
        return cls(scale, 0)

    @property
    def low(self) -> float:
        """The lowest real number that can be encoded, 0."""
        return 0.0

    @property
    def high(self) -> float:
        """The highest real number that can be encoded."""
        return (HIGHEST - LOWEST) * self.scale

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Return real numbers as the bytes that are stored, with a sign."""
        steps = np.clip(np.rint(np.asarray(values, np.float32) / np.float32(self.scale)), 0, HIGHEST - LOWEST)
        return np.where(steps > HIGHEST, steps - 256, steps).astype(np.int64)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        """Return stored bytes as real numbers."""
        return (np.asarray(numbers, np.int64) & HIGHEST - LOWEST) * self.scale


TensorNumbers = TensorPoint | TensorScale
