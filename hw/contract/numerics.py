# SPDX-License-Identifier: Apache-2.0
"""Fixed-point arithmetic of the machine, bit for bit (docs/machine/number-schemes.md, "Fixed point").

All functions take and give integers (Python ints or numpy arrays); a scalar of value v at binary point p is the
integer v * 2**p. Rounding is always HALF_EVEN and results always saturate; a function that does either says so.
The hardware twin of these functions is ``hw/parts/fixed_point.py``; both are tested against each other.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.support.errors import ArchError

Integers = Any
"""A Python int or a numpy array of int64 or, for more than 63 bits, of Python ints (dtype object)."""


def bits_to_count(count: int) -> int:
    """Return the bits that number ``count`` values, 0..count-1."""
    return (count - 1).bit_length()


def integer_dtype(bits: int) -> type:
    """Return the numpy dtype that holds signed integers of ``bits`` bits exactly: int64, or object beyond 63."""
    return np.int64 if bits <= 63 else object


def minimum(width: int) -> int:
    """Return the lowest signed integer of ``width`` bits."""
    return -(1 << (width - 1))


def maximum(width: int) -> int:
    """Return the highest signed integer of ``width`` bits."""
    return (1 << (width - 1)) - 1


def saturate(value: Integers, width: int) -> Integers:
    """Return ``value`` clipped to the range of a signed integer of ``width`` bits."""
    low, high = minimum(width), maximum(width)
    if isinstance(value, np.ndarray):
        if value.dtype != object and width >= 8 * value.itemsize:
            return value
        return np.minimum(np.maximum(value, low), high)  # several times as fast as np.clip on single vectors
    return min(max(value, low), high)


def filling_point(magnitude: float, width: int) -> float:
    """Return the point, a real number, at which ``magnitude`` > 0 is the largest integer of ``width`` bits."""
    return math.log2(maximum(width) / magnitude)


def largest_point(magnitude: float, width: int) -> int:
    """Return the largest point at which ``magnitude`` fits a signed integer of ``width`` bits.

    For a magnitude of 0 it is ``width`` - 1."""
    return math.floor(filling_point(magnitude, width)) if magnitude else width - 1


def round_half_even(value: Integers, shift: int) -> Integers:
    """Return value / 2**shift, rounded to the nearest integer, ties to the even one. It does not saturate.

    The number added below the cut is half minus one, plus one if the result's last bit is odd: exact in one
    addition."""
    if shift == 0:
        return value
    return (value + ((1 << (shift - 1)) - 1) + ((value >> shift) & 1)) >> shift


def requantize(value: Integers, shift: int, width: int) -> Integers:
    """Return accumulators as scalars of ``width`` bits: ``shift`` bits are rounded off, then it saturates."""
    return saturate(round_half_even(value, shift), width)


def rescale_input(value: Integers, shift: int, accumulator_width: int) -> Integers:
    """Return scalars as accumulators: shifted left by ``shift``, saturated at the accumulator's width."""
    if isinstance(value, np.ndarray):
        value = value.astype(integer_dtype(accumulator_width + shift))
    return saturate(value << shift, accumulator_width)


@dataclass(frozen=True)
class DataType:
    """A type of scalars, ``FP<width>BP<point>`` or ``INT8``: storage, limits, and the number that means 1.0.

    ``width`` is 4..32 bits, ``point`` 1..width-2 bits of fraction. ``INT8`` has 8 bits and no fraction: One is 1."""

    width: int
    point: int

    PATTERN = re.compile(r"FP([0-9]{1,4})BP?([0-9]{1,4})")
    WIDTHS = range(4, 33)
    INTEGERS: ClassVar[dict[str, int]] = {"INT8": 8}
    """Name -> width of the types without a fraction."""

    @classmethod
    def parse(cls, name: str) -> DataType:
        """Return the type of a name: ``INT8``, ``FP16BP8``, or the spelling ``FP32B16`` of the original tools.

        Raise ArchError if the name is no type."""
        if isinstance(name, str) and name in cls.INTEGERS:
            return cls(cls.INTEGERS[name], 0)
        match = cls.PATTERN.fullmatch(name) if isinstance(name, str) else None
        if match is None:
            raise ArchError("data_type", name, "INT8 or FP<width>BP<point>, such as FP16BP8 or FP32BP16",
                            "write the width in bits, then the binary point")
        width, point = int(match[1]), int(match[2])
        if width not in cls.WIDTHS or not 1 <= point <= width - 2:
            raise ArchError("data_type", name, f"width {cls.WIDTHS[0]}..{cls.WIDTHS[-1]}, point 1..width-2 (One fits)",
                            "choose a wider type or move its binary point")
        return cls(width, point)

    @property
    def name(self) -> str:
        """The name of the type, as the key ``data_type`` has it."""
        return f"FP{self.width}BP{self.point}" if self.point else f"INT{self.width}"

    @property
    def scalar_bytes(self) -> int:
        """Bytes of one scalar in DRAM: the smallest power of two that holds it (18 bits take 4 bytes)."""
        return next(size for size in (1, 2, 4) if 8 * size >= self.width)

    @property
    def storage_dtype(self) -> np.dtype:
        """The numpy type of a scalar in DRAM, little-endian; its unused high bits repeat the sign."""
        return np.dtype(f"<i{self.scalar_bytes}")

    @property
    def one(self) -> int:
        """The scalar that means 1.0 at the type's own point."""
        return 1 << self.point

    @property
    def minimum(self) -> int:
        """The lowest scalar."""
        return minimum(self.width)

    @property
    def maximum(self) -> int:
        """The highest scalar."""
        return maximum(self.width)

    def saturate(self, value: Integers) -> Integers:
        """Return ``value`` clipped to the range of a scalar."""
        return saturate(value, self.width)

    def multiply(self, left: Integers, right: Integers) -> Integers:
        """Return the ALU's product: rounded by the type's point, ties to even, saturated."""
        return self.saturate(round_half_even(left * right, self.point))

    def truncate(self, value: Integers) -> Integers:
        """Return the low ``width`` bits of ``value`` as a signed number.

        A scalar that is narrower than its bytes in DRAM is read like this."""
        return ((value + (1 << (self.width - 1))) & ((1 << self.width) - 1)) - (1 << (self.width - 1))

    def quantize(self, value: np.ndarray, point: int | None = None) -> np.ndarray:
        """Return floats as int64 scalars at ``point`` (default: the type's own), ties to even, saturated."""
        with np.errstate(over="ignore"):  # infinity saturates too
            scaled = np.rint(np.asarray(value, np.float64) * 2.0 ** (self.point if point is None else point))
        return np.clip(scaled, self.minimum, self.maximum).astype(np.int64)

    def dequantize(self, value: np.ndarray, point: int | None = None) -> np.ndarray:
        """Return scalars at ``point`` (default: the type's own) as float64."""
        return np.asarray(value, np.float64) * 2.0 ** -(self.point if point is None else point)


def multiply_exact(activations: np.ndarray, weights: np.ndarray, width: int) -> np.ndarray:
    """Return the exact matrix product of integers: [n, rows] x [rows, columns] -> [n, columns].

    ``width``: bits of the factors. It is done in float64 (BLAS) while every partial sum is below 2**53, in Python ints
    beyond 63 bits."""
    bits = 2 * width - 1 + max(weights.shape[0], 1).bit_length()
    if bits <= 53:
        return (activations.astype(np.float64) @ weights.astype(np.float64)).astype(np.int64)
    dtype = integer_dtype(bits)
    return activations.astype(dtype) @ weights.astype(dtype)
