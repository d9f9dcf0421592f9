# SPDX-License-Identifier: Apache-2.0
"""Stored numbers of a TensorFlow Lite tensor, and the real numbers that they mean."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tflite

from weft.compiler.errors import refuse

QUANTISE_AGAIN = "quantise the network again with TFLiteConverter"
CONVERT_AGAIN = "convert the network again with TFLiteConverter"
BYTES = ("int8", "uint8")
WORDS = "int16"
"""The type of activations of sixteen bits."""

TYPES = {getattr(tflite.TensorType, name): name.lower() for name in (
    "FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16", "INT4", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16",
    "UINT32", "UINT64", "BOOL", "STRING", "COMPLEX64", "COMPLEX128", "RESOURCE", "VARIANT")}
"""The schema's number of a type -> its name, which is numpy's if numpy has the type."""

UNREADABLE = ("string", "resource", "variant")


class Quantization(NamedTuple):
    """The meaning of stored numbers: q is (q - zero) x scale.

    There is one scale and zero point for the tensor, or one for each entry of ``axis``."""

    scales: np.ndarray
    zeros: np.ndarray
    axis: int

    @classmethod
    def checked(cls, scales: np.ndarray, zeros: np.ndarray, axis: int, name: str,
                shape: tuple[int, ...]) -> Quantization:
        """Return the quantisation of the tensor ``name``. Raise CompileError for one without meaning."""
        bad = scales[~(np.isfinite(scales) & (scales > 0))]
        if bad.size:
            raise refuse(f"scale of tensor {name!r}", float(bad[0]), "finite numbers above 0", QUANTISE_AGAIN)
        if zeros.size not in (1, scales.size):
            raise refuse(f"zero points of tensor {name!r}", f"{zeros.size} numbers",
                         f"one, or as many as scales, {scales.size}", QUANTISE_AGAIN)
        if scales.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scales.size):
            raise refuse(f"scales of tensor {name!r}", f"{scales.size} numbers for axis {axis} of {list(shape)}",
                         "one for the tensor, or one for each entry of an axis", QUANTISE_AGAIN)
        return cls(scales, np.broadcast_to(zeros, scales.shape), axis)

    def real(self, numbers: np.ndarray) -> np.ndarray:
        """Return the real numbers of stored ones, in single precision."""
        sizes = [-1 if place == self.axis else 1 for place in range(numbers.ndim)] if self.scales.size > 1 else []
        return ((numbers.astype(np.float64) - self.zeros.reshape(sizes)) * self.scales.reshape(sizes)).astype(
            np.float32)


def stored(content: np.ndarray, kind: str, shape: tuple[int, ...] | None, name: str) -> np.ndarray:
    """Return a buffer's bytes as numbers of the type ``kind``, in ``shape`` or, if it is None, in a row.

    Raise CompileError if they do not fill it, or are not numbers."""
    if kind in UNREADABLE or kind.startswith(("type", "complex")):
        raise refuse(f"type of constant {name!r}", kind, "numbers", CONVERT_AGAIN)
    count = None if shape is None else math.prod(shape)
    if kind == "int4":
        numbers = _nibbles(content)[:count]
    else:
        size = 2 if kind == "bfloat16" else np.dtype(kind).itemsize
        if content.size % size:
            raise _unfilled(name, content.size, f"numbers of {size} bytes")
        numbers = _wide(content) if kind == "bfloat16" else np.frombuffer(content.tobytes(), kind)
    if shape is None:
        return numbers
    if numbers.size != count:
        raise _unfilled(name, content.size, f"{count} numbers of {kind}")
    return numbers.reshape(shape)


def _unfilled(name: str, size: int, allowed: str) -> Exception:
    """Return the error for a constant whose data have another size."""
    return refuse(f"data of constant {name!r}", f"{size} bytes", allowed, CONVERT_AGAIN)


def _nibbles(content: np.ndarray) -> np.ndarray:
    """Return the two 4-bit numbers of each byte, the lower half first."""
    both = np.stack([content & 15, content >> 4], 1).ravel().astype(np.int8)
    return np.where(both > 7, both - 16, both).astype(np.int8)


def _wide(content: np.ndarray) -> np.ndarray:
    """Return bfloat16 as float32, whose upper half it is."""
    return (np.frombuffer(content.tobytes(), np.uint16).astype(np.uint32) << 16).view(np.float32)
