# SPDX-License-Identifier: Apache-2.0
"""Write weights of few bits as real numbers, and tensors of sixteen bits as the real numbers that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.frontend.check_quantizers import DEQUANTIZE
from weft.compiler.frontend.rewriter import Writer, input_of
from weft.tmodel.onnx_bounds import check_size

WIDE = ("int16", "uint16")
"""The types of sixteen bits."""


def matmul_of_bits(writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write MatMulNBits of constant weights as the MatMul with the real numbers that they mean."""
    rows, columns, bits, block = (given.get(name, 0) for name in ("K", "N", "bits", "block_size"))
    packed, scales, zeros = (writer.known.get(input_of(node, number)) for number in (1, 2, 3))
    if packed is None or scales is None or input_of(node, 4) or bits not in (2, 4, 8) or block < 1 or rows < 1:
        return False
    blocks = -(-rows // block)
    if packed.dtype != np.uint8 or packed.size * 8 != columns * blocks * block * bits or (
            scales.size != columns * blocks) or bool(input_of(node, 3)) != (zeros is not None):
        return False
    check_size(f"the weights of node {node.name or node.output[0]!r}", (columns, blocks * block))
    writer.count(columns * blocks * block)
    numbers = _unpacked(packed.reshape(columns * blocks, -1), bits).astype(np.float32)
    if zeros is None:
        numbers -= 1 << bits - 1
    elif zeros.dtype == np.uint8 and zeros.size == columns * -(-blocks * bits // 8):
        numbers -= _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks].reshape(-1, 1)
    elif zeros.dtype.kind == "f" and zeros.size == columns * blocks:
        numbers -= zeros.reshape(-1, 1)
    else:
        return False
    with np.errstate(all="ignore"):  # what is no number is found where it is used
        numbers *= scales.astype(np.float32).reshape(-1, 1)
    weights = writer.constant(node, np.ascontiguousarray(numbers.reshape(columns, -1)[:, :rows].T))
    bias = input_of(node, 5)
    made = writer.add(node, "MatMul", [node.input[0], weights], "" if bias else node.output[0])
    if bias:
        writer.add(node, "Add", [made, bias], node.output[0])
    return True


def _unpacked(values: np.ndarray, bits: int) -> np.ndarray:
    """Return numbers of few bits [rows, n] from bytes [rows, bytes]; the lowest bits are the first number."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (values[..., None] >> shifts & ((1 << bits) - 1)).reshape(len(values), -1)


def dequantize(writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write DequantizeLinear of constants, of blocks or of sixteen bits, as a constant; of a wide tensor as nothing."""
    if node.input[0] in writer.wide:
        writer.add(node, "Identity", node.input[:1], node.output[0])
        return True
    values, scales, zeros = (writer.known.get(input_of(node, number)) for number in range(3))
    block, axis = given.get("block_size", 0), given.get("axis", 1)
    if values is None or scales is None or bool(input_of(node, 2)) != (zeros is not None) or not (
            block or str(values.dtype) in WIDE) or not _are_scales(scales):
        return False
    scale = _spread(scales, values.shape, axis, block)
    zero = np.zeros((), np.float32) if zeros is None else _spread(zeros.astype(np.float32), values.shape, axis, block)
    if scale is None or zero is None:
        return False
    writer.count(values.size)
    with np.errstate(all="ignore"):
        numbers = ((values.astype(np.float32) - zero) * scale).astype(scales.dtype)
    writer.made.append(numpy_helper.from_array(numbers, node.output[0]))
    return True


def quantize(writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write QuantizeLinear to sixteen bits that only DequantizeLinear reads as nothing, or as the Relu that it is.

    Its rounding and its upper limit are left out, as those of TensorFlow Lite's files of sixteen bits."""
    scale, zero = (writer.known.get(input_of(node, number)) for number in (1, 2))
    readers = writer.readers.get(node.output[0], [])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or not _are_scales(scale) or (
            str(zero.dtype) not in WIDE) or given.get("block_size") or node.output[0] in writer.ends:
        return False
    for reader in readers:
        if reader.op_type != DEQUANTIZE or reader.input[0] != node.output[0] or any(
                not np.array_equal(writer.known.get(input_of(reader, number), ()), value)
                for number, value in ((1, scale), (2, zero))):
            return False
    writer.wide.add(node.output[0])
    clamps = int(zero.ravel()[0]) == np.iinfo(zero.dtype).min
    writer.add(node, "Relu" if clamps else "Identity", node.input[:1], node.output[0])
    return True


def _are_scales(scales: np.ndarray) -> bool:
    """Tell whether all are finite real numbers above 0."""
    return scales.dtype.kind == "f" and bool((np.isfinite(scales) & (scales > 0)).all())


def _spread(numbers: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray | None:
    """Return scales or zero points in a shape that broadcasts to ``shape``: one, one an entry of ``axis``, or blocks.

    Return None if they do not fit."""
    if numbers.size == 1 and not block:
        return numbers.reshape(())
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    block = min(block, shape[axis])
    if not block:
        return (numbers.reshape([-1 if place == axis else 1 for place in range(len(shape))])
                if numbers.size == shape[axis] else None)
    wanted = tuple(-(-size // block) if place == axis else size for place, size in enumerate(shape))
    return np.repeat(numbers, block, axis).take(range(shape[axis]), axis) if (
        block > 0 and numbers.shape == wanted) else None
