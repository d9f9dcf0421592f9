# SPDX-License-Identifier: Apache-2.0
"""Networks of parts of ONNX that few files have: small types, sparse constants, no tensors as values, what trains.

Those with graphs within graphs are in ``strange_nested.py``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft.tb.hostile.case import COMPILE, Case, Recipe, copy_good, network, quick
from weft.tb.hostile.odd_kinds import LARGE, const, named, node, one
from weft.tb.hostile.strange_nested import NESTED, Make

TYPES = {name: number for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "FLOAT")}
NARROW = ("FLOAT16", "BFLOAT16", "DOUBLE", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E8M0", "INT4", "UINT4", "FLOAT4E2M1",
          "INT2", "BOOL", "INT8", "UINT64", "COMPLEX64", "STRING")


# -- types -------------------------------------------------------------------------------------------------------------
def _weights_of(kind: int, size: int = 4) -> onnx.ModelProto:
    """Return a convolution by weights of a type, with ``size`` bytes of data."""
    weights = onnx.TensorProto(name="w", dims=[2, 2, 1, 1], data_type=kind, raw_data=bytes(range(60, 60 + size)))
    return network(node("Conv", ["x", "w"], ["y"], name="conv"), weights=[weights])


def _cast_weights(kind: int, size: int) -> onnx.ModelProto:
    weights = onnx.TensorProto(name="q", dims=[2, 2, 1, 1], data_type=kind, raw_data=bytes(range(60, 60 + size)))
    return network(node("Cast", ["q"], ["w"], to=1), node("Conv", ["x", "w"], ["y"], name="conv"), weights=[weights])


def _scaled_weights(kind: int, size: int) -> onnx.ModelProto:
    weights = onnx.TensorProto(name="q", dims=[2, 2, 1, 1], data_type=kind, raw_data=bytes(range(60, 60 + size)))
    return network(node("DequantizeLinear", ["q", "s"], ["w"]), node("Conv", ["x", "w"], ["y"], name="conv"),
                   weights=[weights, const("s", 0.5)], opset=21)


def _input_of(kind: int) -> onnx.ModelProto:
    return named(lambda model: model.graph.input[0].type.tensor_type.__setattr__("elem_type", kind))


def _cast_to(kind: int) -> onnx.ModelProto:
    return network(node("Cast", ["x"], ["c"], to=kind), node("Cast", ["c"], ["y"], to=1), opset=21)


def _value(change: Callable[[onnx.TypeProto], Any]) -> Make:
    """Return a maker of a network whose input is no tensor."""
    def at(model: onnx.ModelProto) -> None:
        kind = model.graph.input[0].type
        kind.Clear()
        change(kind)

    return lambda: named(at)


# -- beside the graph --------------------------------------------------------------------------------------------------
def _sparse(indices: Any, values: Any, dims: tuple[int, ...]) -> onnx.ModelProto:
    """Return a network of a sparse constant among the initializers."""
    model = one("Add", const("unread", 1.0))
    model.graph.node[0].input[1] = "w"
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(
        values=const("w", values), indices=const("", indices, np.int64), dims=dims))
    return model


def _training() -> onnx.ModelProto:
    model = named(lambda model: None)
    step = model.training_info.add()
    step.algorithm.CopyFrom(model.graph)
    step.initialization.CopyFrom(model.graph)
    step.update_binding.add(key="w", value="y")
    return model


def _annotated() -> onnx.ModelProto:
    model = named(lambda model: None)
    for _ in range(2):
        found = model.graph.quantization_annotation.add(tensor_name="s")
        found.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="nobody")
    return model


def _said_shapes(*shape: Any) -> onnx.ModelProto:
    """Return a network that says another shape of a tensor between than it has."""
    return named(lambda model: model.graph.value_info.append(
        helper.make_tensor_value_info("s", TensorProto.FLOAT, shape)))


def _in_constant(**data: str) -> onnx.ModelProto:
    """Return a network whose constant node has its data in another file."""
    tensor = onnx.TensorProto(name="w", dims=[16], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in data.items():
        tensor.external_data.add(key=key, value=value)
    return network(node("Constant", [], ["c"], value=tensor), node("Add", ["x", "c"], ["y"]))


def _two_data() -> onnx.ModelProto:
    """Return weights whose data stand there twice, in two fields that differ."""
    return named(lambda model: model.graph.initializer[0].float_data.extend([1.0] * 7))


# -- many --------------------------------------------------------------------------------------------------------------
def _twice_each(depth: int, operator: str) -> onnx.ModelProto:
    """Return a chain in which each node reads the one before twice: 2**depth paths."""
    return network(*(node(operator, [f"t{at}" if at else "x"] * 2, [f"t{at + 1}" if at < depth - 1 else "y"])
                     for at in range(depth)))


def _ladder(depth: int) -> onnx.ModelProto:
    """Return two chains that cross at every step."""
    nodes = [node("Relu", ["x"], ["a0"]), node("Neg", ["x"], ["b0"])]
    for at in range(depth):
        nodes += [node("Add", [f"a{at}", f"b{at}"], [f"a{at + 1}"]), node("Max", [f"a{at}", f"b{at}"], [f"b{at + 1}"])]
    return network(*nodes, node("Add", [f"a{depth}", f"b{depth}"], ["y"]))


def _backwards(count: int) -> onnx.ModelProto:
    """Return a chain whose nodes stand in the opposite order."""
    nodes = [node("Neg" if at % 2 else "Abs", [f"t{at}" if at else "x"], [f"t{at + 1}" if at < count - 1 else "y"])
             for at in range(count)]
    return network(*reversed(nodes))


def _long_reads(count: int) -> onnx.ModelProto:
    """Return a chain, each of whose tensors the end reads."""
    chain = [node("Neg", [f"t{at}" if at else "x"], [f"t{at + 1}"]) for at in range(count)]
    return network(*chain, node("Sum", [f"t{at + 1}" for at in range(count)], ["y"]))


def _properties(count: int, size: int) -> onnx.ModelProto:
    def change(model: onnx.ModelProto) -> None:
        for at in range(count):
            model.metadata_props.add(key=f"k{at % 7}", value="\x1b[31m" * size)

    return named(change)


NETWORKS: dict[str, Make] = {
    **{f"weights of {name}": partial(_weights_of, TYPES[name]) for name in NARROW if name in TYPES},
    **{f"cast weights of {name}": partial(_cast_weights, TYPES[name], size) for name, size in (
        ("FLOAT8E4M3FN", 4), ("FLOAT8E5M2", 4), ("INT4", 2), ("UINT4", 2), ("BFLOAT16", 8), ("FLOAT4E2M1", 2),
        ("COMPLEX64", 32), ("STRING", 4), ("BOOL", 4)) if name in TYPES},
    **{f"scaled weights of {name}": partial(_scaled_weights, TYPES[name], size) for name, size in (
        ("INT4", 2), ("UINT4", 2), ("FLOAT8E4M3FN", 4), ("INT16", 8), ("UINT16", 8), ("INT32", 16),
        ("BOOL", 4)) if name in TYPES},
    "scaled weights of INT4, cut": partial(_scaled_weights, TYPES["INT4"], 1),
    **{f"an input of {name}": partial(_input_of, number) for name, number in TYPES.items()},
    **{f"a cast to {name}": partial(_cast_to, number) for name, number in TYPES.items()},
    "a cast to 99": partial(_cast_to, 99), "a cast to -1": partial(_cast_to, -1),
    "an input of a list": _value(lambda kind: kind.sequence_type.elem_type.tensor_type.SetInParent()),
    "an input of a map": _value(lambda kind: setattr(kind.map_type, "key_type", 7)),
    "an input that may be none": _value(lambda kind: kind.optional_type.elem_type.tensor_type.SetInParent()),
    "an input that is sparse": _value(lambda kind: setattr(kind.sparse_tensor_type, "elem_type", 1)),
    "an input of nothing": _value(lambda kind: None),
    "an input of no name": lambda: named(lambda model: setattr(model.graph.input[0], "name", "")),
    "an output of no name": lambda: named(lambda model: setattr(model.graph.output[0], "name", "")),
    "an output that nobody makes": lambda: named(lambda model: setattr(model.graph.output[0], "name", "nobody")),
    "an output that is weights": lambda: named(lambda model: setattr(model.graph.output[0], "name", "w")),
    **NESTED,
    "sparse": lambda: _sparse([1, 3], [2.0, 4.0], (4,)),
    "sparse outside": lambda: _sparse([1, 99], [2.0, 4.0], (4,)),
    "sparse below 0": lambda: _sparse([-9, 1], [2.0, 4.0], (4,)),
    "sparse of 2**62": lambda: _sparse([1, 3], [2.0, 4.0], (LARGE,)),
    "sparse of -4": lambda: _sparse([1, 3], [2.0, 4.0], (-4,)),
    "sparse of other counts": lambda: _sparse([1], [2.0, 4.0], (4,)),
    "sparse of pairs": lambda: _sparse([[0, 1], [0, 9]], [2.0, 4.0], (1, 4)),
    "what trains": _training, "annotations": _annotated, "another shape said": lambda: _said_shapes(7, 7),
    "a shape of 2**62 said": lambda: _said_shapes(LARGE, LARGE), "a shape below 0 said": lambda: _said_shapes(-1, -1),
    "a size said twice": lambda: _said_shapes("n", "n", 4, 4),
    "data of a constant at /dev/zero": lambda: _in_constant(location="/dev/zero"),
    "data of a constant at nothing": lambda: _in_constant(), "data of a constant up": lambda: _in_constant(
        location="../../../../../../etc/passwd", length="64"),
    "data of a constant in itself": lambda: _in_constant(location="odd.onnx", offset="0", length="64"),
    "data twice": _two_data,
    "2**40 paths": lambda: _twice_each(40, "Add"), "2**300 paths": lambda: _twice_each(300, "Max"),
    "2**40 paths of Mul": lambda: _twice_each(40, "Mul"), "2**12 channels": lambda: _twice_each(16, "Add"),
    "a ladder of 2000": lambda: _ladder(1000), "3000 backwards": lambda: _backwards(3000),
    "2000 read at the end": lambda: _long_reads(2000),
    "100000 properties": lambda: _properties(100_000, 1), "a property of 10 MB": lambda: _properties(1, 2_000_000),
    "two operator sets": lambda: named(lambda model: model.opset_import.add(domain="", version=9)),
    "an operator set of nobody": lambda: named(lambda model: model.opset_import.add(domain="\x1b[31m", version=1)),
    "an attribute twice": lambda: named(lambda model: [model.graph.node[0].attribute.add(
        name="strides", ints=[number] * 2, type=7) for number in (1, 2)]),
    "an attribute of no type": lambda: named(lambda model: model.graph.node[0].attribute.add(name="strides", i=3)),
    "an attribute of all types": lambda: named(lambda model: model.graph.node[0].attribute.add(
        name="strides", i=3, f=1.0, s=b"x", ints=[1, 1], floats=[1.0], type=7)),
    "strides of NaN": lambda: named(lambda model: model.graph.node[0].attribute.add(
        name="strides", floats=[float("nan")] * 2, type=6)),
    "a slope of NaN": lambda: one("LeakyRelu", alpha=float("nan")), "a slope of 1e38": lambda: one(
        "LeakyRelu", alpha=1e38),
    "an epsilon of -1": lambda: one("InstanceNormalization", const("a", [1, 1]), const("b", [0, 0]), epsilon=-1.0),
    "an epsilon of NaN": lambda: one("InstanceNormalization", const("a", [1, 1]), const("b", [0, 0]),
                                     epsilon=float("nan")),
    "a scalar input": lambda: network(node("Relu", ["x"], ["y"]), shape=()),
    "an input of no rows": lambda: network(node("GlobalAveragePool", ["x"], ["y"]), shape=(1, 2, 0, 4)),
    "an output of no channels": lambda: one(
        "Slice", const("a", [2], np.int64), const("b", [2], np.int64), const("c", [1], np.int64)),
    "a GEMM of no rows": lambda: network(node("Gemm", ["x", "w"], ["y"]), shape=(0, 4),
                                         weights=[const("w", np.ones((4, 4)))]),
    "a random number": lambda: network(node("RandomNormal", [], ["r"], shape=[1, 2, 4, 4]),
                                       node("Add", ["x", "r"], ["y"])),
    "a random number of 2**40": lambda: network(node("RandomNormal", [], ["r"], shape=[1 << 40]),
                                                node("Add", ["x", "r"], ["y"])),
    "a dropout that trains": lambda: one("Dropout", const("r", 0.5), const("t", True, bool)),
    "a normalization that trains": lambda: network(node(
        "BatchNormalization", ["x", "a", "b", "b", "a"], ["y", "m", "v"], training_mode=1),
        weights=[const("a", [1, 1]), const("b", [0, 0])]),
    "a list and back": lambda: network(node("SequenceConstruct", ["x", "x"], ["s"]), node(
        "ConcatFromSequence", ["s"], ["y"], axis=1)),
    "a list as result": lambda: network(node("SequenceConstruct", ["x", "x"], ["y"])),
    "a Fourier transform of 2**40": lambda: one("DFT", const("n", 1 << 40, np.int64)),
    "an equation of letters": lambda: one("Einsum", equation="abcd->" + "dcba" * 9),
    "an equation of points": lambda: one("Einsum", equation="...->..." * 3), "an equation of nothing": lambda: one(
        "Einsum", equation=""),
    "a top of 2**62": lambda: network(node("TopK", ["x", "k"], ["y", "i"]), weights=[const("k", [LARGE], np.int64)]),
    "scales for each of 7 channels": lambda: network(
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
        weights=[const("s", [1] * 7), const("z", [0] * 7, np.int8)]),
    "scales in blocks of 0": lambda: network(
        node("QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=0), node("DequantizeLinear", ["q", "s"], ["y"]),
        weights=[const("s", np.ones((1, 2, 4, 4)))], opset=21),
    "scales in blocks of -5": lambda: network(
        node("DequantizeLinear", ["q", "s"], ["w"], axis=1, block_size=-5), node("Add", ["x", "w"], ["y"]),
        weights=[const("q", np.ones((2, 4)), np.int8), const("s", np.ones((2, 2)))], opset=21),
}


def _odd(make: Make, command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        copy_good(folder)
        (folder / "odd.onnx").write_bytes(make().SerializeToString())
        return ["odd.onnx" if word == "net.onnx" else word for word in command]

    return recipe


COMMANDS = (COMPILE, ["inspect", "net.onnx", "-a", "arty_int8"], [*COMPILE, "--host-fallback"])


def cases() -> list[Case]:
    """Return each network with one way to read it, in turn."""
    found = [Case(f"strange network: {name}", "strange networks", _odd(make, COMMANDS[number % len(COMMANDS)]),
                  code=None) for number, (name, make) in enumerate(NETWORKS.items())]
    return quick(found, "strange network: a cast to INT4")
