"""How a tensor holds real numbers: at a binary point, or in bytes of a scale around a zero point."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weft.hw.contract.numerics import DataType

LOWEST, HIGHEST = -128, 127
"""Of a signed byte."""

SHIFTS = {"int8": 0, "uint8": 128}
"""What a byte of the user's has more than the signed one that is stored, by numpy's name of its type."""


class TensorPoint(NamedTuple):
    """A real x is round(x * 2**``point``), saturated; ``point`` None: the type's own. ``zero`` is the
    real 0."""

    number: DataType
    point: int | None

    @property
    def zero(self) -> int:
        return 0

    @property
    def step(self) -> float:
        """The real number of one step."""
        return 2.0 ** -(self.number.point if self.point is None else self.point)

    @property
    def low(self) -> float:
        """The lowest real number that is held."""
        return self.number.minimum * self.step

    @property
    def high(self) -> float:
        return self.number.maximum * self.step

    @property
    def exponent(self) -> int:
        """Magnitudes of 2**exponent and more saturate."""
        return self.number.width - 1 - (self.number.point if self.point is None else self.point)

    def saturated(self, numbers: np.ndarray, values: np.ndarray) -> int:
        """How many scalars are at the ends of their range."""
        return int(np.isin(numbers, (self.number.minimum, self.number.maximum)).sum())

    def quantize(self, values: np.ndarray) -> np.ndarray:
        return self.number.quantize(values, self.point)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        return self.number.dequantize(numbers, self.point)


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

    def holds(self, low: float, high: float) -> bool:
        """Whether it holds these numbers, to a step."""
        return self.low - self.scale <= low and high <= self.high + self.scale

    @property
    def mirrored(self) -> TensorScale:
        """The scale whose bytes are the negative of this one's."""
        return TensorScale(self.scale, -1 - self.zero)

    @property
    def step(self) -> float:
        return self.scale

    @property
    def exponent(self) -> int:
        return math.ceil(math.log2(max(self.high, -self.low) + self.scale))

    def saturated(self, numbers: np.ndarray, values: np.ndarray) -> int:
        """How many bytes are at the ends of their range where the real ``values`` are a step or more beyond it."""
        ends = np.isin(numbers, (LOWEST, HIGHEST))
        return int((ends & ((values <= self.low - self.scale) | (values >= self.high + self.scale))).sum())

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Reals -> signed bytes as int64, saturated, halves to even; in single precision, as onnxruntime divides."""
        steps = np.rint(np.asarray(values, np.float32) / np.float32(self.scale))
        return np.clip(steps + self.zero, LOWEST, HIGHEST).astype(np.int64)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        """Signed bytes -> reals in double precision."""
        return (np.asarray(numbers, np.float64) - self.zero) * self.scale


class FactorScale(TensorScale):
    """Of what LoadScale reads as multipliers: bytes without a sign, 0 is the real 0."""

    __slots__ = ()

    @classmethod
    def of(cls, scale: float) -> FactorScale:
        return cls(scale, 0)

    @property
    def low(self) -> float:
        return 0.0

    @property
    def high(self) -> float:
        return (HIGHEST - LOWEST) * self.scale

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Reals -> the bytes as they are stored, with a sign."""
        steps = np.clip(np.rint(np.asarray(values, np.float32) / np.float32(self.scale)), 0, HIGHEST - LOWEST)
        return np.where(steps > HIGHEST, steps - 256, steps).astype(np.int64)

    def dequantize(self, numbers: np.ndarray) -> np.ndarray:
        return (np.asarray(numbers, np.int64) & HIGHEST - LOWEST) * self.scale


TensorNumbers = TensorPoint | TensorScale
