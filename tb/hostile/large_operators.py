# SPDX-License-Identifier: Apache-2.0
"""Operators of huge attributes or of many steps, whose results are small enough to be asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from weft.tb.hostile.large_networks import Make, chain, net, weight
from weft.tb.hostile.onnx_constants import floats, ints, node, scalar


def one(shape: tuple[int, ...], operator: str, more: list[str] | None = None, *weights: onnx.TensorProto,
         **attributes: Any) -> Make:
    return lambda: net(shape, node(operator, ["x", *(more or [])], ["y"], **attributes), weights=weights)


def _recurrent(operator: str, steps: int, hidden: int, gates: int) -> Make:
    return lambda: net((steps, 1, 4), node(operator, ["x", "w", "r"], ["y"], hidden_size=hidden),
                       weights=(weight("w", 1, gates * hidden, 4), weight("r", 1, gates * hidden, hidden)))


def _loop(trips: int) -> Make:
    def make() -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        body = helper.make_graph(
            [node("Identity", ["go"], ["on"]), node("Relu", ["v"], ["u"])], "body",
            [value("i", 7, []), value("go", 9, []), value("v", 1, None)], [value("on", 9, []), value("u", 1, None)])
        return net((1, 4), node("Loop", ["n", "b", "x"], ["y"], body=body),
                   weights=(scalar("n", trips), scalar("b", True, bool)))

    return make


def doubled(times: int) -> onnx.ModelProto:
    """Return a network that adds the sum of a constant of one number, joined with itself so often."""
    joins = [node("Concat", [f"c{number}"] * 2, [f"c{number + 1}"], axis=0) for number in range(times)]
    return net((1, 4), *joins, node("ReduceSum", [f"c{times}"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"]),
               weights=(floats("c0", 1),))


LONG = (1, 3, 4, 1 << 20)
IMAGE = (1, 4, 64, 64)
OPERATORS: dict[str, Make] = {
    "Conv of a kernel of the image": one((1, 1, 512, 512), "Conv", ["w"], weight("w", 1, 1, 512, 512)),
    "Conv of a dilation of 2**20": one(IMAGE, "Conv", ["w"], weight("w", 1, 4, 2, 2), dilations=[1 << 20] * 2,
                                       pads=[1 << 19] * 4),
    "Conv of a stride of 2**40": one(IMAGE, "Conv", ["w"], weight("w", 1, 4, 1, 1), strides=[1 << 40] * 2),
    "Conv of pads of 2000": one(IMAGE, "Conv", ["w"], weight("w", 1, 4, 3, 3), pads=[2000] * 4),
    "Conv of 4096 groups": one((1, 4096, 4, 4), "Conv", ["w"], weight("w", 4096, 1, 3, 3), group=4096),
    "Conv of 2048 groups of 2": one((1, 4096, 4, 4), "Conv", ["w"], weight("w", 4096, 2, 1, 1), group=2048),
    "Conv of a long batch": one((4096, 1, 2, 2), "Conv", ["w"], weight("w", 1, 1, 2, 2)),
    "Conv of many channels": one((1, 8192, 1, 1), "Conv", ["w"], weight("w", 2048, 8192, 1, 1)),
    "Conv of a long line": one((1, 1, 1 << 20), "Conv", ["w"], weight("w", 4, 1, 9)),
    "Conv of a long line in steps": one((1, 1, 1 << 18), "Conv", ["w"], weight("w", 64, 1, 256), strides=[64]),
    "ConvTranspose of a stride of 900": one((1, 1, 2, 2), "ConvTranspose", ["w"], weight("w", 1, 1, 2, 2),
                                             strides=[900, 900]),
    "ConvTranspose of a stride of 40": one(IMAGE, "ConvTranspose", ["w"], weight("w", 4, 4, 64, 64),
                                            strides=[40, 40]),
    "ConvTranspose of a dilation of 2**20": one((1, 1, 2, 2), "ConvTranspose", ["w"], weight("w", 1, 1, 2, 2),
                                                 dilations=[1 << 20] * 2, pads=[1 << 19] * 4),
    "ConvTranspose of a batch": one((2048, 1, 2, 2), "ConvTranspose", ["w"], weight("w", 1, 1, 3, 3),
                                     strides=[2, 2]),
    "MaxPool of the image": one((1, 4, 1000, 1000), "MaxPool", kernel_shape=[1000, 1000]),
    "MaxPool of large windows": one((1, 4, 512, 512), "MaxPool", kernel_shape=[255, 255], pads=[127] * 4),
    "MaxPool of a batch": one((4096, 1, 4, 4), "MaxPool", kernel_shape=[2, 2]),
    "MaxPool of a dilation of 2**20": one(IMAGE, "MaxPool", kernel_shape=[2, 2], dilations=[1 << 20] * 2,
                                           pads=[1 << 19] * 4),
    "AveragePool of large windows": one((1, 4, 512, 512), "AveragePool", kernel_shape=[255, 255], pads=[127] * 4),
    "AveragePool of a long line": one((1, 1, 1 << 20), "AveragePool", kernel_shape=[3], pads=[1, 1]),
    "AveragePool of a batch": one((4096, 1, 4, 4), "AveragePool", kernel_shape=[3, 3], pads=[1] * 4),
    "GlobalAveragePool of a million": one((1, 1, 1024, 1024), "GlobalAveragePool"),
    "GlobalMaxPool of a million": one((1, 1, 1024, 1024), "GlobalMaxPool"),
    "Resize by cubes": one((1, 1, 500, 500), "Resize", ["", "", "n"], ints("n", 1, 1, 1499, 1499), mode="cubic"),
    "Resize by lines": one((1, 1, 700, 700), "Resize", ["", "", "n"], ints("n", 1, 1, 1400, 1400), mode="linear"),
    "Resize of a long line": one((1, 1, 1, 1 << 18), "Resize", ["", "", "n"], ints("n", 1, 1, 1, 1 << 19),
                                  mode="linear"),
    "Resize by 500": one((1, 1, 2, 2), "Resize", ["", "s"], floats("s", 1, 1, 500, 500), mode="nearest"),
    "Resize by 333.3": one((1, 1, 4, 4), "Resize", ["", "s"], floats("s", 1, 1, 333.3, 333.3), mode="nearest"),
    "Upsample by 900": lambda: net((1, 1, 2, 2), node("Upsample", ["x", "s"], ["y"]), opset=9,
                                   weights=(floats("s", 1, 1, 900, 900),)),
    "LSTM of 4000 steps": _recurrent("LSTM", 4000, 4, 4), "GRU of 4000 steps": _recurrent("GRU", 4000, 4, 3),
    "RNN of 16000 steps": _recurrent("RNN", 16_000, 4, 1), "LSTM of 2000 units": _recurrent("LSTM", 2, 1000, 4),
    "Loop of 100000": _loop(100_000), "Loop of -1": _loop(-1),
    "MatMul of a stack of 4000": one((4000, 4, 4), "MatMul", ["w"], weight("w", 4000, 4, 4)),
    "MatMul of two stacks of 4000": lambda: net((4000, 2, 2), node("MatMul", ["x", "x"], ["y"])),
    "MatMul of stacks that spread": lambda: net((64, 1, 2, 2), node("Transpose", ["x"], ["t"], perm=[1, 0, 2, 3]),
                                                node("MatMul", ["x", "t"], ["y"])),
    "MatMul of 1000 x 1000": lambda: net((1000, 1000), node("MatMul", ["x", "x"], ["y"])),
    "MatMul with its transpose": lambda: net((1, 65_536), node("Transpose", ["x"], ["t"]),
                                             node("MatMul", ["x", "t"], ["y"])),
    "Gemm of 60000 inputs": one((1, 60_000), "Gemm", ["w"], weight("w", 60_000, 100)),
    "Gemm of a row that lies crossed": lambda: net(
        (1, 64, 32, 32), node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]), node("Flatten", ["t"], ["f"]),
        node("Gemm", ["f", "w"], ["y"]), weights=(weight("w", 65_536, 100),)),
    "Softmax of 100000": one((1, 100_000), "Softmax"), "Softmax of 100000 channels": one((1, 100_000, 1, 1),
                                                                                          "Softmax", axis=1),
    "Softmax of a million rows": one((1, 1, 1 << 18, 4), "Softmax"),
    "Softmax of a batch": one((4000, 8), "Softmax", axis=0),
    "LogSoftmax over pixels": one((1, 2, 600, 600), "LogSoftmax", axis=2),
    "ReduceMax of a million": one((1, 1 << 20), "ReduceMax", ["n"], ints("n", 1)),
    "ReduceMax of channels": one((1, 50_000, 4), "ReduceMax", ["n"], ints("n", 1)),
    "ReduceMean of tall images": one((1, 1, 1 << 18, 4), "ReduceMean", ["n"], ints("n", 3)),
    "ReduceMean of wide images": one((1, 1, 4, 1 << 18), "ReduceMean", ["n"], ints("n", 2)),
    "ReduceSum of a large batch": one((1 << 16, 4), "ReduceSum", ["n"], ints("n", 0)),
    "ReduceSum over the middle": one((1, 1, 512, 512, 4), "ReduceSum", ["n"], ints("n", 3)),
    "ReduceL2 of a million": one((1, 1, 1024, 1024), "ReduceL2", ["n"], ints("n", 2, 3)),
    "ReduceMin over rows": one((1, 1, 4000, 64), "ReduceMin", ["n"], ints("n", 2)),
    "ReduceLogSumExp over channels": one((1, 20_000, 2, 2), "ReduceLogSumExp", ["n"], ints("n", 1)),
    "LayerNormalization of 100000": one((1, 100_000), "LayerNormalization", ["w"], weight("w", 100_000)),
    "LayerNormalization of many rows": one((1, 1 << 16, 16), "LayerNormalization", ["w"], weight("w", 16)),
    "GroupNormalization of 4000": one((1, 4000, 8, 8), "GroupNormalization", ["w", "w"], weight("w", 4000),
                                       num_groups=2000),
    "InstanceNormalization of a batch": one((2000, 2, 4, 4), "InstanceNormalization", ["w", "w"], weight("w", 2)),
    "MeanVarianceNormalization": one((1, 16, 512, 512), "MeanVarianceNormalization"),
    "Where of a mask of pixels": lambda: net((1, 1, 512, 512), node("Greater", ["n", "h"], ["m"]),
                                             node("Where", ["m", "x", "n"], ["y"]),
                                             weights=(weight("n", 512, 512), floats("h", 0))),
    "Add of an image of constants": one((1, 16, 256, 256), "Add", ["w"], weight("w", 16, 256, 256)),
    "Mul of spread constants": one((1, 1, 1, 1), "Mul", ["w"], weight("w", 16, 256, 256)),
    "Add of spread tensors": lambda: net((1, 1, 2048, 1), node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
                                         node("Add", ["x", "t"], ["y"])),
    "PRelu of pixels": one((1, 4, 256, 256), "PRelu", ["w"], weight("w", 4, 256, 256)),
    "Pow of 10**6": one((1, 4), "Pow", ["w"], floats("w", 1e6)), "Pow of 4096": one((1, 4), "Pow", ["w"],
                                                                                     floats("w", 4096)),
    "OneHot of a million": lambda: net((4,), node("Cast", ["x"], ["i"], to=7), node("OneHot", ["i", "n", "v"], ["y"]),
                                       weights=(scalar("n", 1_000_000), floats("v", 0, 1))),
    "Range by x": lambda: net((), node("Range", ["a", "x", "s"], ["y"]), weights=(
        scalar("a", 0, np.float32), scalar("s", 1, np.float32))),
    "ConstantOfShape by x": lambda: net((4,), node("Cast", ["x"], ["i"], to=7),
                                        node("ConstantOfShape", ["i"], ["y"])),
    "CumSum of a million": one((1, 1 << 20), "CumSum", ["n"], scalar("n", 1)),
    "Einsum as MatMul": lambda: net((512, 512), node("Einsum", ["x", "x"], ["y"], equation="ij,jk->ik")),
    "TopK of a million": lambda: net((1, 1 << 20), node("TopK", ["x", "n"], ["y", "i"]), weights=(ints("n", 1 << 19),)),
    "Attention": lambda: net((1, 8, 256, 64), node("MatMul", ["x", "t"], ["s"]), node("Softmax", ["s"], ["p"]),
                             node("MatMul", ["p", "x"], ["y"]),
                             node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2])),
}


def _attributes(operator: str, **attributes: Any) -> Callable[[], onnx.ModelProto]:
    return one((1, 4, 4, 4), operator, **attributes)


OPERATORS |= {
    "Transpose of a million axes": _attributes("Transpose", perm=list(range(1_000_000))),
    "MaxPool of a million sizes": _attributes("MaxPool", kernel_shape=[1] * 1_000_000),
    "AveragePool of a million pads": _attributes("AveragePool", kernel_shape=[1, 1], pads=[0] * 1_000_000),
    "Constant of 2**26": lambda: net((1, 4), node("ConstantOfShape", ["n"], ["c"]), node("Mul", ["x", "c"], ["y"]),
                                     weights=(ints("n", 1 << 24, 4),)),
    **{f"{operator} of 12 million": one(LONG, operator, ["n"], ints("n", *numbers)) for operator, numbers in
       {"Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (3, 4, -1)}.items()},
    "Flatten of 12 million": one(LONG, "Flatten"),
    "Transpose of 12 million": one(LONG, "Transpose", perm=[0, 2, 3, 1]),
    "Constant of 2**24": lambda: net((1, 4), node("ConstantOfShape", ["n"], ["c"]), node("Add", ["x", "c"], ["y"]),
                                     weights=(ints("n", 1 << 22, 4),)),
    "constant doubled 25 times": lambda: doubled(25), "constant doubled 30 times": lambda: doubled(30),
    "Concat doubled 18 times": lambda: net((1, 4, 4, 4), *chain(18, lambda a, b, number: node("Concat", [a, a], [b],
                                                                                              axis=1))),
    "Reshape to 60 axes": one((1, 4), "Reshape", ["n"], ints("n", *[1] * 59, 4)),
}
