# SPDX-License-Identifier: Apache-2.0
"""ONNX networks whose constants are computed: larger than any memory, or for longer than anybody waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.tb.hostile.case import network

TERA = 1 << 40
Make = Callable[[], onnx.ModelProto]
node = helper.make_node


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def scalar(name: str, value: Any, kind: type = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, kind), name)


def text(name: str, content: bytes) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.STRING, [1], [content])  # type: ignore[list-item] # onnx: numbers only


def floats(name: str, *values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)


def then_add(*nodes: onnx.NodeProto, weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """Return a network x + c, with the constant c that the nodes make."""
    return network(*nodes, node("Add", ["x", "c"], ["y"]), weights=weights)


def summed(*nodes: onnx.NodeProto, weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """Return a network x + the sum of the constant c: a small result of a large one."""
    return network(*nodes, node("ReduceSum", ["c"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"]),
                   weights=weights)


CONSTANTS: dict[str, Make] = {
    "ConstantOfShape": lambda: summed(node("ConstantOfShape", ["n"], ["c"]), weights=[ints("n", TERA)]),
    "ConstantOfShape of 2 GB": lambda: summed(node("ConstantOfShape", ["n"], ["c"]), weights=[ints("n", 1 << 29)]),
    "ConstantOfShape of 2**80": lambda: summed(node("ConstantOfShape", ["n"], ["c"]), weights=[ints("n", TERA, TERA)]),
    "ConstantOfShape of -1": lambda: summed(node("ConstantOfShape", ["n"], ["c"]), weights=[ints("n", -1)]),
    "ConstantOfShape of 60 dimensions": lambda: summed(node("ConstantOfShape", ["n"], ["c"]),
                                                       weights=[ints("n", *[2] * 60)]),
    "ConstantOfShape of a computed shape": lambda: summed(
        node("Mul", ["a", "a"], ["m"]), node("ConstantOfShape", ["m"], ["c"]), weights=[ints("a", 1 << 20)]),
    "Range": lambda: summed(node("Range", ["a", "n", "b"], ["r"]), node("Cast", ["r"], ["c"], to=1),
                            weights=[scalar("a", 0), scalar("n", TERA), scalar("b", 1)]),
    "Range of tiny steps": lambda: summed(node("Range", ["a", "n", "b"], ["c"]), weights=[
        scalar("a", 0, np.float32), scalar("n", 1, np.float32), scalar("b", 1e-30, np.float32)]),
    "Range of small steps": lambda: summed(node("Range", ["a", "n", "b"], ["c"]), weights=[
        scalar("a", 0, np.float32), scalar("n", 1, np.float32), scalar("b", 1e-9, np.float32)]),
    "Range of no step": lambda: summed(node("Range", ["a", "n", "b"], ["c"]), weights=[
        scalar("a", 0, np.float32), scalar("n", 1, np.float32), scalar("b", 0, np.float32)]),
    "Range of NaN": lambda: summed(node("Range", ["a", "n", "b"], ["c"]), weights=[
        scalar("a", 0, np.float32), scalar("n", np.nan, np.float32), scalar("b", 1, np.float32)]),
    "Range of computed ends": lambda: summed(
        node("Mul", ["n", "n"], ["m"]), node("Range", ["a", "m", "b"], ["r"]), node("Cast", ["r"], ["c"], to=1),
        weights=[scalar("a", 0), scalar("n", 1 << 20), scalar("b", 1)]),
    "Expand": lambda: summed(node("Expand", ["a", "n"], ["c"]), weights=[floats("a", 1), ints("n", TERA)]),
    "Tile": lambda: summed(node("Tile", ["a", "n"], ["c"]), weights=[floats("a", 1), ints("n", TERA)]),
    "Tile that overflows": lambda: summed(node("Tile", ["a", "n"], ["c"]),
                                          weights=[floats("a", 1, 2), ints("n", (1 << 63) - 1)]),
    "Pad": lambda: summed(node("Pad", ["a", "n"], ["c"]), weights=[floats("a", 1), ints("n", TERA, TERA)]),
    "Resize": lambda: summed(node("Resize", ["a", "", "", "n"], ["c"], mode="nearest"),
                             weights=[floats("a", 1), ints("n", TERA)]),
    "Resize by a scale": lambda: summed(node("Resize", ["a", "", "n"], ["c"], mode="nearest"),
                                        weights=[floats("a", 1), floats("n", 1e12)]),
    "Resize that takes long": lambda: summed(
        node("ConstantOfShape", ["n"], ["a"]), node("Resize", ["a", "", "", "m"], ["c"], mode="cubic"),
        weights=[ints("n", 1, 1, 3000, 3000), ints("m", 1, 1, 5000, 5000)]),
    "OneHot": lambda: summed(node("OneHot", ["a", "n", "v"], ["c"]),
                             weights=[ints("a", 1), scalar("n", TERA), floats("v", 0, 1)]),
    "EyeLike": lambda: summed(node("ConstantOfShape", ["n"], ["a"]), node("EyeLike", ["a"], ["c"]),
                              weights=[ints("n", 1 << 18, 1 << 18)]),
    "HannWindow": lambda: summed(node("HannWindow", ["n"], ["c"]), weights=[scalar("n", TERA)]),
    "TopK": lambda: summed(node("TopK", ["a", "n"], ["c", "d"]), weights=[floats("a", 1), ints("n", TERA)]),
    "MelWeightMatrix": lambda: summed(node("MelWeightMatrix", ["n", "n", "n", "f", "g"], ["c"]), weights=[
        scalar("n", 1 << 20), scalar("f", 0, np.float32), scalar("g", 1e6, np.float32)]),
    "outer product": lambda: summed(node("ConstantOfShape", ["n"], ["a"]), node("ConstantOfShape", ["m"], ["b"]),
                                    node("MatMul", ["a", "b"], ["c"]),
                                    weights=[ints("n", 1 << 20, 1), ints("m", 1, 1 << 20)]),
    "a product that takes long": lambda: summed(node("ConstantOfShape", ["n"], ["a"]),
                                                node("MatMul", ["a", "a"], ["c"]),
                                                weights=[ints("n", 8000, 8000)]),
    "a convolution that takes long": lambda: summed(
        node("ConstantOfShape", ["n"], ["a"]), node("ConstantOfShape", ["m"], ["b"]), node("Conv", ["a", "b"], ["c"]),
        weights=[ints("n", 1, 1, 4000, 4000), ints("m", 64, 1, 101, 101)]),
    "many halves": lambda: then_add(
        *(node("ConstantOfShape", ["n"], [f"c{i}"]) for i in range(40)),
        node("Sum", [f"c{i}" for i in range(40)], ["d"]), node("ReduceSum", ["d"], ["c"], keepdims=0),
        weights=[ints("n", 1 << 24)]),
    "doubled 60 times": lambda: summed(
        *(node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}" if i < 59 else "c"], axis=0) for i in range(60)),
        weights=[floats("c0", 1)]),
    "doubled sequences": lambda: summed(
        *(node("SequenceConstruct" if not i else "SequenceInsert", [f"s{i}"] * 2 if not i else [f"s{i}", "a"],
               [f"s{i + 1}"]) for i in range(3)),
        node("ConcatFromSequence", ["s3"], ["c"], axis=0), weights=[floats("s0", 1), floats("a", 1)]),
    "raised to a tower": lambda: then_add(
        *(node("Mul", [f"c{i}", f"c{i}"], [f"c{i + 1}" if i < 39 else "n"]) for i in range(40)),
        node("ConstantOfShape", ["n"], ["c"]), weights=[ints("c0", 3)]),
    "texts": lambda: network(
        node("StringConcat", ["a", "a"], ["b"]), node("Cast", ["b"], ["c"], to=1), node("Add", ["x", "c"], ["y"]),
        opset=20, weights=[text("a", b"1" * 1000)]),
    "a pattern that takes long": lambda: network(
        node("RegexFullMatch", ["a"], ["b"], pattern="(a+)+$"), node("Cast", ["b"], ["c"], to=1),
        node("Add", ["x", "c"], ["y"]), opset=20,
        weights=[text("a", b"a" * 40 + b"!")]),
    "an index outside": lambda: summed(node("Gather", ["a", "n"], ["c"]), weights=[floats("a", 1), ints("n", TERA)]),
    "a shift too far": lambda: then_add(node("Reshape", ["a", "n"], ["c"]),
                                        weights=[floats("a", 1), ints("n", 0, -1, -1)]),
    "1000 dimensions": lambda: summed(node("Reshape", ["a", "n"], ["c"]),
                                      weights=[floats("a", 1), ints("n", *[1] * 1000)]),
    "division by 0": lambda: then_add(node("Div", ["a", "n"], ["m"]), node("ConstantOfShape", ["m"], ["c"]),
                                      weights=[ints("a", TERA), ints("n", 0)]),
    "a long loop in numpy": lambda: summed(node("CumSum", ["a", "n"], ["c"]),
                                           weights=[floats("a", 1), scalar("n", 77)]),
}
