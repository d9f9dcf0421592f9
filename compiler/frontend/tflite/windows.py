# SPDX-License-Identifier: Apache-2.0
"""Convert pools, sums over axes, and resizing of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.frontend.tflite.convolutions import strides_of, window_pads
from weft.compiler.frontend.tflite.operation import Convert, Operation
from weft.compiler.frontend.tflite.values import FILE, ORDER, PLANES


def _window(op: Operation) -> dict[str, Any]:
    """Return the attributes of a pool's window."""
    _, height, width, _ = op.shape(0, 4)
    kernel, strides = (op.option("FilterHeight"), op.option("FilterWidth")), strides_of(op)
    pads = window_pads(op, kernel, strides, (1, 1), (height, width), op.option("Padding"))
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}


def average_pool_2d(op: Operation) -> None:
    """Convert AVERAGE_POOL_2D."""
    op.write("AveragePool", [op.read(0, PLANES)], PLANES, activation=True, **_window(op))


def max_pool_2d(op: Operation) -> None:
    """Convert MAX_POOL_2D."""
    op.write("MaxPool", [op.read(0, PLANES)], PLANES, activation=True, rounds=False, **_window(op))


def l2_pool_2d(op: Operation) -> None:
    """Convert L2_POOL_2D: the root of the mean square of each window."""
    source = op.read(0, PLANES)
    mean = op.emit("AveragePool", [op.emit("Mul", [source, source])], **_window(op))
    op.write("Sqrt", [mean], PLANES, activation=True)


def reduced(onnx: str, rounds: bool = True) -> Convert:
    """Return the conversion of a reduction over the axes in input 1.

    Remaining axes keep their order, so planes serve unless channels remain beside others."""
    def convert(op: Operation) -> None:
        rank, keeps = len(op.shape(0)), bool(op.option("KeepDims"))
        axes = sorted({op.axis(axis, rank) for axis in op.integers(1)})
        layout = op.layout(0)
        if layout == PLANES and not keeps:
            left = [axis for axis in ORDER[PLANES] if axis not in axes]
            layout = layout if left == sorted(left) else FILE
        source = op.read(0, layout)
        if not axes:
            op.write("Identity", [source], layout, rounds=rounds)
            return
        there = op.constant(np.array(sorted(op.place(axis, layout) for axis in axes), np.int64), "axes")
        op.write(onnx, [source, there], layout if keeps else FILE, rounds=rounds, keepdims=int(keeps))

    return convert


def arg(onnx: str) -> Convert:
    """Return the conversion of ARG_MAX or ARG_MIN, whose results ONNX gives as int64."""
    def convert(op: Operation) -> None:
        axis = op.axis(op.integers(1)[0] if op.numbers(1).size else 0, len(op.shape(0)))
        found = op.emit(onnx, [op.read(0)], axis=axis, keepdims=0)
        op.write("Cast", [found], to=op.outputs[0].onnx_type)

    return convert


def _resize(op: Operation, mode: str, nearest: str) -> None:
    """Add a Resize to the result's size; options say which pixel a place lies on."""
    sizes = op.constant(np.array([op.made[axis] for axis in ORDER[PLANES]] if len(op.made) == 4 else [], np.int64),
                        "size")
    place = "align_corners" if op.option("AlignCorners") else "half_pixel" if op.option("HalfPixelCenters") else \
        "asymmetric"
    op.write("Resize", [op.read(0, PLANES), "", "", sizes], PLANES, mode=mode, nearest_mode=nearest,
             coordinate_transformation_mode=place)


def resize_bilinear(op: Operation) -> None:
    """Convert RESIZE_BILINEAR."""
    _resize(op, "linear", "floor")


def resize_nearest_neighbor(op: Operation) -> None:
    """Convert RESIZE_NEAREST_NEIGHBOR; halves round up, unless places are simply cut off."""
    exact = op.option("AlignCorners") or op.option("HalfPixelCenters")
    _resize(op, "nearest", "round_prefer_ceil" if exact else "floor")


CONVERTERS: dict[str, Convert] = {
    "ARG_MAX": arg("ArgMax"), "ARG_MIN": arg("ArgMin"), "AVERAGE_POOL_2D": average_pool_2d, "L2_POOL_2D": l2_pool_2d,
    "MAX_POOL_2D": max_pool_2d, "MEAN": reduced("ReduceMean"), "REDUCE_MAX": reduced("ReduceMax", rounds=False),
    "REDUCE_MIN": reduced("ReduceMin", rounds=False), "REDUCE_PROD": reduced("ReduceProd"),
    "RESIZE_BILINEAR": resize_bilinear, "RESIZE_NEAREST_NEIGHBOR": resize_nearest_neighbor,
    "SUM": reduced("ReduceSum")}
