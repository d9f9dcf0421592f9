# SPDX-License-Identifier: Apache-2.0
"""Convert operators that move blocks of pixels into channels or batches, and back."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.tflite.operation import Convert, Operation
from weft.compiler.frontend.tflite.schema import CONVERT_AGAIN
from weft.compiler.frontend.tflite.values import PLANES


def of_channels(onnx: str) -> Convert:
    """Return the conversion of DEPTH_TO_SPACE or SPACE_TO_DEPTH, whose channels lie as ONNX's do."""
    def convert(op: Operation) -> None:
        op.write(onnx, [op.read(0, PLANES)], PLANES, rounds=False, blocksize=op.option("BlockSize"))

    return convert


def _arguments(op: Operation) -> tuple[list[int], np.ndarray]:
    """Return the block's sizes, and two numbers for each of its axes: pads or crops."""
    block, borders = op.integers(1), op.numbers(2)
    if min(block, default=0) < 1 or borders.shape != (len(block), 2) or borders.min() < 0 or len(op.shape(0)) <= len(
            block):
        raise op.refusal("block and borders", f"{block} and {borders.tolist() if borders.size < 20 else borders.shape}",
                         f"sizes above 0 of axes of {list(op.shape(0))}, two borders each", CONVERT_AGAIN)
    return block, borders


def space_to_batch_nd(op: Operation) -> None:
    """Convert SPACE_TO_BATCH_ND.

    [batch, height, width, ...] becomes [block x batch, height / block, width / block, ...], padded first."""
    block, pads = _arguments(op)
    batch, *sizes = op.shape(0)
    count, others = len(block), sizes[len(block):]
    before, behind = ([0, *pads[:, side].tolist(), *[0] * len(others)] for side in range(2))
    source = op.emit("Pad", [op.read(0), op.constant(np.array(before + behind, np.int64), "pads")])
    padded = [size + sum(pair) for size, pair in zip(sizes[:count], pads.tolist(), strict=True)]
    if any(size % part for size, part in zip(padded, block, strict=True)):
        raise op.refusal("sizes with pads", padded, f"multiples of {block}", CONVERT_AGAIN)
    apart = [number for size, part in zip(padded, block, strict=True) for number in (size // part, part)]
    source = op.reshaped(source, [batch, *apart, *others])
    inside, outside = [2 + 2 * axis for axis in range(count)], [1 + 2 * axis for axis in range(count)]
    order = [*inside, 0, *outside, *(1 + 2 * count + axis for axis in range(len(others)))]
    op.give(op.reshaped(op.emit("Transpose", [source], perm=order), op.made), rounds=False)


def batch_to_space_nd(op: Operation) -> None:
    """Convert BATCH_TO_SPACE_ND, the inverse of SPACE_TO_BATCH_ND, cropped at the end."""
    block, crops = _arguments(op)
    batch, *sizes = op.shape(0)
    count, others = len(block), sizes[len(block):]
    if batch % int(np.prod(block)):
        raise op.refusal("batch", batch, f"a multiple of {int(np.prod(block))}", CONVERT_AGAIN)
    source = op.reshaped(op.read(0), [*block, batch // int(np.prod(block)), *sizes])
    together = [number for axis in range(count) for number in (count + 1 + axis, axis)]
    order = [count, *together, *(2 * count + 1 + axis for axis in range(len(others)))]
    source = op.emit("Transpose", [source], perm=order)
    whole = [size * part for size, part in zip(sizes[:count], block, strict=True)]
    source = op.reshaped(source, [batch // int(np.prod(block)), *whole, *others])
    bounds = [crops[:, 0], np.array(whole) - crops[:, 1], np.arange(count) + 1]
    names = [op.constant(numbers.astype(np.int64), what)
             for numbers, what in zip(bounds, ("begins", "ends", "axes"), strict=True)]
    op.give(op.emit("Slice", [source, *names]), rounds=False)


CONVERTERS: dict[str, Convert] = {
    "BATCH_TO_SPACE_ND": batch_to_space_nd, "DEPTH_TO_SPACE": of_channels("DepthToSpace"),
    "SPACE_TO_BATCH_ND": space_to_batch_nd, "SPACE_TO_DEPTH": of_channels("SpaceToDepth")}
