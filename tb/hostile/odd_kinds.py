# SPDX-License-Identifier: Apache-2.0
"""Networks, schedules and archives of kinds that rules do not draw: circles, clashes of names, extremes of sizes."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.tb.hostile.case import COMPILE, RUN, Case, Recipe, copy_good, good_and, network, quick

LARGE = 1 << 62
TAKE = [*COMPILE, "--schedule", "net.json"]
node = helper.make_node


def const(name: str, values: Any, kind: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, kind), name)


def conv(**attributes: Any) -> onnx.ModelProto:
    """A convolution by ones with these attributes."""
    return network(node("Conv", ["x", "w"], ["y"], name="conv", **attributes),
                   weights=[numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")])


def weights(values: Any) -> onnx.ModelProto:
    """A convolution by weights [2, 2, 1, 1] of one value."""
    return network(node("Conv", ["x", "w"], ["y"], name="conv"),
                   weights=[numpy_helper.from_array(np.full((2, 2, 1, 1), values, np.float32), "w")])


def one(operator: str, *constants: onnx.TensorProto, opset: int = 17, **attributes: Any) -> onnx.ModelProto:
    """One operator of x and constants."""
    return network(node(operator, ["x", *(each.name for each in constants)], ["y"], name="odd", **attributes),
                   weights=list(constants), opset=opset)


def named(change: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    """A convolution and a ReLU, changed."""
    model = network(node("Conv", ["x", "w"], ["s"], name="conv"), node("Relu", ["s"], ["y"], name="relu"),
                    weights=[numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")])
    change(model)
    return model


def functions(calls: str) -> onnx.ModelProto:
    """A model with a function F that calls F or G."""
    model = network(node("F", ["x"], ["y"], domain="own", name="call"))
    model.opset_import.append(helper.make_opsetid("own", 1))
    for name, other in (("F", calls), ("G", "F")):
        called = node(other, ["a"], ["b"], domain="own")
        model.functions.append(helper.make_function("own", name, ["a"], ["b"], [called],
                                                    [helper.make_opsetid("own", 1)]))
    return model


def quantised(scale: float, zero: Any, kind: type = np.int8, **attributes: Any) -> onnx.ModelProto:
    return network(node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantize", **attributes),
                   node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="back", **attributes),
                   weights=[const("scale", scale), const("zero", zero, kind)])


def _outside(location: str, **more: str) -> onnx.ModelProto:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=value)

    return named(change)


def _ends(kind: int, shape: Any) -> Callable[[onnx.ModelProto], Any]:
    return lambda model: model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, shape))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "a circle of two": lambda: network(node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]),
                                       node("Add", ["x", "a"], ["y"])),
    "a node of itself": lambda: network(node("Add", ["x", "y"], ["y"])),
    "two makers of one": lambda: network(node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])),
    "an input as output": lambda: named(lambda model: model.graph.output[0].CopyFrom(model.graph.input[0])),
    "an output twice": lambda: named(lambda model: model.graph.output.append(model.graph.output[0])),
    "an input twice": lambda: named(lambda model: model.graph.input.append(model.graph.input[0])),
    "no output": lambda: named(lambda model: model.graph.ClearField("output")),
    "weights as input": lambda: named(lambda model: model.graph.initializer.append(const("x", np.ones((1, 2, 4, 4))))),
    "weights twice": lambda: named(lambda model: model.graph.initializer.append(model.graph.initializer[0])),
    "NaN weights": lambda: weights(np.nan), "infinite weights": lambda: weights(np.inf),
    "weights of 3e38": lambda: weights(3e38), "weights of 1e-45": lambda: weights(1e-45),
    "strides of -1": lambda: conv(strides=[-1, -1]), "strides of 0": lambda: conv(strides=[0, 1]),
    "strides of 2**62": lambda: conv(strides=[LARGE, LARGE]), "dilations of 2**62": lambda: conv(dilations=[LARGE] * 2),
    "pads of -9": lambda: conv(pads=[-9] * 4), "pads of 2**62": lambda: conv(pads=[LARGE] * 4),
    "pads of three": lambda: conv(pads=[1, 1, 1]), "groups of 0": lambda: conv(group=0),
    "groups of 2**62": lambda: conv(group=LARGE), "another kernel": lambda: conv(kernel_shape=[3, 3]),
    "text as strides": lambda: conv(strides="two"), "an odd auto_pad": lambda: conv(auto_pad="\u202e"),
    "a function of itself": lambda: functions("F"), "functions in a circle": lambda: functions("G"),
    "a scale of 0": lambda: quantised(0.0, 0), "a scale of NaN": lambda: quantised(float("nan"), 0),
    "a scale below 0": lambda: quantised(-1.0, 0), "a zero point of 32 bits": lambda: quantised(1.0, 1 << 20, np.int32),
    "scales on axis 99": lambda: quantised(1.0, 0, axis=99),
    "RESHAPE to two unknown": lambda: one("Reshape", const("s", [-1, -1], np.int64)),
    "RESHAPE to 2**62": lambda: one("Reshape", const("s", [LARGE, LARGE], np.int64)),
    "EXPAND to 2**40": lambda: one("Expand", const("s", [1 << 20, 2, 4, 1 << 20], np.int64)),
    "TILE by 2**40": lambda: one("Tile", const("s", [1 << 40, 1, 1, 1], np.int64)),
    "TILE by -1": lambda: one("Tile", const("s", [-1, 1, 1, 1], np.int64)),
    "PAD by 2**40": lambda: one("Pad", const("s", [0, 0, 0, 0, 0, 0, 1 << 40, 1 << 40], np.int64)),
    "SLICE by 0": lambda: one("Slice", const("a", [0], np.int64), const("b", [2], np.int64), const("c", [3], np.int64),
                              const("d", [0], np.int64)),
    "GATHER of 2**62": lambda: one("Gather", const("i", [LARGE], np.int64)),
    "TRANSPOSE of one axis": lambda: one("Transpose", perm=[0, 0, 0, 0]),
    "SOFTMAX of axis 2**62": lambda: one("Softmax", axis=LARGE),
    "CLIP backwards": lambda: one("Clip", const("a", 6.0), const("b", 0.0)),
    "CLIP to NaN": lambda: one("Clip", const("a", np.nan), const("b", np.nan)),
    "RESIZE by 1e30": lambda: network(node("Resize", ["x", "", "s"], ["y"]), weights=[const("s", [1, 1, 1e30, 1e30])]),
    "RESIZE by NaN": lambda: network(node("Resize", ["x", "", "s"], ["y"]), weights=[const("s", [1, 1, np.nan, 1])]),
    "POOL of 2**62": lambda: one("MaxPool", kernel_shape=[LARGE, LARGE]),
    "POOL of 0": lambda: one("AveragePool", kernel_shape=[0, 0]),
    "POOL of -3": lambda: one("MaxPool", kernel_shape=[-3] * 2),
    "CONCAT on axis 77": lambda: network(node("Concat", ["x", "x"], ["y"], axis=77)),
    "SPLIT of -1": lambda: one("Split", const("s", [-1, 3], np.int64)),
    "variances below 0": lambda: one("BatchNormalization", *(const(name, [value] * 2) for name, value in (
        ("a", 1), ("b", 0), ("c", 0), ("d", -5)))),
    "an LSTM of 2**31": lambda: one("LSTM", const("w", np.ones((1, 4, 4))), const("r", np.ones((1, 4, 1))),
                                    hidden_size=1 << 31),
    "an input of text": lambda: named(_ends(TensorProto.STRING, [1, 2, 4, 4])),
    "an input of complex": lambda: named(_ends(TensorProto.COMPLEX128, [1, 2, 4, 4])),
    "an input of 0": lambda: named(_ends(TensorProto.FLOAT, [0, 2, 4, 4])),
    "an input of -4": lambda: named(_ends(TensorProto.FLOAT, [1, 2, -4, -4])),
    "an input of 2**62": lambda: named(_ends(TensorProto.FLOAT, [1, 2, LARGE, LARGE])),
    "an input without a shape": lambda: named(_ends(TensorProto.FLOAT, None)),
    "data up": lambda: _outside("../../../../etc/passwd"), "data of a device": lambda: _outside("/dev/zero"),
    "data before the file": lambda: _outside("x.npz", offset="-1"), "data of 2**62": lambda: _outside(
        "x.npz", offset="0", length=str(LARGE)), "data of words": lambda: _outside("x.npz", offset="many"),
    "data of itself": lambda: _outside("odd.onnx"), "data of no name": lambda: _outside(""),
    "opset 0": lambda: one("Relu", opset=0), "opset -1": lambda: one("Relu", opset=-1),
    "opset 2**31": lambda: one("Relu", opset=1 << 31),
    "dims of 2**62": lambda: named(lambda model: model.graph.initializer[0].dims.__setitem__(0, LARGE)),
    "dims of -2": lambda: named(lambda model: model.graph.initializer[0].dims.__setitem__(0, -2)),
    "weights of text": lambda: named(lambda model: setattr(model.graph.initializer[0], "data_type", 8)),
    "weights of no type": lambda: named(lambda model: setattr(model.graph.initializer[0], "data_type", 999)),
    "names of NUL": lambda: named(lambda model: setattr(model.graph.node[0], "name", "\x00")),
    "a thousand subgraph names": lambda: network(*(node("Neg" if at % 2 else "Sin", [f"t{at}" if at else "x"],
                                                        [f"t{at + 1}" if at < 999 else "y"]) for at in range(1000))),
}


def _odd(make: Callable[[], onnx.ModelProto], command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        copy_good(folder)
        (folder / "odd.onnx").write_bytes(make().SerializeToString())
        return ["odd.onnx" if word == "net.onnx" else word for word in command]

    return recipe


# -- archives ----------------------------------------------------------------------------------------------------------
def _npz(*members: tuple[str, bytes], packed: bool = False) -> bytes:
    file = io.BytesIO()
    with (warnings.catch_warnings(action="ignore"),  # of a name that stands in it twice
          zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive):
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def _npy(head: str, content: bytes) -> bytes:
    text = head.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def _head(descr: str = "'<f4'", shape: str = "(1, 2, 4, 4)", order: str = "False", more: str = "",
          size: int = 4) -> bytes:
    """A file of 32 numbers of ``size`` bytes, whatever its head says."""
    return _npy(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}{more}}}", bytes(32 * size))


ARCHIVES: dict[str, bytes] = {
    "an object": _npz(("x.npy", _head("'|O'"))),
    "a record": _npz(("x.npy", _head("[('a', '<f4'), ('b', '<f4')]", size=8))),
    "a record of itself 99 deep": _npz(("x.npy", _head("[('a', " * 99 + "'<f4'" + ")]" * 99))),
    "a shape of 2**62": _npz(("x.npy", _head(shape=f"({LARGE}, 4)"))), "a shape below 0": _npz(("x.npy", _head(
        shape="(-1, 2, 4, 4)"))), "a shape of text": _npz(("x.npy", _head(shape="('1', 2, 4, 4)"))),
    "a shape of True": _npz(("x.npy", _head(shape="(True, 2, 4, 4)"))),
    "an order of text": _npz(("x.npy", _head(order="'yes'"))),
    "a key too many": _npz(("x.npy", _head(more=", 'a': 1"))),
    "a call": _npz(("x.npy", _npy("__import__('os').system('true')", b""))),
    "times": _npz(("x.npy", _head("'<M8[s]'", size=8))),
    "text": _npz(("x.npy", _head("'<U4'", size=16))),
    "halves of the other order": _npz(("x.npy", _head("'>f2'", size=2))),
    "complex": _npz(("x.npy", _head("'<c8'", size=8))), "quadruple": _npz(("x.npy", _head("'<f16'", size=16))),
    "void": _npz(("x.npy", _head("'|V4'"))),
    "a bomb": _npz(("x.npy", _head(shape="(1000000, 2, 4, 4)", descr="'<f4'") + bytes(1 << 27)), packed=True),
    "a name up": _npz(("../x.npy", _head())), "a name twice": _npz(("x.npy", _head()), ("x.npy", _head())),
    "10000 members": _npz(*((f"a{at}.npy", b"") for at in range(10_000))),
    "an archive in it": _npz(("x.npy", _npz(("x.npy", _head())))), "no member": _npz(),
}


def _archive(content: bytes, command: list[str]) -> Recipe:
    return good_and(command, lambda folder: (folder / "x.npz").write_bytes(content))


# -- schedules ---------------------------------------------------------------------------------------------------------
SCHEDULES: dict[str, bytes] = {
    "nothing": b"", "null": b"null", "a number": b"1", "a list": b"[]", "an object": b"{}", "no cores": b'{"-1": {}}',
    "a core of letters": b'{"-1": {"in": [], "out": []}, "x": [], "xlen": 1, "ylen": 1, "top_batch_cut": 1}',
    "a core of 10**400": json.dumps({"-1": {"in": [], "out": []}, str(10 ** 400): [], "xlen": 1, "ylen": 1}).encode(),
    "a mesh of 2**62": json.dumps({"-1": {"in": [], "out": []}, "xlen": LARGE, "ylen": LARGE}).encode(),
    "deep lists": b"[" * 100_000, "a BOM": b"\xef\xbb\xbf{}", "UTF-16": "{}".encode("utf-16"),
    "keys twice": b'{"xlen": 1, "xlen": 2}', "NaN": b'{"xlen": NaN}', "a lone surrogate": b'{"\\ud800": 1}',
}


def _schedule(content: bytes, command: list[str]) -> Recipe:
    return good_and(command, lambda folder: (folder / "net.json").write_bytes(content))


def cases() -> list[Case]:
    found = [Case(f"odd network: {name} in {command[0]}", "odd kinds", _odd(make, command), code=None)
             for name, make in NETWORKS.items() for command in (COMPILE, ["inspect", "net.onnx"])]
    found += [Case(f"odd archive: {name}{' as calibration' * (command is not RUN)}", "odd kinds",
                   _archive(content, command), code=None)
              for name, content in ARCHIVES.items() for command in (RUN, [*COMPILE, "--calibrate", "x.npz"])]
    found += [Case(f"odd schedule: {name} in {command[0]}", "odd kinds", _schedule(content, command))
              for name, content in SCHEDULES.items() for command in (TAKE, ["ir", "check", "net.json"])]
    return quick(found, "odd network: a circle of two in compile", "odd network: a function of itself in compile",
                 "odd archive: a bomb", "odd archive: a record of itself 99 deep",
                 "odd archive: a shape of True", "odd archive: void as calibration", "odd schedule: NaN in ir")
