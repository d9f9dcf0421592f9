# SPDX-License-Identifier: Apache-2.0
"""ONNX files: sizes that nobody has room for, loops that never end, data elsewhere, graphs that are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.tb.hostile.case import COMPILE, Case, Recipe, good, good_and, network, quick
from weft.tb.hostile.onnx_constants import CONSTANTS, TERA, Make, floats, ints, node, scalar, then_add


def _loop(trips: int, kind: str = "Loop") -> onnx.ModelProto:
    """Return a network with a constant that so many turns of a loop make."""
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1])
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "v"], ["w"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         value("v")], [helper.make_tensor_value_info("on", TensorProto.BOOL, []), value("w")])
    return then_add(node(kind, ["n", "go0", "a"], ["c"], body=body),
                    weights=[scalar("n", trips), scalar("go0", True, bool), floats("a", 0)])


def _nested(depth: int, known: bool) -> onnx.ModelProto:
    """Return a choice in a choice in a choice, by a constant if it is ``known``, else by the input."""
    graph = helper.make_graph([node("Identity", ["x"], ["z"])], "last", [], [onnx.ValueInfoProto(name="z")])
    for _ in range(depth):
        inner = node("If", ["b"], ["z"], then_branch=graph, else_branch=helper.make_graph(
            [node("Identity", ["x"], ["z"])], "other", [], [onnx.ValueInfoProto(name="z")]))
        graph = helper.make_graph([inner], "inner", [], [onnx.ValueInfoProto(name="z")])
    choice = node("If", ["b"], ["y"], then_branch=graph, else_branch=graph)
    if known:
        return network(choice, weights=[scalar("b", True, bool)])
    return network(node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["b"], to=9), choice)


def _function(calls: str) -> onnx.ModelProto:
    """Return a model with a function that calls another, or itself."""
    model = network(onnx.NodeProto(op_type="F", domain="own", input=["x"], output=["y"]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    for name, other in (("F", calls), ("G", "F")):
        body = onnx.NodeProto(op_type=other, domain="own", input=["p"], output=["q"])
        model.functions.append(helper.make_function("own", name, ["p"], ["q"], [body], [
            helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]))
    return model


def _functions_in_functions(levels: int) -> onnx.ModelProto:
    """Return a model with 2**levels calls."""
    model = network(onnx.NodeProto(op_type="F0", domain="own", input=["x"], output=["y"]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    for level in range(levels):
        calls = [onnx.NodeProto(op_type=f"F{level + 1}" if level < levels - 1 else "Relu",
                                domain="own" if level < levels - 1 else "", input=[a], output=[b])
                 for a, b in (("p", "m"), ("m", "q"))]
        model.functions.append(helper.make_function("own", f"F{level}", ["p"], ["q"], calls, [
            helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]))
    return model


def _changed(change: Callable[[onnx.ModelProto], Any]) -> Make:
    def make() -> onnx.ModelProto:
        model = good()
        change(model)
        return model

    return make


def _chain(*nodes: onnx.NodeProto) -> Make:
    return lambda: network(*nodes)


GRAPHS: dict[str, Make] = {
    "Loop of 10**12": lambda: _loop(TERA), "Loop of a million": lambda: _loop(1_000_000),
    "Scan instead of Loop": lambda: _loop(1, "Scan"),
    "a function that calls itself": lambda: _function("F"),
    "functions in a circle": lambda: _function("G"), "2**40 calls": lambda: _functions_in_functions(40),
    "a cycle": _chain(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])),
    "a node that reads itself": _chain(node("Add", ["x", "y"], ["y"])),
    "a tensor made twice": _chain(node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])),
    "x as result": _chain(node("Relu", ["x"], ["x"])), "no node": lambda: network(),
    "no input": _changed(lambda model: model.graph.ClearField("input")),
    "no output": _changed(lambda model: model.graph.ClearField("output")),
    "no operator set": _changed(lambda model: model.ClearField("opset_import")),
    "operator set 2**60": _changed(lambda model: setattr(model.opset_import[0], "version", 1 << 60)),
    "IR version -1": _changed(lambda model: setattr(model, "ir_version", -1)),
    "no graph": _changed(lambda model: model.ClearField("graph")),
    "100000 nodes": lambda: network(*(node("Relu", [f"t{i}" if i else "x"], [f"t{i + 1}" if i < 99_999 else "y"])
                                      for i in range(100_000))),
    "an empty name": _chain(node("Relu", [""], ["y"])), "no input of a node": _chain(node("Relu", [], ["y"])),
    "no result of a node": _chain(node("Relu", ["x"], [])), "1000 inputs": _chain(node("Relu", ["x"] * 1000, ["y"])),
    "an input of 2**40 pixels": lambda: network(node("Relu", ["x"], ["y"]), shape=(1, 1, 1 << 20, 1 << 20)),
    "an input of 2**62 channels": lambda: network(node("Relu", ["x"], ["y"]), shape=(1, 1 << 62)),
    "an input of 1000 dimensions": lambda: network(node("Relu", ["x"], ["y"]), shape=(1,) * 1000),
    "an input larger than the machine": lambda: network(node("Relu", ["x"], ["y"]), shape=(1, 1, 4096, 8192)),
    "an empty input": lambda: network(node("Relu", ["x"], ["y"]), shape=(1, 0, 4)),
    "a batch of 2**40": lambda: network(node("Relu", ["x"], ["y"]), shape=(TERA, 1)),
}


def _sized(operator: str, weights: list[onnx.TensorProto], inputs: list[str], **attributes: Any) -> Make:
    return lambda: network(node(operator, ["x", *inputs], ["y"], **attributes), weights=weights)


def _weight(*shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), "w")


OPERATORS: dict[str, Make] = {
    "Expand": _sized("Expand", [ints("n", 1 << 20, 2, 4, 4)], ["n"]),
    "Tile": _sized("Tile", [ints("n", 1, 1, 1 << 15, 1 << 15)], ["n"]),
    "Pad": _sized("Pad", [ints("n", 0, 0, 1 << 20, 1 << 20, 0, 0, 1 << 20, 1 << 20)], ["n"]),
    "Pad below nothing": _sized("Pad", [ints("n", 0, 0, -9, 0, 0, 0, -9, 0)], ["n"]),
    "Resize": _sized("Resize", [ints("n", 1, 2, 1 << 20, 1 << 20)], ["", "", "n"], mode="nearest"),
    "Resize to infinity": _sized("Resize", [floats("s", 1, 1, np.inf, 1)], ["", "s"], mode="nearest"),
    "Resize by NaN": _sized("Resize", [floats("s", 1, 1, np.nan, 1)], ["", "s"], mode="nearest"),
    "Resize by -1": _sized("Resize", [floats("s", 1, 1, -1, 1)], ["", "s"], mode="nearest"),
    "DepthToSpace of 0": _sized("DepthToSpace", [], [], blocksize=0),
    "SpaceToDepth of 2**40": _sized("SpaceToDepth", [], [], blocksize=TERA),
    "Split in 2**40": _sized("Split", [], [], num_outputs=TERA),
    "Gather of nothing": _sized("Gather", [ints("n")], ["n"]),
    "Gather outside": _sized("Gather", [ints("n", 99)], ["n"]),
    "Reshape to 2**40": _sized("Reshape", [ints("n", TERA)], ["n"]),
    "Reshape to -5": _sized("Reshape", [ints("n", -5, -5)], ["n"]),
    "Transpose of a text": _sized("Transpose", [], [], perm="0123"),
    "Transpose twice the axis": _sized("Transpose", [], [], perm=[0, 1, 1, 3]),
    "Slice by 0": _sized("Slice", [ints("a", 0), ints("b", 3), ints("d", 2), ints("s", 0)], ["a", "b", "d", "s"]),
    "Slice of axis 2**40": _sized("Slice", [ints("a", 0), ints("b", 3), ints("d", TERA)], ["a", "b", "d"]),
    "Unsqueeze of axis 2**40": _sized("Unsqueeze", [ints("n", TERA)], ["n"]),
    "Concat of axis 99": _sized("Concat", [], ["x"], axis=99), "Flatten of axis 99": _sized("Flatten", [], [], axis=99),
    "Softmax of axis 99": _sized("Softmax", [], [], axis=99),
    "Conv of pads 2**30": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], pads=[1 << 30] * 4),
    "Conv of negative pads": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], pads=[-9] * 4),
    "Conv of stride 0": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], strides=[0, 0]),
    "Conv of dilation 2**62": _sized("Conv", [_weight(1, 2, 3, 3)], ["w"], dilations=[1 << 62, 1 << 62]),
    "Conv of 2**40 groups": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], group=TERA),
    "Conv of 0 groups": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], group=0),
    "Conv of no channels": _sized("Conv", [_weight(0, 2, 1, 1)], ["w"]),
    "Conv of 3 pads": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], pads=[1, 1, 1]),
    "Conv of a kernel that lies": _sized("Conv", [_weight(1, 2, 1, 1)], ["w"], kernel_shape=[1 << 40, 1]),
    "ConvTranspose of stride 2**30": _sized("ConvTranspose", [_weight(2, 1, 1, 1)], ["w"], strides=[1 << 30, 1 << 30]),
    "ConvTranspose of output 2**30": _sized("ConvTranspose", [_weight(2, 1, 1, 1)], ["w"], output_shape=[1 << 30] * 2),
    "MaxPool of 2**31": _sized("MaxPool", [], [], kernel_shape=[1 << 31, 1 << 31]),
    "MaxPool of 0": _sized("MaxPool", [], [], kernel_shape=[0, 0]),
    "AveragePool of pads 2**30": _sized("AveragePool", [], [], kernel_shape=[1, 1], pads=[1 << 30] * 4),
    "a weight of NaN": _sized("Mul", [scalar("n", np.nan, np.float32)], ["n"]),
    "a weight of 1e38": _sized("Mul", [scalar("n", 1e38, np.float32)], ["n"]),
    "an operator of 100000 letters": _sized("A" * 100_000, [], []),
    "an operator of escapes": lambda: network(node("\x1b[31mRelu\x1b[0m", ["x"], ["y"], name="\x1b]0;owned\x07")),
    "an operator of nobody": lambda: network(node("Relu", ["x"], ["y"], domain="\u202ecom.nobody")),
    "a mode of a million letters": _sized("Pad", [ints("n", *[1] * 8)], ["n"], mode="a" * 1_000_000),
    "a mode of escapes": _sized("Pad", [ints("n", *[1] * 8)], ["n"], mode="\x1b[2J"),
    "a million attributes": _sized("Relu", [], [], **{"a": list(range(1_000_000))}),
    "names of escapes": lambda: network(node("Sin", ["x"], ["y"], name="\x1b[31m\x9b\u202e\x00")),
    "names of newlines": lambda: network(node("Sin", ["x"], ["y"], name="a\nweft: all is well\n")),
    "a text for a number": _sized("Flatten", [], [], axis="one"),
    "a number for a graph": _sized("If", [], [], then_branch=1),
}


# -- constants that lie ------------------------------------------------------------------------------------------------
def _lying(dims: list[int], kind: int = TensorProto.FLOAT, data: bytes = b"") -> Make:
    tensor = onnx.TensorProto(name="w", dims=dims, data_type=kind, raw_data=data)
    return lambda: network(node("Add", ["x", "w"], ["y"]), weights=[tensor])


def _in_a_node(tensor: onnx.TensorProto) -> Make:
    return lambda: network(node("Constant", [], ["c"], value=tensor), node("Add", ["x", "c"], ["y"]))


def _sparse_constant() -> onnx.ModelProto:
    values, indices = floats("v", 1), ints("i", 5)
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[TERA])
    return network(node("Constant", [], ["c"], sparse_value=sparse), node("Add", ["x", "c"], ["y"]))


LIARS: dict[str, Make] = {
    "2**40 elements, no data": _lying([TERA]), "2**80 elements, no data": _lying([TERA, TERA]),
    "2**62 bytes": _lying([1 << 62], TensorProto.INT8), "-1 elements": _lying([-1]),
    "-2 x -2 elements": _lying([-2, -2]),
    "more than its data": _lying([1, 2, 4, 4], data=bytes(16)), "less than its data": _lying([1], data=bytes(400)),
    "1000 dimensions": _lying([1] * 1000, data=bytes(4)), "type 99": _lying([1], 99, bytes(4)),
    "type undefined": _lying([1], 0, bytes(4)), "texts": _lying([1], TensorProto.STRING, bytes(4)),
    "Constant of 2**40, no data": _in_a_node(onnx.TensorProto(name="w", dims=[TERA], data_type=1)),
    "Constant of -1": _in_a_node(onnx.TensorProto(name="w", dims=[-1], data_type=1)),
    "sparse Constant of 2**40": _sparse_constant,
    "a weight larger than the machine": lambda: network(
        node("Conv", ["x", "w"], ["y"]), weights=[numpy_helper.from_array(np.ones((4096, 2, 3, 3), np.float32), "w")]),
}


def _outside(location: str, offset: object = 0, length: object = 64, dims: tuple[int, ...] = (16,),
             other: str = "checksum") -> Make:
    tensor = onnx.TensorProto(name="w", dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length), (other, "0")):
        tensor.external_data.add(key=key, value=str(value))
    return lambda: network(node("Add", ["x", "w"], ["y"]), weights=[tensor])


OUTSIDE: dict[str, Make] = {
    "/dev/zero": _outside("/dev/zero"), "a device up": _outside("../" * 30 + "dev/zero"),
    "/etc/passwd": _outside("/etc/passwd"),
    "a file up": _outside("../../secret"), "nothing": _outside("none.bin"), "no place": _outside(""),
    "the folder": _outside("."), "a link to a device": _outside("zero.bin"), "a pipe": _outside("pipe.bin"),
    "a link up": _outside("up.bin"), "an offset behind the end": _outside("net.onnx", 1 << 40),
    "a negative offset": _outside("net.onnx", -64), "a length of 2**40": _outside("net.onnx", 0, TERA),
    "a length of letters": _outside("net.onnx", 0, "many"),
    "an offset of 5000 digits": _outside("net.onnx", "9" * 5000),
    "2**40 elements": _outside("net.onnx", 0, 64, (TERA,)),
    "more elements than bytes": _outside("net.onnx", 0, 64, (1 << 20,)),
    "a key of escapes": _outside("net.onnx", other="\x1b[31m"),
    "a name of NUL": _outside("a\0b"), "a name of escapes": _outside("\x1b[31m"), "a long name": _outside("a" * 5000),
}


def _links(folder: Path) -> None:
    (folder / "zero.bin").symlink_to("/dev/zero")
    (folder / "up.bin").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.bin")


# -- bytes -------------------------------------------------------------------------------------------------------------
def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def _deep(levels: int) -> bytes:
    """Return a graph in an attribute of a node of a graph, and so on.

    The fields are 7 graph, 1 node, 5 attribute, 6 graph."""
    content = b""
    for _ in range(levels):
        for field in (6, 5, 1):
            content = bytes([field << 3 | 2]) + _varint(len(content)) + content
    return bytes([7 << 3 | 2]) + _varint(len(content)) + content


CONTENTS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"", "a text": lambda: b"not a model\n" * 9, "zeros": lambda: bytes(1 << 16),
    "a million levels": lambda: _deep(3000),
    "a field that claims 4 GB": lambda: b"\x3a\xff\xff\xff\xff\x0f" + b"x" * 50,
    "an endless number": lambda: b"\x08" + b"\xff" * 1000, "cut": lambda: good().SerializeToString()[:-9],
    "twice": lambda: good().SerializeToString() * 2, "a zip": lambda: b"PK\x03\x04" + bytes(100),
    "groups": lambda: b"\x0b" * 100_000,
    "no UTF-8 in a name": lambda: good().SerializeToString().replace(b"curve", b"\xff\xfe\xfd\xfc\xfb"),
    "no UTF-8 in an operator": lambda: good().SerializeToString().replace(b"Relu", b"\xed\xa0\x80\xff"),
    "no UTF-8 in a tensor": lambda: good().SerializeToString().replace(b"\x0a\x01x", b"\x0a\x01\xff"),
}


def _made(make: Make) -> Callable[[Path], Any]:
    return lambda folder: (folder / "net.onnx").write_bytes(make().SerializeToString())


def _sparse(folder: Path) -> None:
    with (folder / "net.onnx").open("ab") as file:
        file.truncate(TERA)


def _renamed(name: str) -> Recipe:
    """Return the recipe of a good model under another name, after which the compiled files are called."""

    def recipe(folder: Path) -> list[str]:
        (folder / name).write_bytes(good().SerializeToString())
        return ["compile", name, "-a", "tiny", "-o", "out"]

    return recipe


def _placed(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        (folder / "net.onnx").unlink()
        make(folder / "net.onnx")

    return change


def cases() -> list[Case]:
    from weft.tb.hostile.arrays import PLACES

    arty = ["compile", "net.onnx", "-a", "arty", "-o", "out"]
    kinds = {"constant": CONSTANTS, "graph": GRAPHS, "operator": OPERATORS, "liar": LIARS}
    found = [Case(f"onnx {kind}: {name}", ".onnx", good_and(arty if kind != "liar" else COMPILE, _made(make)))
             for kind, makers in kinds.items() for name, make in makers.items()]
    found += [Case(f"onnx choices: 40 deep, {'known' if known else 'by the input'}", ".onnx",
                   good_and(arty, _made(partial(_nested, 20, known))), code=0) for known in (True, False)]
    found += [Case(f"onnx {kind} for the host: {name}", ".onnx",
                   good_and([*COMPILE, "--host-fallback"], _made(makers[name])))
              for kind, makers,
              name in (("constant", CONSTANTS, "ConstantOfShape"), ("graph", GRAPHS, "Loop of 10**12"),
                                         ("operator", OPERATORS, "Tile"), ("operator", OPERATORS, "names of escapes"))]

    found += [Case(f"onnx data outside: {name}", ".onnx", good_and(COMPILE, partial(_with_links, make)))
              for name, make in OUTSIDE.items()]
    found += [Case(f"onnx bytes: {name}", ".onnx", good_and(
        COMPILE, lambda folder, make=make: (folder / "net.onnx").write_bytes(make())))  # type: ignore[misc]
        for name, make in CONTENTS.items()]
    found += [Case(f"onnx place: {name}", ".onnx", good_and(COMPILE, _placed(make))) for name, make in PLACES.items()]
    found += [Case("onnx place: a terabyte", ".onnx", good_and(COMPILE, _sparse))]
    found += [Case(f"onnx called {kind}", ".onnx", _renamed(name)) for kind, name in {
        "by an escape": "\x1b[31m.onnx", "by a surrogate": "\udcff.onnx", "by a hidden name": ".hidden",
        "by 240 letters": "a" * 240 + ".onnx", "by a newline": "a\nb.onnx"}.items()]
    return quick(found, "onnx constant: ConstantOfShape", "onnx constant: Range of computed ends",
                 "onnx constant: Tile",
                 "onnx constant: Expand", "onnx constant: many halves", "onnx constant: a pattern that takes long",
                 "onnx graph: Loop of 10**12", "onnx graph: a cycle", "onnx graph: functions in a circle",
                 "onnx graph: an input of 2**40 pixels", "onnx operator: Pad", "onnx operator: names of escapes",
                 "onnx liar: 2**40 elements, no data", "onnx data outside: a device up",
                 "onnx data outside: a link to a device", "onnx bytes: a million levels", "onnx called by a surrogate")


def _with_links(make: Make, folder: Path) -> None:
    _links(folder)
    _made(make)(folder)
