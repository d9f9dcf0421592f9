# SPDX-License-Identifier: Apache-2.0
"""Small TensorFlow Lite files of real numbers, one for each operator and each way that it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.tb.compile.tflite_files import INT32, FileMaker, Graph

Make = Callable[[FileMaker], Any]
IMAGE = (1, 6, 7, 4)
RELU, RELU_N1_TO_1, RELU6, TANH = 1, 2, 3, 4
SAME, VALID = 0, 1


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float32)


def of_image(code: str, shape: Sequence[int] = IMAGE, constants: Sequence[Any] = (), source: Sequence[int] = IMAGE,
             kind: str = "float32", **options: Any) -> Make:
    """One operator behind a convolution, so that its input lies as planes."""
    def make(file: FileMaker) -> None:
        graph = file.main
        x = graph.input("x", source)
        if len(source) == 4:
            x = conv(graph, x, source, source[-1])
        known = [graph.constant(value, kind_of(value)) for value in constants]
        graph.run(code, [x, *known], shape, kind, options=options)

    return make


def kind_of(value: Any) -> str:
    return INT32 if np.asarray(value).dtype.kind == "i" else "float32"


def conv(graph: Graph, source: int, shape: Sequence[int], outputs: int) -> int:
    """A convolution of one pixel."""
    filters = graph.constant(weights(outputs, 1, 1, shape[-1], seed=9))
    return graph.run("CONV_2D", [source, filters, graph.constant(weights(outputs, seed=8))], [*shape[:3], outputs],
                     options={"Padding": VALID, "StrideW": 1, "StrideH": 1})


def window(code: str, filters: Sequence[int], made: Sequence[int], source: Sequence[int] = IMAGE, bias: int = 0,
           **options: Any) -> Make:
    """A convolution; ``bias``: how many numbers."""
    def make(file: FileMaker) -> None:
        graph = file.main
        inputs = [graph.input("x", source), graph.constant(weights(*filters))]
        graph.run(code, [*inputs, *([graph.constant(weights(bias, seed=1))] if bias else [])], made,
                  options={"StrideW": 1, "StrideH": 1, **options})

    return make


def transposed(filters: Sequence[int], made: Sequence[int], padding: int, stride: int, bias: bool) -> Make:
    def make(file: FileMaker) -> None:
        graph = file.main
        inputs = [graph.constant(made, INT32), graph.constant(weights(*filters)), graph.input("x", IMAGE)]
        graph.operator("TRANSPOSE_CONV", [*inputs, *([graph.constant(weights(filters[0], seed=1))] if bias else [])],
                       [graph.tensor("y", made)], {"Padding": padding, "StrideW": stride, "StrideH": stride},
                       version=3 if bias else 1)

    return make


def pool(code: str, padding: int, made: Sequence[int], stride: int = 2, **options: Any) -> Make:
    return of_image(code, made, Padding=padding, StrideW=stride, StrideH=stride, FilterWidth=3, FilterHeight=2,
                    **options)


def two_images(code: str, **options: Any) -> Make:
    """Of two computed images."""
    def make(file: FileMaker) -> None:
        graph = file.main
        x, other = graph.input("x", IMAGE), graph.input("other", IMAGE)
        graph.run(code, [conv(graph, x, IMAGE, 4), other], IMAGE, options=options)

    return make


def parts(code: str, inputs: Callable[[Graph, int], Sequence[int]], shapes: Sequence[Sequence[int]],
          **options: Any) -> Make:
    """An operator of several results."""
    def make(file: FileMaker) -> None:
        graph = file.main
        x = conv(graph, graph.input("x", IMAGE), IMAGE, 4)
        made = [graph.tensor(f"part{number}", shape) for number, shape in enumerate(shapes)]
        graph.operator(code, inputs(graph, x), made, options)
        graph.outputs = made

    return make


def joined(axis: int, made: Sequence[int], code: str = "CONCATENATION", **options: Any) -> Make:
    def make(file: FileMaker) -> None:
        graph = file.main
        x, other = graph.input("x", IMAGE), graph.input("other", IMAGE)
        graph.run(code, [conv(graph, x, IMAGE, 4), other], made, options={"Axis": axis, **options})

    return make


def matrix(made: Sequence[int], source: Sequence[int], **options: Any) -> Make:
    def make(file: FileMaker) -> None:
        graph = file.main
        inputs = [graph.input("x", source), graph.constant(weights(5, 8)), graph.constant(weights(5, seed=1))]
        graph.run("FULLY_CONNECTED", inputs, made, options=options)

    return make


def product(adjoint: bool, known: bool) -> Make:
    def make(file: FileMaker) -> None:
        graph = file.main
        shape = (1, 5, 4) if adjoint else (1, 4, 5)
        right = graph.constant(weights(*shape)) if known else graph.input("other", shape)
        graph.run("BATCH_MATMUL", [graph.input("x", (1, 3, 4)), right], (1, 3, 5), options={"AdjY": adjoint})

    return make


def half_weights(file: FileMaker) -> None:
    """Constants of half precision, and what makes them real numbers."""
    graph = file.main
    x, half = graph.input("x", IMAGE), graph.constant(weights(3, 2, 2, 4), "float16")
    filters = graph.run("DEQUANTIZE", [half], (3, 2, 2, 4))
    bias = graph.constant(weights(3, seed=1))
    graph.run("CONV_2D", [x, filters, bias], (1, 6, 7, 3), options={"Padding": SAME, "StrideW": 1, "StrideH": 1})


def sparse_weights(blocks: bool) -> Make:
    """The kept ones of [5, 8] weights by rows, or in blocks of [1, 4]."""
    def make(file: FileMaker) -> None:
        graph = file.main
        dense = weights(5, 8)
        dense[1], dense[3, 4:] = 0, 0
        if blocks:
            kept = [(row, block) for row in range(5) for block in range(2) if dense[row, 4 * block:4 * block + 4].any()]
            stored = np.concatenate([dense[row, 4 * block:4 * block + 4] for row, block in kept])
            columns, order, levels = 2, [0, 1, 2], [4]
        else:
            kept = [(row, column) for row in range(5) for column in range(8) if dense[row, column]]
            stored, columns, order, levels = np.array([dense[place] for place in kept]), 8, [0, 1], []
        counts = [sum(row == each for row, _ in kept) for each in range(5)]
        segments = np.concatenate([[0], np.cumsum(counts)])
        places = (segments, [column for _, column in kept])
        assert columns > max(places[1])
        known = graph.tensor("sparse", (5, 8), data=stored, sparsity=(order, [1] if blocks else [],
                                                                      [5, places, *levels]))
        filled = graph.run("DENSIFY", [known], (5, 8))
        graph.run("FULLY_CONNECTED", [graph.input("x", (1, 8)), filled], (1, 5), options={})

    return make


def activation(number: int) -> Make:
    return window("CONV_2D", (3, 2, 2, 4), (1, 6, 7, 3), bias=3, FusedActivationFunction=number)


def strided(begin: Sequence[int], end: Sequence[int], steps: Sequence[int], made: Sequence[int], **masks: Any) -> Make:
    return of_image("STRIDED_SLICE", made, [begin, end, steps], **masks)


def chosen(file: FileMaker) -> None:
    graph = file.main
    x, other = graph.input("x", IMAGE), graph.input("other", IMAGE)
    graph.run("SELECT_V2", [graph.run("GREATER", [x, other], IMAGE, "bool"), x, other], IMAGE)


def chosen_rows(file: FileMaker) -> None:
    """A condition for each entry of the first axis."""
    graph = file.main
    x, other, line = graph.input("x", (3, 8)), graph.input("other", (3, 8)), graph.input("line", (3,))
    graph.run("SELECT", [graph.run("GREATER", [line, graph.constant(0.5)], (3,), "bool"), x, other], (3, 8))


def over_nothing(file: FileMaker) -> None:
    """A mean over the axes of a single number, of which there are none."""
    graph = file.main
    line, one = graph.input("x", (3, 8)), graph.input("one", ())
    graph.run("MEAN", [line, graph.run("SHAPE", [one], (0,), INT32, options={"OutType": 2})], (3, 8))


def of_channels(file: FileMaker) -> None:
    """A number for each channel that is computed, so that it gets the axes of planes."""
    graph = file.main
    image, line = conv(graph, graph.input("x", IMAGE), IMAGE, 4), graph.input("line", (4,))
    graph.run("ADD", [image, graph.run("ABS", [line], (4,))], IMAGE)


def filled(file: FileMaker) -> None:
    graph = file.main
    number = graph.run("SUM", [graph.input("x", (3, 8)), graph.constant([0, 1], INT32)], ())
    graph.run("FILL", [graph.constant([2, 3], INT32), number], (2, 3))


def turned_weights(file: FileMaker) -> None:
    graph = file.main
    known = graph.run("TRANSPOSE", [graph.constant(weights(8, 5)), graph.constant([1, 0], INT32)], (5, 8))
    graph.run("FULLY_CONNECTED", [graph.input("x", (1, 8)), known], (1, 5))


def of_shapes(file: FileMaker) -> None:
    """A shape that the network asks for."""
    graph = file.main
    x = graph.input("x", IMAGE)
    sizes = graph.run("SHAPE", [x], (4,), INT32, options={"OutType": 2})
    ones = graph.run("FILL", [sizes, graph.constant(0.5)], IMAGE)
    graph.run("ADD", [x, ones], IMAGE)


PLACES: Sequence[dict[str, Any]] = ({}, {"AlignCorners": True}, {"HalfPixelCenters": True})
SUMS: Sequence[tuple[int, dict[str, Any]]] = ((3, {}), (1, {"Exclusive": True}), (2, {"Reverse": True}))
SLOPES = weights(1, 1, 4)
FLOATS: dict[str, Make] = {
    # -- convolutions and matrices
    "CONV_2D, SAME, stride 2": window("CONV_2D", (3, 3, 3, 4), (1, 3, 4, 3), bias=3, StrideW=2, StrideH=2),
    "CONV_2D, VALID, stride 2 and 1": window("CONV_2D", (3, 2, 3, 4), (1, 5, 3, 3), bias=3, Padding=VALID, StrideW=2),
    "CONV_2D, dilated": window("CONV_2D", (3, 2, 2, 4), (1, 6, 7, 3), bias=3, DilationWFactor=2, DilationHFactor=3),
    "CONV_2D, groups": window("CONV_2D", (6, 2, 2, 2), (1, 6, 7, 6), bias=6),
    "DEPTHWISE_CONV_2D": window("DEPTHWISE_CONV_2D", (1, 3, 3, 4), (1, 3, 4, 4), bias=4, StrideW=2, StrideH=2,
                                DepthMultiplier=1),
    "DEPTHWISE_CONV_2D, two of each": window("DEPTHWISE_CONV_2D", (1, 2, 2, 8), (1, 6, 7, 8), bias=8,
                                             DepthMultiplier=2),
    "TRANSPOSE_CONV, SAME": transposed((3, 3, 3, 4), (1, 12, 14, 3), SAME, 2, False),
    "TRANSPOSE_CONV, VALID, bias": transposed((3, 3, 2, 4), (1, 13, 14, 3), VALID, 2, True),
    "TRANSPOSE_CONV, smaller kernel": transposed((3, 1, 1, 4), (1, 12, 14, 3), SAME, 2, False),
    "FULLY_CONNECTED": matrix((3, 5), (3, 8), FusedActivationFunction=RELU),
    "FULLY_CONNECTED, of an image": matrix((2, 5), (1, 2, 2, 4)),
    "FULLY_CONNECTED, axes kept": matrix((1, 3, 5), (1, 3, 8), KeepNumDims=True),
    "BATCH_MATMUL": product(False, False), "BATCH_MATMUL, turned": product(True, False),
    "BATCH_MATMUL, turned constant": product(True, True),
    "half precision": half_weights, "sparse rows": sparse_weights(False), "sparse blocks": sparse_weights(True),
    **{f"fused {name}": activation(number) for name, number in (
        ("RELU", RELU), ("RELU_N1_TO_1", RELU_N1_TO_1), ("RELU6", RELU6))},
    # -- numbers in their places
    **{code: two_images(code) for code in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")},
    "ADD, RELU6": two_images("ADD", FusedActivationFunction=RELU6),
    "ADD of channels": of_image("ADD", constants=[weights(4)]),
    "MUL by one": of_image("MUL", constants=[np.float32(3)]),
    "DIV by pixels": of_image("DIV", constants=[2 + np.abs(weights(6, 7, 1))]),
    "PRELU": of_image("PRELU", constants=[SLOPES]), "LEAKY_RELU": of_image("LEAKY_RELU", Alpha=0.2),
    **{code: of_image(code) for code in (
        "ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "RELU6",
        "RELU_N1_TO_1", "SIN", "SQUARE", "TANH")},
    "LOG": of_image("LOG", source=(3, 8), shape=(3, 8)), "SQRT": of_image("SQRT", source=(3, 8), shape=(3, 8)),
    "RSQRT": of_image("RSQRT", source=(3, 8), shape=(3, 8)),
    "POW": of_image("POW", constants=[np.float32(2)]),
    "SOFTMAX": of_image("SOFTMAX", Beta=1.0), "SOFTMAX, beta": of_image("SOFTMAX", (3, 8), source=(3, 8), Beta=0.5),
    "LOG_SOFTMAX": of_image("LOG_SOFTMAX"), "L2_NORMALIZATION": of_image("L2_NORMALIZATION"),
    "LOCAL_RESPONSE_NORMALIZATION": of_image("LOCAL_RESPONSE_NORMALIZATION", Radius=1, Bias=1.0, Alpha=0.5, Beta=0.5),
    "ADD of computed channels": of_channels, "SELECT_V2": chosen, "SELECT of rows": chosen_rows,
    "CAST": of_image("CAST", kind=INT32, InDataType=0, OutDataType=2),
    "FLOOR_DIV": of_image("FLOOR_DIV", constants=[np.float32(0.3)]),
    "FAKE_QUANT": of_image("FAKE_QUANT", Min=-0.25, Max=0.5, NumBits=16),
    "FLOOR_DIV of whole numbers": lambda file: file.main.run("FLOOR_DIV", [
        file.main.input("x", (3, 8), INT32), file.main.constant([-7] * 4 + [5] * 4, INT32)], (3, 8), INT32),
    # -- windows
    "AVERAGE_POOL_2D, SAME": pool("AVERAGE_POOL_2D", SAME, (1, 3, 4, 4)),
    "AVERAGE_POOL_2D, VALID": pool("AVERAGE_POOL_2D", VALID, (1, 3, 3, 4), FusedActivationFunction=RELU),
    "MAX_POOL_2D, SAME": pool("MAX_POOL_2D", SAME, (1, 6, 7, 4), stride=1),
    "L2_POOL_2D": pool("L2_POOL_2D", VALID, (1, 3, 3, 4)),
    "MEAN of pixels": of_image("MEAN", (1, 4), [[1, 2]]),
    "MEAN, axes kept": of_image("MEAN", (1, 1, 1, 4), [[1, -2]], KeepDims=True),
    "MEAN of no axis": over_nothing,
    "MEAN of rows": of_image("MEAN", (1, 7, 4), [[1]]), "SUM of channels": of_image("SUM", (1, 6, 7), [[3]]),
    "REDUCE_MAX": of_image("REDUCE_MAX", (1, 4), [[1, 2]]), "REDUCE_MIN": of_image("REDUCE_MIN", (1, 6, 7), [[-1]]),
    "REDUCE_PROD": of_image("REDUCE_PROD", (1, 6, 7), [[-1]]),
    "ARG_MAX": of_image("ARG_MAX", (1, 6, 7), [np.int32(3)], kind=INT32, OutputType=2),
    **{f"RESIZE_BILINEAR, {size[0]} x {size[1]}{''.join(f', {key}' for key in options)}":
       of_image("RESIZE_BILINEAR", (1, *size, 4), [size], **options)
       for size in ((12, 14), (9, 5)) for options in PLACES},
    **{f"RESIZE_NEAREST_NEIGHBOR, {size[0]} x {size[1]}{''.join(f', {key}' for key in options)}":
       of_image("RESIZE_NEAREST_NEIGHBOR", (1, *size, 4), [size], **options)
       for size in ((12, 14), (9, 5)) for options in PLACES},
    # -- moves
    "CONCATENATION of channels": joined(3, (1, 6, 7, 8)), "CONCATENATION of rows": joined(-3, (1, 12, 7, 4)),
    "PACK": joined(1, (1, 2, 6, 7, 4), "PACK", ValuesCount=2),
    "UNPACK": parts("UNPACK", lambda graph, x: [x], [(1, 6, 4)] * 7, Axis=2, Num=7),
    "SPLIT": parts("SPLIT", lambda graph, x: [graph.constant(3, INT32), x], [(1, 6, 7, 2)] * 2, NumSplits=2),
    "SPLIT_V": parts("SPLIT_V", lambda graph, x: [x, graph.constant([3, -1], INT32), graph.constant(1, INT32)],
                     [(1, 3, 7, 4), (1, 3, 7, 4)], NumSplits=2),
    "PAD": of_image("PAD", (1, 9, 7, 6), [[[0, 0], [1, 2], [0, 0], [0, 2]]]),
    "PADV2": of_image("PADV2", (1, 7, 8, 4), [[[0, 0], [1, 0], [0, 1], [0, 0]], np.float32(2)]),
    "MIRROR_PAD, REFLECT": of_image("MIRROR_PAD", (1, 9, 8, 4), [[[0, 0], [1, 2], [0, 1], [0, 0]]], Mode=0),
    "MIRROR_PAD, SYMMETRIC": of_image("MIRROR_PAD", (1, 9, 8, 4), [[[0, 0], [1, 2], [0, 1], [0, 0]]], Mode=1),
    "RESHAPE": of_image("RESHAPE", (1, 42, 4), [[1, -1, 4]]),
    "SQUEEZE": of_image("SQUEEZE", (6, 7, 4)), "EXPAND_DIMS": of_image("EXPAND_DIMS", (1, 6, 1, 7, 4), [np.int32(2)]),
    "TRANSPOSE": of_image("TRANSPOSE", (1, 4, 6, 7), [[0, 3, 1, 2]]),
    "SLICE": of_image("SLICE", (1, 3, 6, 2), [[0, 2, 1, 1], [1, 3, -1, 2]]),
    "STRIDED_SLICE": strided([0, 1, 0, 0], [1, 6, 7, 4], [1, 2, 3, 1], (1, 3, 3, 4)),
    "STRIDED_SLICE, masks": strided([9, 1, -3, 0], [9, 9, -1, 0], [1, 1, 1, 1], (1, 5, 2, 4), BeginMask=9, EndMask=11),
    "STRIDED_SLICE, one": strided([0, 0, -1, 0], [1, 6, 0, 4], [1, 1, 1, 1], (1, 6, 4), ShrinkAxisMask=4),
    "STRIDED_SLICE, backwards": strided([0, 5, 0, 0], [1, -99, 7, 4], [1, -2, 1, 1], (1, 3, 7, 4)),
    "STRIDED_SLICE, new axis": strided([0, 0, 1], [1, 0, 5], [1, 1, 2], (1, 1, 2, 7, 4), NewAxisMask=2),
    "STRIDED_SLICE, ellipsis": strided([0, 0, 1], [1, 0, 3], [1, 1, 1], (1, 6, 7, 2), EllipsisMask=2),
    "SLICE of everything": of_image("SLICE", IMAGE, [[0, 0, 0, 0], [-1, -1, -1, -1]]),
    "MIRROR_PAD of nothing": of_image("MIRROR_PAD", IMAGE, [[[0, 0]] * 4], Mode=1),
    "GATHER_ND": of_image("GATHER_ND", (3, 4), [[[0, 5, 1], [0, 2, 6], [0, 0, 0]]]),
    "GATHER": of_image("GATHER", (1, 6, 7, 2), [[3, 1]], Axis=3),
    "TILE": of_image("TILE", (1, 6, 14, 4), [[1, 1, 2, 1]]),
    "BROADCAST_TO": of_image("BROADCAST_TO", (3, 8), [[3, 8]], source=(1, 8)),
    "REVERSE_V2": of_image("REVERSE_V2", IMAGE, [[2]]), "SHAPE and FILL": of_shapes,
    "FILL by a computed number": filled, "TRANSPOSE of a constant": turned_weights,
    **{f"CUMSUM of axis {axis}": of_image("CUMSUM", IMAGE, [np.int32(axis)], **options)
       for axis, options in SUMS},
    "DEPTH_TO_SPACE": of_image("DEPTH_TO_SPACE", (1, 12, 14, 1), BlockSize=2),
    "SPACE_TO_DEPTH": of_image("SPACE_TO_DEPTH", (1, 3, 4, 16), source=(1, 6, 8, 4), BlockSize=2),
    "SPACE_TO_BATCH_ND": of_image("SPACE_TO_BATCH_ND", (4, 3, 4, 4), [[2, 2], [[0, 0], [1, 0]]]),
    "BATCH_TO_SPACE_ND": of_image("BATCH_TO_SPACE_ND", (1, 11, 14, 4), [[2, 2], [[1, 0], [0, 0]]],
                                  source=(4, 6, 7, 4)),
}
"""Real numbers."""
