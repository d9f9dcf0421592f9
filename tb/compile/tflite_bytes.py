# SPDX-License-Identifier: Apache-2.0
"""Small TensorFlow Lite files of bytes, and of activations of sixteen bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.tb.compile.tflite_files import INT8, INT16, INT32, FileMaker, Graph
from weft.tb.compile.tflite_floats import IMAGE, RELU, RELU6, VALID, Make, kind_of, weights


def stored(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, list[float]]:
    """Weights as bytes with a scale for each entry of an axis."""
    others = tuple(place for place in range(values.ndim) if place != axis)
    scales = np.abs(values).max(others, keepdims=True) / 127
    return np.rint(values / scales).astype(np.int8), scales.ravel().tolist()


def int8_conv(graph: Graph, source: int, shape: Sequence[int], made: Sequence[int], scale: float, *,
              code: str = "CONV_2D", of: tuple[float, int] = (0.02, 3), wide: bool = False, **options: Any) -> int:
    """A convolution of [3, 3] with a scale a channel; ``wide``: of 16-bit activations. ``of``: scale and zero of
    input and output."""
    depthwise = code == "DEPTHWISE_CONV_2D"
    axis = 3 if depthwise else 0
    numbers, scales = stored(weights(*((1, 3, 3, made[-1]) if depthwise else (made[-1], 3, 3, shape[-1]))), axis)
    filters = graph.constant(numbers, INT8, scale=scales, axis=axis)
    bias_scales = (np.array(scales) * scale).tolist()
    bias = graph.constant(np.rint(weights(made[-1], seed=4) / bias_scales), "int64" if wide else INT32,
                          scale=bias_scales)
    return graph.run(code, [source, filters, bias], made, INT16 if wide else INT8, scale=of[0], zero=of[1],
                     options={"StrideW": 1, "StrideH": 1, "DepthMultiplier": 1, **options} if depthwise else {
                         "StrideW": 1, "StrideH": 1, **options})


def int8_network(file: FileMaker, kind: str = INT8, scale: float = 0.025, zero: int = -5) -> None:
    """Limits, depthwise taps, a residual sum, a pool, a table, a mean, a matrix; all bytes."""
    graph = file.main
    shape, half = (1, 12, 10, 6), (1, 6, 5, 8)
    x = graph.input("x", shape, kind, scale=scale, zero=zero + (128 if kind == "uint8" else 0))
    if kind == "uint8":
        x = graph.run("QUANTIZE", [x], shape, INT8, scale=0.025, zero=-5)
    first = int8_conv(graph, x, shape, half, 0.025, of=(6 / 255, -128), StrideW=2, StrideH=2,
                      FusedActivationFunction=RELU6)
    deep = int8_conv(graph, first, half, half, 6 / 255, code="DEPTHWISE_CONV_2D", of=(0.03, -128),
                     FusedActivationFunction=RELU)
    line = int8_conv(graph, deep, half, half, 0.03, of=(0.05, 10))
    total = graph.run("ADD", [first, line], half, INT8, scale=0.06, zero=-20, options={})
    pooled = graph.run("MAX_POOL_2D", [total], (1, 3, 2, 8), INT8, scale=0.06, zero=-20,
                       options={"Padding": VALID, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2})
    gate = graph.run("LOGISTIC", [pooled], (1, 3, 2, 8), INT8, scale=1 / 256, zero=-128)
    mean = graph.run("MEAN", [gate, graph.constant([1, 2], INT32)], (1, 8), INT8, scale=0.0045, zero=-128)
    numbers, scales = stored(weights(5, 8).reshape(1, -1))
    filters = graph.constant(numbers.reshape(5, 8), INT8, scale=scales)
    bias = graph.constant(np.arange(5) * 30, INT32, scale=scales[0] * 0.0045)
    made = graph.run("FULLY_CONNECTED", [mean, filters, bias], (1, 5), INT8, scale=0.01, zero=4, options={})
    if kind == "uint8":
        graph.run("QUANTIZE", [made], (1, 5), "uint8", scale=0.01, zero=132)


def int8_of(code: str, made: tuple[float, int], constants: Sequence[Any] = (), shape: Sequence[int] = IMAGE,
            **options: Any) -> Make:
    """One operator between bytes of scale 0.02 around 3 and those of ``made``."""
    def make(file: FileMaker) -> None:
        graph = file.main
        x = graph.input("x", IMAGE, INT8, scale=0.02, zero=3)
        known = [graph.constant(value, kind_of(value)) for value in constants]
        graph.run(code, [x, *known], shape, INT8, scale=made[0], zero=made[1], options=options)

    return make


def unsigned(file: FileMaker) -> None:
    """As files were before int8: unsigned, one scale and a zero point for all weights of a layer."""
    graph = file.main
    x = graph.input("x", IMAGE, "uint8", scale=0.02, zero=120)
    numbers = np.random.default_rng(3).integers(1, 256, (5, 2, 2, 4))
    known = [graph.constant(numbers, "uint8", scale=0.004, zero=131),
             graph.constant(np.arange(5) * 100 - 200, INT32, scale=0.02 * 0.004)]
    graph.run("CONV_2D", [x, *known], (1, 6, 7, 5), "uint8", scale=0.03, zero=100,
              options={"StrideW": 1, "StrideH": 1, "FusedActivationFunction": RELU6})


def joined_bytes(file: FileMaker) -> None:
    """Parts of other scales than the whole, which TensorFlow Lite has of unsigned bytes."""
    graph = file.main
    both = [graph.input(name, IMAGE, "uint8", scale=scale, zero=zero)
            for name, scale, zero in (("x", 0.02, 131), ("other", 0.013, 121))]
    graph.run("CONCATENATION", both, (1, 6, 7, 8), "uint8", scale=0.02, zero=131, options={"Axis": 3})


def hybrid(file: FileMaker) -> None:
    """Real numbers around bytes."""
    graph = file.main
    x = graph.run("QUANTIZE", [graph.input("x", IMAGE)], IMAGE, INT8, scale=0.02, zero=3)
    made = int8_conv(graph, x, IMAGE, (1, 6, 7, 5), 0.02)
    graph.run("DEQUANTIZE", [made], (1, 6, 7, 5))


def transposed_bytes(file: FileMaker) -> None:
    """A transposed convolution of two images, three phases each."""
    graph, shape, made = file.main, (2, 8, 7, 7), (2, 25, 8, 2)
    x = graph.input("x", shape, INT8, scale=0.02, zero=-3)
    numbers, scales = stored(weights(2, 4, 2, 7))
    filters = graph.constant(numbers, INT8, scale=scales)
    graph.run("TRANSPOSE_CONV", [graph.constant(made, INT32), filters, x], made, INT8, scale=0.02, zero=-17,
              options={"Padding": VALID, "StrideH": 3, "StrideW": 1})


def mean_of_one(file: FileMaker) -> None:
    """The mean of a single number is that number in another scale."""
    graph = file.main
    x = graph.input("x", (1, 1), INT8, scale=0.02, zero=3)
    graph.run("MEAN", [x, graph.constant([1], INT32)], (1, 1), INT8, scale=0.05, zero=13, options={"KeepDims": True})


def least_of_products(file: FileMaker) -> None:
    """A minimum is bounded by what it chooses from, whose rounding becomes the scale of the tensor before it."""
    graph = file.main
    x = graph.input("x", (1, 4), INT8, scale=0.02, zero=3)
    factor = graph.constant([[5, -20, 100, 7]], INT8, scale=0.02, zero=3)
    product = graph.run("MUL", [x, factor], (1, 4), INT8, scale=0.03, zero=-24,
                        options={"FusedActivationFunction": RELU})
    graph.run("REDUCE_MIN", [product, graph.constant([1], INT32)], (1, 1), INT8, scale=0.03, zero=-24,
              options={"KeepDims": True})


SAME_SCALE = (0.02, 3)
BYTES: dict[str, Make] = {
    "a network of int8": int8_network, "a network of int8 between uint8": partial(int8_network, kind="uint8"),
    "a convolution of uint8": unsigned,
    "real numbers around bytes": hybrid, "TRANSPOSE_CONV of two images": transposed_bytes,
    "MEAN of a single number": mean_of_one, "REDUCE_MIN of products": least_of_products,
    "CONCATENATION of scales": joined_bytes,
    "PAD of bytes": int8_of("PAD", SAME_SCALE, [[[0, 0], [1, 2], [0, 0], [0, 0]]], (1, 9, 7, 4)),
    "RESHAPE of bytes": int8_of("RESHAPE", SAME_SCALE, [[1, 168]], (1, 168)),
    "RELU of bytes": int8_of("RELU", (0.01, -128)), "LEAKY_RELU of bytes": int8_of("LEAKY_RELU", (0.02, 1), Alpha=0.1),
    "TANH of bytes": int8_of("TANH", (1 / 128, 0)), "HARD_SWISH of bytes": int8_of("HARD_SWISH", (0.02, -100)),
    "QUANTIZE again": int8_of("QUANTIZE", (0.03, -20)),
    "SOFTMAX of bytes": int8_of("SOFTMAX", (1 / 256, -128), Beta=1.0),
    "MAX_POOL_2D of bytes": int8_of("MAX_POOL_2D", SAME_SCALE, shape=(1, 3, 3, 4), Padding=VALID, StrideW=2, StrideH=2,
                                    FilterWidth=2, FilterHeight=2),
    "AVERAGE_POOL_2D of bytes": int8_of("AVERAGE_POOL_2D", SAME_SCALE, shape=(1, 3, 3, 4), Padding=VALID, StrideW=2,
                                        StrideH=2, FilterWidth=2, FilterHeight=2),
    "RESIZE_BILINEAR of bytes": int8_of("RESIZE_BILINEAR", SAME_SCALE, [[12, 14]], (1, 12, 14, 4),
                                        HalfPixelCenters=True),
    "STRIDED_SLICE of bytes": int8_of("STRIDED_SLICE", SAME_SCALE, [[0, 1, 0, 0], [1, 6, 7, 4], [1, 2, 3, 1]],
                                      (1, 3, 3, 4)),
}
"""Bytes with scales."""


def words(file: FileMaker) -> None:
    """Activations of sixteen bits, weights of eight."""
    graph = file.main
    x = graph.input("x", IMAGE, INT16, scale=1 / 8192)
    made = int8_conv(graph, x, IMAGE, (1, 6, 7, 5), 1 / 8192, wide=True, of=(1 / 1024, 0),
                     FusedActivationFunction=RELU)
    graph.run("ADD", [made, made], (1, 6, 7, 5), INT16, scale=1 / 512, options={"PotScaleInt16": False})
