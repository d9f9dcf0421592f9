# SPDX-License-Identifier: Apache-2.0
"""Parts of the host that lie about their sizes, and some that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft.tb.hostile.case import SHAPE
from weft.tb.hostile.host_work import applied, choice, doubled, loop, many, part, scalar_of, spread, summed, weight
from weft.tb.hostile.onnx_constants import TERA, Make, floats, ints, node, scalar, text

SIZES: dict[str, Make] = {
    "Expand to 2**40": summed(*spread(1 << 20, 1 << 20, name="c")),
    "Expand to 2**80": summed(*spread(TERA, TERA, name="c")), "Expand to -1": summed(*spread(-1, name="c")),
    "Expand 60 dimensions": summed(*spread(*[2] * 60, name="c")),
    "16 tensors of 2**26": summed(
        *(each for number in range(16) for each in spread(1 << 26, name=f"b{number}")),
        node("Sum", [f"b{number}" for number in range(16)], ["c"])),
    "5 tensors of 2**26 doubles": summed(
        *spread(1 << 26), node("Cast", ["b"], ["d"], to=TensorProto.DOUBLE), node("Cos", ["d"], ["e"]),
        node("Sin", ["e"], ["f"]), node("Cast", ["f"], ["c"], to=1)),
    "Tile by 2**40": summed(node("Tile", ["y", "n"], ["c"]), weights=(ints("n", 1, 1, 1 << 20, 1 << 20),)),
    "Tile that overflows": summed(node("Tile", ["y", "n"], ["c"]), weights=(ints("n", *[1 << 62] * 4),)),
    "Pad by 2**20": summed(node("Pad", ["y", "n"], ["c"]), weights=(ints("n", *[0, 0, 1 << 20, 1 << 20] * 2),)),
    "ConstantOfShape 2**40": summed(node("ConstantOfShape", ["n"], ["c"]), weights=(ints("n", TERA),)),
    "ConstantOfShape of a product": summed(node("Mul", ["n", "n"], ["m"]), node("ConstantOfShape", ["m"], ["c"]),
                                           weights=(ints("n", 1 << 20),)),
    "ConstantOfShape of values": summed(
        node("Cast", ["y"], ["i"], to=TensorProto.INT64), node("Reshape", ["i", "n"], ["m"]),
        node("ConstantOfShape", ["m"], ["c"]), weights=(ints("n", -1),)),
    "doubled 40 times": lambda: doubled(40), "doubled 22 times": lambda: doubled(22),
    "Range of values": summed(scalar_of("m"), node("Range", ["m", "a", "b"], ["c"]), weights=(
        scalar("a", 1e12, np.float32), scalar("b", 1e-6, np.float32))),
    "Range of 2**40": summed(node("Range", ["a", "b", "d"], ["r"]), node("Cast", ["r"], ["c"], to=1), weights=(
        scalar("a", 0), scalar("b", TERA), scalar("d", 1))),
    "OneHot of 2**40": summed(node("Cast", ["y"], ["i"], to=TensorProto.INT64), node("OneHot", ["i", "n", "v"], ["c"]),
                              weights=(scalar("n", TERA), floats("v", 0, 1))),
    "EyeLike of 2**18": summed(*spread(1 << 18, 1 << 18), node("EyeLike", ["b"], ["c"])),
    "RandomNormal of 2**40": summed(node("RandomNormal", [], ["c"], shape=[1 << 20, 1 << 20])),
    "HannWindow of 2**40": summed(node("HannWindow", ["n"], ["c"]), weights=(scalar("n", TERA),)),
    "Resize by 10**6": summed(node("Resize", ["y", "", "s"], ["c"]), weights=(floats("s", 1, 1, 1e6, 1e6),)),
    "Resize by values": summed(*spread(4, name="s"), node("Resize", ["y", "", "s"], ["c"])),
    "DepthToSpace of 0": summed(node("DepthToSpace", ["y"], ["c"], blocksize=0)),
    "Split in 2**40": summed(node("Split", ["y"], ["c"], num_outputs=TERA)),
    "NonZero": summed(node("NonZero", ["y"], ["i"]), node("Cast", ["i"], ["c"], to=1)),
    "Unique": summed(node("Unique", ["y"], ["c"])),
    "Compress": summed(node("Cast", ["y"], ["b"], to=TensorProto.BOOL), node("Reshape", ["b", "n"], ["l"]),
                       node("Compress", ["y", "l"], ["c"]), weights=(ints("n", -1),)),
    "NonMaxSuppression": summed(
        *spread(1, 5000, 4), *spread(1, 80, 5000, name="s"), node("NonMaxSuppression", ["b", "s", "n"], ["i"]),
        node("Cast", ["i"], ["c"], to=1), weights=(ints("n", 1 << 40),)),
    "texts": lambda: part(node("Cast", ["y"], ["s"], to=TensorProto.STRING), node("StringConcat", ["s", "s"], ["t"]),
                          node("Cast", ["t"], ["z"], to=1)),
    "a pattern that takes long": lambda: part(
        node("RegexFullMatch", ["a"], ["m"], pattern="(a+)+$"), node("Cast", ["m"], ["f"], to=1),
        node("Add", ["y", "f"], ["z"]), weights=(text("a", b"a" * 40 + b"!"),)),
    "a constant that claims 2**40": lambda: part(
        node("Add", ["y", "w"], ["z"]), weights=(onnx.TensorProto(name="w", dims=[TERA], data_type=1),)),
    "a constant without data": lambda: part(
        node("Add", ["y", "w"], ["z"]), weights=(onnx.TensorProto(name="w", dims=[1 << 26], data_type=1),)),
    "a constant elsewhere": lambda: part(node("Add", ["y", "w"], ["z"]), weights=(elsewhere("/dev/zero"),)),
    "a constant beside it": lambda: part(node("Add", ["y", "w"], ["z"]), weights=(elsewhere("net.tdata"),)),
    "a sparse constant of 2**40": lambda: part(
        node("Constant", [], ["c"], sparse_value=sparse()), node("Add", ["y", "c"], ["z"])),
}


def elsewhere(location: str) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", dims=[16], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def sparse() -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=floats("v", 1), indices=ints("i", 5), dims=[TERA])


def told(name: str, kind: int, *shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _with(change: Callable[[onnx.ModelProto], Any], *nodes: onnx.NodeProto) -> Make:
    """Return a maker of a good part, changed."""
    def make() -> onnx.ModelProto:
        model = part(*(nodes or (node("Cos", ["y"], ["m"]), node("Sin", ["m"], ["z"]))))
        change(model)
        return model

    return make


def _sized_by_values(claimed: onnx.ValueInfoProto | None) -> Make:
    """Return a maker of an Expand to sizes that the machine's output says, while the file claims another size."""
    def make() -> onnx.ModelProto:
        model = part(scalar_of("m"), node("Cast", ["m"], ["i"], to=TensorProto.INT64), node("Mul", ["i", "big"], ["n"]),
                     node("Reshape", ["n", "one"], ["s"]), node("Expand", ["m", "s"], ["c"]),
                     node("ReduceSum", ["c"], ["z"], keepdims=0), out=(),
                     weights=(scalar("big", 1 << 33), ints("one", 1)))
        if claimed is not None:
            model.graph.value_info.append(claimed)
        return model

    return make


LIES: dict[str, Make] = {
    "a size that values decide": _sized_by_values(None),
    "a size that values decide, told as small": _sized_by_values(told("c", 1, 1)),
    "a result told as small": lambda: part(*spread(1 << 20, 1 << 20, name="z"), out=(1,)),
    "an operator of nobody, told as known": _with(
        lambda model: (model.graph.value_info.append(told("m", 1, *SHAPE)), model.opset_import.append(
            helper.make_opsetid("com.nobody", 1))), node("Cos", ["y"], ["m"], domain="com.nobody"),
        node("Sin", ["m"], ["z"])),
    "an operator of onnxruntime's own": _with(
        lambda model: (model.graph.value_info.append(told("m", 1, *SHAPE)), model.opset_import.append(
            helper.make_opsetid("com.microsoft", 1))), node("Gelu", ["y"], ["m"], domain="com.microsoft"),
        node("Sin", ["m"], ["z"])),
    "an operator that ONNX has not": lambda: part(node("Cosine", ["y"], ["z"])),
    "an operator of later": lambda: part(node("Swish", ["y"], ["z"]), opset=13),
    "an attribute that it has not": lambda: part(node("Cos", ["y"], ["z"], axis=1)),
    "an attribute of another type": lambda: part(node("Softmax", ["y"], ["z"], axis="one")),
    "an open input": lambda: part(node("Cos", ["y"], ["z"]), shape=("n", 2, 4, 4), out=("n", 2, 4, 4)),
    "an input of no shape": _with(lambda model: model.graph.input[0].type.tensor_type.ClearField("shape")),
    "an input of another shape": lambda: part(node("Cos", ["y"], ["z"]), shape=(1, 2, 4, 5), out=(1, 2, 4, 5)),
    "an input of another rank": lambda: part(node("Cos", ["y"], ["z"]), shape=(32,), out=(32,)),
    "an input of integers": lambda: part(node("Neg", ["y"], ["z"]), kind=TensorProto.INT64, made=TensorProto.INT64),
    "an input of texts": lambda: part(node("Identity", ["y"], ["z"]), kind=TensorProto.STRING, made=TensorProto.STRING),
    "an input of 2**40": lambda: part(node("Cos", ["y"], ["z"]), shape=(TERA,), out=(TERA,)),
    "an input of -1": lambda: part(node("Cos", ["y"], ["z"]), shape=(-1, 2, 4, 4)),
    "an input more": _with(lambda model: model.graph.input.append(told("q", 1, 1))),
    "an input twice": _with(lambda model: model.graph.input.append(model.graph.input[0])),
    "no input": _with(lambda model: model.graph.ClearField("input")),
    "an output more": _with(lambda model: model.graph.output.append(told("m", 1, *SHAPE))),
    "an output twice": _with(lambda model: model.graph.output.append(model.graph.output[0])),
    "no output": _with(lambda model: model.graph.ClearField("output")),
    "an output that nothing makes": _with(lambda model: model.graph.output.append(told("nothing", 1, 1))),
    "a constant twice": _with(lambda model: model.graph.initializer.extend([floats("w", 1), floats("w", 2)])),
    "a result that is an input": lambda: part(node("Cos", ["y"], ["y"]), node("Sin", ["y"], ["z"])),
    "a result that is a constant": lambda: part(node("Cos", ["y"], ["w"]), node("Sin", ["w"], ["z"]),
                                                weights=(floats("w", 1),)),
    "a result made twice": lambda: part(node("Cos", ["y"], ["z"]), node("Sin", ["y"], ["z"])),
    "a circle": lambda: part(node("Add", ["y", "b"], ["a"]), node("Cos", ["a"], ["b"]), node("Sin", ["b"], ["z"])),
    "a tensor of nobody": lambda: part(node("Add", ["y", "nobody"], ["z"])),
    "no node": lambda: part(), "no graph": _with(lambda model: model.ClearField("graph")),
    "operator set 10**9": lambda: part(node("Cos", ["y"], ["z"]), opset=10**9),
    "operator set 0": lambda: part(node("Cos", ["y"], ["z"]), opset=0),
    "operator set -1": lambda: part(node("Cos", ["y"], ["z"]), opset=-1),
    "operator set 6": lambda: part(node("Cos", ["y"], ["z"]), opset=6),
    "two operator sets": _with(lambda model: model.opset_import.append(helper.make_opsetid("", 13))),
    "no operator set": _with(lambda model: model.ClearField("opset_import")),
    "IR version -1": _with(lambda model: setattr(model, "ir_version", -1)),
    "IR version 10**9": _with(lambda model: setattr(model, "ir_version", 10**9)),
    "100000 nodes": lambda: many(100_000),
    "a name of escapes": lambda: part(node("Cosine", ["y"], ["z"], name="\x1b[31m\nweft: all is well")),
    "a name of markup": lambda: part(node("Cosine", ["y"], ["z"], name="[bold red]well[/]")),
    "a Gather outside": lambda: part(node("Gather", ["y", "n"], ["z"]), weights=(ints("n", 99),), out=(1, 2, 4, 4)),
    "a Reshape that does not fit": lambda: part(node("Reshape", ["y", "n"], ["z"]), weights=(ints("n", 5, 7),)),
    "a Conv of 0 groups": lambda: part(node("Conv", ["y", "w"], ["z"], group=0), weights=(weight(2, 2, 1, 1),)),
    "a Conv of stride 0": lambda: part(node("Conv", ["y", "w"], ["z"], strides=[0, 0]), weights=(weight(2, 2, 1, 1),)),
    "a MaxPool of kernel 0": lambda: part(node("MaxPool", ["y"], ["z"], kernel_shape=[0, 0])),
}

LEGAL: dict[str, Make] = {
    "curves": lambda: part(node("Cos", ["y"], ["m"]), node("Sin", ["m"], ["z"])),
    "a choice": lambda: choice("Cos", [node("Sin", ["y"], ["r"])]), "Loop of one": lambda: loop(1),
    "15000 nodes": lambda: many(15_000), "MatMul of 500": applied("MatMul", (500, 500), (500, 500)),
    "Einsum with an ellipsis": applied("Einsum", (3, 5, 4), (4, 6), equation="...a,ab->...b"),
    "LSTM": applied("LSTM", (5, 1, 3), (1, 16, 3), (1, 16, 4), hidden_size=4),
    "ConvTranspose": applied("ConvTranspose", (1, 4, 32, 32), (4, 4, 3, 3)),
    "GridSample": applied("GridSample", (1, 1, 8, 8), (1, 8, 8, 2)),
    "RoiAlign of 2 samples": applied("RoiAlign", (1, 1, 64, 64), (9, 4), extra=("n",), sampling_ratio=2,
                                     weights=(ints("n", *[0] * 9),)),
    "TopK": applied("TopK", (1, 100), extra=("n",), outputs=2, weights=(ints("n", 5),)),
    "Attention": applied("Attention", (1, 2, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8), opset=23),
    "DFT": applied("DFT", (1, 64, 1), extra=("", "n"), weights=(scalar("n", 1),)),
    "integers": lambda: part(node("ArgMax", ["y"], ["z"], axis=1), made=TensorProto.INT64, out=(1, 1, 4, 4)),
    "a division of integers by 0": lambda: part(
        node("Cast", ["y"], ["i"], to=TensorProto.INT64), node("Div", ["i", "n"], ["z"]), made=TensorProto.INT64,
        weights=(ints("n", 0),)),
    "no numbers": lambda: part(node("Log", ["y"], ["l"]), node("Log", ["l"], ["z"])),
}
