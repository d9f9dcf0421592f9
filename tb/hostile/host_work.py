# SPDX-License-Identifier: Apache-2.0
"""Parts of the host that ask for work without end."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.tb.hostile.case import SHAPE
from weft.tb.hostile.onnx_constants import TERA, Make, ints, node, scalar

OPSET = 20


def part(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = (), shape: tuple[Any, ...] = SHAPE,
         kind: int = TensorProto.FLOAT, out: Any = SHAPE, opset: int = OPSET, made: int = TensorProto.FLOAT,
         **more: Any) -> onnx.ModelProto:
    """Return a part of the host from the machine's output y to z of the shape ``out``."""
    graph = helper.make_graph(list(nodes), "host", [helper.make_tensor_value_info("y", kind, shape)],
                              [helper.make_tensor_value_info("z", made, out)], list(weights), **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def summed(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = (), **more: Any) -> Make:
    """Return a maker of a part with a small result of the large tensor c."""
    return lambda: part(*nodes, node("ReduceSum", ["c"], ["z"], keepdims=0), weights=weights, out=(), **more)


def spread(*shape: int, name: str = "b") -> list[onnx.NodeProto]:
    """Return nodes that make a tensor of any shape of the machine's output: no optimizer makes a constant of it."""
    return [node("ReduceMean", ["y"], [f"{name}_mean"], keepdims=0),
            node("Constant", [], [f"{name}_shape"], value=numpy_helper.from_array(np.array(shape, np.int64))),
            node("Expand", [f"{name}_mean", f"{name}_shape"], [name])]


def applied(operator: str, *shapes: tuple[int, ...], extra: tuple[str, ...] = (),
            weights: tuple[onnx.TensorProto, ...] = (), outputs: int = 1, opset: int = OPSET,
            **attributes: Any) -> Make:
    """Return a maker of an operator of tensors of these shapes, and of ``weights`` called ``extra``."""
    names = [f"b{number}" for number in range(len(shapes))]
    nodes = [each for name, shape in zip(names, shapes, strict=True) for each in spread(*shape, name=name)]
    made = ["c", *(f"o{number}" for number in range(1, outputs))]
    return summed(*nodes, node(operator, [*names, *extra], made, **attributes), weights=weights, opset=opset)


def nested(levels: int, calls: int = 2) -> onnx.ModelProto:
    """Return a model whose functions call each other: calls**levels times the last one."""
    model = part(onnx.NodeProto(op_type="F0", domain="own", input=["y"], output=["z"]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    for level in range(levels):
        last = level == levels - 1
        names = ["p", *(f"m{number}" for number in range(calls - 1)), "q"]
        body = [onnx.NodeProto(op_type="Relu" if last else f"F{level + 1}", domain="" if last else "own", input=[a],
                               output=[b]) for a, b in zip(names, names[1:], strict=False)]
        model.functions.append(helper.make_function("own", f"F{level}", ["p"], ["q"], body, [
            helper.make_opsetid("", OPSET), helper.make_opsetid("own", 1)]))
    return model


def uncalled() -> onnx.ModelProto:
    model = nested(2)
    model.graph.node[0].op_type, model.graph.node[0].domain = "Relu", ""
    return model


def many(count: int, operator: str = "Cos", size: int = 0) -> onnx.ModelProto:
    """Return a chain of nodes, of the machine's output or of [size, size]."""
    first = "b" if size else "y"
    names = [first, *(f"t{number}" for number in range(count - 1)), "c"]
    two = operator == "MatMul"
    chain = [node(operator, [a, "b"] if two else [a], [b]) for a, b in zip(names, names[1:], strict=False)]
    return summed(*(spread(size, size) if size else []), *chain)()


def branch(*nodes: onnx.NodeProto, name: str = "r") -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [helper.make_tensor_value_info(name, 1, SHAPE)])


def loop(trips: int) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    body = helper.make_graph([node("Identity", ["go"], ["on"]), node("Cos", ["v"], ["w"])], "body",
                             [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []),
                              value("v", 1, SHAPE)],
                             [value("on", TensorProto.BOOL, []), value("w", 1, SHAPE)])
    return part(node("Loop", ["n", "go0", "y"], ["z"], body=body),
                weights=(scalar("n", trips), scalar("go0", True, bool)))


def choice(operator: str, other: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return a model with a choice by the values of its input."""
    return part(scalar_of("m"), node("Cast", ["m"], ["b"], to=TensorProto.BOOL),
                node("If", ["b"], ["z"], then_branch=branch(node(operator, ["y"], ["r"])),
                     else_branch=branch(*other)), weights=(ints("n", 1, 1, 1 << 20, 1 << 20),))


def scan(length: int) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    body = helper.make_graph([node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["u"])], "body",
                             [value("s", 1, []), value("e", 1, [])], [value("t", 1, []), value("u", 1, [])])
    return part(*spread(length), scalar_of("m"), node("Scan", ["m", "b"], ["z", "c"], body=body, num_scan_inputs=1),
                out=())


def scalar_of(name: str) -> onnx.NodeProto:
    return node("ReduceMean", ["y"], [name], keepdims=0)


def doubled(times: int) -> onnx.ModelProto:
    names = ["y", *(f"t{number}" for number in range(times - 1)), "c"]
    return summed(*(node("Concat", [a, a], [b], axis=0) for a, b in zip(names, names[1:], strict=False)))()


def weight(*shape: int, kind: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, kind), "w")


WORK: dict[str, Make] = {
    "functions nested 24 deep": lambda: nested(24), "functions nested 2 deep": lambda: nested(2),
    "functions of 10 calls nested 9 deep": lambda: nested(9, 10), "a function that nobody calls": uncalled,
    "MatMul of 8000": applied("MatMul", (8000, 8000), (8000, 8000)),
    "MatMul of 8000 by itself": summed(*spread(8000, 8000), node("MatMul", ["b", "b"], ["c"])),
    "MatMul outer product": applied("MatMul", (1 << 20, 1), (1, 1 << 20)),
    "MatMul of many small ones": applied("MatMul", (1 << 25, 1, 1), (1, 1, 1 << 10)),
    "300 MatMuls of 1000": lambda: many(300, "MatMul", 1000),
    "Gemm of 8000": applied("Gemm", (8000, 8000), (8000, 8000), transA=1),
    "MatMulInteger of 8000": summed(*spread(8000, 8000), node("Cast", ["b"], ["i"], to=TensorProto.INT8),
                                    node("MatMulInteger", ["i", "i"], ["d"]), node("Cast", ["d"], ["c"], to=1)),
    "Conv of kernel 501": applied("Conv", (1, 1, 4000, 4000), (1, 1, 501, 501)),
    "Conv of 10**4 channels": applied("Conv", (1, 4096, 64, 64), (4096, 4096, 1, 1)),
    "Conv in three dimensions": applied("Conv", (1, 64, 64, 64, 64), (64, 64, 9, 9, 9)),
    "ConvTranspose whose columns are many": applied("ConvTranspose", (1, 1, 4096, 4096), (1, 1, 11, 11)),
    "ConvInteger whose columns are many": summed(
        *spread(1, 1, 4096, 4096), node("Cast", ["b"], ["i"], to=TensorProto.UINT8),
        node("ConvInteger", ["i", "w"], ["d"]), node("Cast", ["d"], ["c"], to=1),
        weights=(weight(1, 1, 21, 21, kind=np.uint8),)),
    "DeformConv": applied("DeformConv", (1, 64, 256, 256), (64, 64, 15, 15), (1, 450, 242, 242)),
    "Einsum of six indices": applied("Einsum", (512, 512), (512, 512), (512, 512), equation="ab,cd,ef->"),
    "Einsum with an ellipsis": applied("Einsum", (8000, 8000), (8000, 8000), equation="...a,ab->...b"),
    "Einsum whose middle is large": applied("Einsum", (1 << 20, 1), (1, 1 << 20), (1 << 20, 1),
                                            equation="ab,bc,cd->ad"),
    "Einsum that is no equation": applied("Einsum", (4, 4), equation="\x1b[31m"),
    "LSTM of a million steps": applied("LSTM", (1 << 20, 1, 1), (1, 512, 1), (1, 512, 128), hidden_size=128),
    "GRU of many": applied("GRU", (1 << 14, 64, 64), (1, 768, 64), (1, 768, 256), hidden_size=256),
    "RNN whose output nobody reads": summed(
        *spread(1 << 25, 1, 1), *spread(1, 64, 1, name="v"), *spread(1, 64, 64, name="r"),
        node("RNN", ["b", "v", "r"], ["", "c"], hidden_size=64)),
    "Attention of 30000 tokens": applied("Attention", (1, 1, 30000, 8), (1, 1, 30000, 8), (1, 1, 30000, 8), opset=23),
    "Resize by a cube": applied("Resize", (1, 1, 4000, 4000), extra=("", "", "n"), mode="cubic",
                                weights=(ints("n", 1, 1, 8000, 8000),)),
    "Resize 6 dimensions": applied("Resize", (2,) * 6, extra=("", "", "n"), mode="linear",
                                   weights=(ints("n", *[20] * 6),)),
    "GridSample": applied("GridSample", (1, 16, 64, 64), (1, 5000, 5000, 2), mode="cubic"),
    "TopK of 2**26": applied("TopK", (1 << 26,), extra=("n",), outputs=2, weights=(ints("n", 1 << 25),)),
    "AveragePool of kernel 2000": applied("AveragePool", (1, 1, 4000, 4000), kernel_shape=[2000, 2000]),
    "AveragePool of pads": applied("AveragePool", (1, 1, 4000, 4000), kernel_shape=[1999, 1999], pads=[999] * 4),
    "LpPool of kernel 500": applied("LpPool", (1, 1, 2000, 2000), kernel_shape=[500, 500]),
    "MaxPool of 3 dimensions": applied("MaxPool", (1, 1, 300, 300, 300), kernel_shape=[99] * 3),
    "LRN of size 10**9": applied("LRN", (1, 64, 512, 512), size=10**9 + 1),
    "DFT of a prime": applied("DFT", (1, 999983, 1), extra=("", "n"), weights=(scalar("n", 1),)),
    "STFT": applied("STFT", (1, 1 << 20, 1), extra=("n", "w"), weights=(scalar("n", 1), numpy_helper.from_array(
        np.ones(4001, np.float32), "w"))),
    "Det of 8000": applied("Det", (1, 8000, 8000)),
    "RoiAlign of 10**9 samples": applied("RoiAlign", (1, 1, 64, 64), (9, 4), extra=("n",), sampling_ratio=10**9,
                                         weights=(ints("n", *[0] * 9),)),
    "RoiAlign that chooses its samples": applied("RoiAlign", (1, 1, 64, 64), (9, 4), extra=("n",), sampling_ratio=0,
                                                 weights=(ints("n", *[0] * 9),)),
    "RoiAlign of -1 samples": applied("RoiAlign", (1, 1, 64, 64), (9, 4), extra=("n",), sampling_ratio=-1,
                                      weights=(ints("n", *[0] * 9),)),
    "1000 curves of a million": lambda: many(1000, "Tan", 1000),
    "TfIdfVectorizer that skips": summed(
        node("Cast", ["y"], ["i"], to=TensorProto.INT64), node("Reshape", ["i", "n"], ["l"]),
        node("TfIdfVectorizer", ["l"], ["c"], max_gram_length=2, min_gram_length=2, max_skip_count=1 << 60, mode="TF",
             ngram_counts=[0, 0], ngram_indexes=[0], pool_int64s=[1, 2]), weights=(ints("n", -1),)),
    "Loop of 10**12": lambda: loop(TERA), "Scan of a million": lambda: scan(1 << 20),
    "If of much": lambda: choice("Cos", [node("Tile", ["y", "n"], ["r"])]),
    "SequenceMap": lambda: part(node("SequenceConstruct", ["y", "y"], ["s"]),
                                node("SequenceMap", ["s"], ["t"], body=helper.make_graph(
                                    [node("Cos", ["p"], ["q"])], "body", [helper.make_tensor_value_info("p", 1, SHAPE)],
                                    [helper.make_tensor_value_info("q", 1, SHAPE)])),
                                node("ConcatFromSequence", ["t"], ["z"], axis=0)),
    "sequences": lambda: part(node("SequenceConstruct", ["y", "y"], ["s"]), node("SequenceAt", ["s", "n"], ["z"]),
                              weights=(scalar("n", 0),)),
    "Optional": lambda: part(node("Optional", ["y"], ["o"]), node("OptionalGetElement", ["o"], ["z"])),
}
