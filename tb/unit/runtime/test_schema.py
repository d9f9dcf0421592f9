# SPDX-License-Identifier: Apache-2.0
"""A ``.tmodel`` is not believed: whatever no compiler writes is refused by a message, before anything is allocated."""

import copy
import json
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.support.errors import WeftError
from weft.tb.unit.runtime.models import echo
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

HUGE = 10**12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A whole model with everything that the compiler may write: packing, order, strides, a host's part, a report."""
    echo(tmp_path, consts=2).save()
    path = tmp_path / "echo.tmodel"
    values = json.loads(path.read_text())
    row = {"name": "first", "kind": "Conv", "macs": 12, "input": [1, 2, 2]}
    values |= {
        "inputs": [{"name": "x", "base": 0, "size": 4, "shape": [1, 2, 2, 2], "layout": [2, 2, 2], "point": 8,
                    "strides": [0, 1, 4, 2]}],
        "outputs": [{"name": "y", "base": 8, "size": 4, "shape": [8], "layout": [2, 2, 2], "point": -3,
                     "order": [[0, 1, 4], [7, -1, 4]]},
                    {"name": "z", "base": 8, "size": 4}],
        "consts": [{"file_name": "echo.tdata", "base": 0, "size": 2},
                   {"file_name": "echo.tdata", "base": 20, "size": 2, "memory": "dram0"}],
        "host": {"model": "aGVsbG8=", "inputs": ["y"], "outputs": ["p"], "passes": ["z"], "operators": ["Softmax"]},
        "layers": [row, row], "instruction_layers": "0x1 1x1",
    }
    path.write_text(json.dumps(values))
    return path


PACKED = {"name": "x", "base": 0, "size": 4, "shape": [1, 1, 3, 3], "layout": [2, 2, 2], "point": 8, "packing": {
    "source": [1, 3, 3], "size": [2, 2], "kernel": [2, 1], "strides": [1, 1], "pads": [0, 0], "dilations": [1, 1]}}


def test_what_the_compiler_may_write_loads(path: Path) -> None:
    model = TModel.load(path)
    assert model.host is not None and model.host.model == b"hello" and model.host.nodes == ("Softmax",)
    assert model.instruction_layers is not None and model.instruction_layers.tolist() == [0, 1]
    array = np.arange(8).reshape(1, 2, 2, 2) / 256
    assert model.pack_input("x", array)[:, 0].tolist() == [0, 4, 1, 5]
    assert model.unpack_output("y", np.arange(8).reshape(4, 2)).tolist() == [0, 16, 32, 48, 56, 40, 24, 8]
    values = json.loads(path.read_text())
    values["inputs"] = [PACKED]
    path.write_text(json.dumps(values))
    packing = TModel.load(path).inputs[0].packing
    assert packing is not None and packing.layout == (2, 2, 2)


def at(*keys: Any, value: Any) -> Callable[[dict], None]:
    """Sets what stands there."""
    def change(values: dict) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = value
    return change


def both(*changes: Callable[[dict], None]) -> Callable[[dict], None]:
    def change(values: dict) -> None:
        for each in changes:
            each(values)
    return change


def packed(**changes: Any) -> Callable[[dict], None]:
    entry: dict[str, Any] = copy.deepcopy(PACKED)
    entry["packing"] |= changes
    return at("inputs", value=[entry])


PORT = {"name": "w", "base": 16, "size": 4}
DAMAGE: dict[str, tuple[Callable[[dict], None], str]] = {
    "unknown key": (at("magic", value=1), "unknown field `magic`; known are prog, consts,"),
    "a later version": (both(at("format_version", value=2), at("magic", value=1)),
                        "format_version 2, of a later Weft; this one reads 1 to 1; update Weft, or compile"),
    "no version": (at("format_version", value=0), "Expected `int` >= 1"),
    "unknown key of a port": (at("inputs", 0, "bias", value=1), "unknown field `bias` - at `$.inputs[0]`; known are"),
    "unknown key of a const": (at("consts", 1, "bank", value=1), "known are file_name, base, size, memory"),
    "unknown key of the program": (at("prog", "start", value=1), "known are file_name, size"),
    "unknown key of the host": (at("host", "gpu", value=1), "known are model, inputs"),
    "unknown key of a checksum": (at("files", "echo.tprog", "md5", value=""), "known are bytes, sha256"),
    "unknown key of the machine": (at("arch", "colour", value=1), "architecture key colour: found an unknown key"),
    "impossible machine": (at("arch", "array_size", value=1), "architecture key array_size: found 1"),
    "true for a number": (at("inputs", 0, "base", value=True), "Expected `int`, got `bool`"),
    "1.0 for a number": (at("inputs", 0, "size", value=4.0), "Expected `int`, got `float`"),
    "text for a number": (at("prog", "size", value="12"), "Expected `int`, got `str` - at `$.prog.size`"),
    "number for a name": (at("name", value=4), "Expected `str`, got `int` - at `$.name`"),
    "null for ports": (at("outputs", value=None), "Expected `array`, got `null`"),
    "number for a switch": (at("load_consts_to_local", value=1), "Expected `bool`, got `int`"),
    "negative base": (at("outputs", 0, "base", value=-1), "Expected `int` >= 0"),
    "forty digits": (at("inputs", 0, "base", value=10**39), "Expected `int` <= 4294967296"),
    "no inputs": (at("inputs", value=[]), "no inputs"),
    "two of one name": (at("outputs", 1, "name", value="y"), "2 outputs of the name 'y'"),
    "another memory": (at("consts", 1, "memory", value="dram9"), "Invalid enum value 'dram9'"),
    "input beyond DRAM0": (at("inputs", 0, "base", value=253), "at vectors 253..256 of DRAM0, which has 0..255"),
    "output beyond DRAM0": (at("outputs", 1, "size", value=300), "at vectors 8..307 of DRAM0"),
    "consts beyond DRAM1": (at("consts", 0, "base", value=255), "at vectors 255..256 of DRAM1"),
    "consts over an input": (at("consts", 1, "base", value=3), "over input 'x' at 0..3"),
    "consts over an output": (at("consts", 1, "base", value=11), "over output 'y' at 8..11"),
    "consts over consts": (at("consts", 1, value={"file_name": "echo.tdata", "base": 1, "size": 2}), "vector 1, over"),
    "inputs over each other": (at("inputs", value=[PORT, {**PORT, "name": "v", "base": 19}]), "over input 'w' at 16"),
    "consts beyond local memory": (both(at("consts", 0, "base", value=31), at("load_consts_to_local", value=True)),
                                   "at vectors 31..32 of local memory (load_consts_to_local), which has 0..31"),
    "absolute file name": (at("prog", "file_name", value="/etc/passwd"), "'/etc/passwd', which is not a plain name"),
    "file of another folder": (at("consts", 0, "file_name", value="../echo.tdata"), "not a plain name"),
    "file name of dots": (at("consts", 0, "file_name", value=".."), "not a plain name"),
    "file name with NUL": (at("consts", 0, "file_name", value="a\0"), "not a plain name"),
    "empty file name": (at("prog", "file_name", value=""), "length >= 1"),
    "long file name": (at("prog", "file_name", value="x" * 5000), "length <= 255"),
    "checksum of another file": (at("files", "evil", value={"bytes": 0, "sha256": "0" * 64}), "checksums of"),
    "checksum that is none": (at("files", "echo.tprog", "sha256", value="0" * 63), "matching regex"),
    "two lengths": (at("files", "echo.tprog", "bytes", value=1), "for the length of 'echo.tprog'"),
    "shape without layout": (at("inputs", 0, "layout", value=None), "only one of shape and layout"),
    "layout of another size": (at("inputs", 0, "layout", value=[2, 2, 3]), "which takes 6"),
    "shape of another size": (at("outputs", 0, "shape", value=[7]), "[7] with 8 places"),
    "zero in a shape": (at("outputs", 0, "shape", value=[0, 8]), "Expected `int` >= 1"),
    "many axes": (at("outputs", 0, "shape", value=[1] * 70), "length <= 32"),
    "huge shape": (both(at("inputs", 0, "shape", value=[HUGE // 1000] * 2), at("inputs", 0, "strides", value=[0, 0])),
                   "more than 33554432"),
    "huge order": (at("outputs", 0, "order", value=[[0, 0, HUGE]]), "Expected `int` <= 4294967296"),
    "long order": (both(at("outputs", 0, "order", value=[[0, 0, 1 << 32]]), at("outputs", 0, "shape", value=[1 << 32])),
                   "more than 33554432"),
    "huge port": (both(at("arch", "dram0_depth", value=1 << 30), at("outputs", 1, "size", value=1 << 29)), "elements"),
    "order outside": (at("outputs", 0, "order", value=[[0, 1, 4], [5, -2, 4]]), "with elements at -1..5 of a tensor"),
    "strides outside": (at("inputs", 0, "strides", value=[0, 2, 4, 2]), "with elements at 0..8 of a tensor"),
    "strides of other axes": (at("inputs", 0, "strides", value=[0, 1, 4]), "3 strides for 4 axes"),
    "strides and order": (at("outputs", 0, "strides", value=[1]), "with strides and order"),
    "order without shape": (at("outputs", 1, "order", value=[[0, 1, 8]]), "with order, without a shape"),
    "point beyond numbers": (at("inputs", 0, "point", value=5000), "Expected `int` <= 1023"),
    "scale beside a point": (at("inputs", 0, "scale", value=0.5), "with a scale, and a point"),
    "scale of fixed point": (both(at("inputs", 0, "scale", value=0.5), at("inputs", 0, "point", value=None)),
                             "with a scale, and FP16BP8"),
    "scale of nothing": (at("inputs", 0, "scale", value=0.0), "Expected `float` >= "),
    "zero without a scale": (at("inputs", 0, "zero", value=3), "with a zero, without a scale"),
    "zero that is no byte": (at("inputs", 0, "zero", value=128), "Expected `int` <= 127"),
    "no scale of bytes": (at("arch", "data_type", value="INT8"), "without a scale, of INT8"),
    "scale of reals": (at("network", value={"inputs": [{"name": "x", "type": "float32", "shape": [8], "scale": 0.5}],
                                            "outputs": []}), "a scale of 'x', of float32"),
    "packing to another layout": (packed(size=[2, 3]), "packed to [2, 2, 3]"),
    "packing of many taps": (packed(kernel=[HUGE // 1000, 1]), "taps"),
    "packing without steps": (packed(strides=[0, 1]), "Expected `int` >= 1"),
    "packing of a huge image": (packed(source=[1, 1 << 20, 1 << 20]), "places for its elements"),
    "layers without names": (at("layers", 1, value={"kind": "Conv", "macs": 1}), "layers[1]: Object missing required"),
    "layers of text": (at("layers", 0, value="x"), "Expected `object`, got `str`"),
    "huge instruction_layers": (at("instruction_layers", value=f"0x{HUGE // 100}"), "in a program of 2"),
    "unknown layer": (at("instruction_layers", value="0x1 2x1"), "a layer beyond the 2"),
    "broken instruction_layers": (at("instruction_layers", value="0x1 1y1"), "'1y1' instead of LAYERxCOUNT"),
    "endless instruction_layers": (at("instruction_layers", value="0x1 " * 4000), "longer than 2 instructions"),
    "empty runs": (at("instruction_layers", value="0x2 1x0"), "'1x0' instead of"),
    "host that is not base64": (at("host", "model", value="a!"), "not base64"),
    "host of another output": (at("host", "inputs", value=["q"]), "'q', which is no output"),
    "nodes without operators": (at("host", "nodes", value=["a", "b"]), "2 nodes and 1 operators"),
    "a piece of an instruction": (both(at("prog", "size", value=14), at("files", value=None)),
                                  "a program of 14 bytes, of instructions of"),
    "huge program": (both(at("prog", "size", value=1 << 32), at("instruction_layers", value=None),
                          at("files", value=None)), "a program of 4294967296 bytes"),
    "two sizes": (both(at("consts", 0, "size", value=3), at("files", value=None)), "for the length of 'echo.tdata'"),
    "huge constants": (both(at("arch", "dram1_depth", value=1 << 30), at("consts", value=[
        {"file_name": "echo.tdata", "base": 0, "size": 1 << 29}]), at("instruction_layers", value=None)),
                       "files of 2147"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(path: Path, name: str) -> None:
    change, text = DAMAGE[name]
    TModel.load(path)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(WeftError) as error:
        TModel.load(path)
    assert text in str(error.value)
    assert f"model file {path}: found something unreadable (" in str(error.value) and "way out: " in str(error.value)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 19  # KB


@pytest.mark.parametrize(("old", "new"), [
    ('"name": "echo"', '"name": "echo", "name": "evil"'),
    ('"memory": "dram0"', '"memory": "dram0", "memory": "dram1"'),
    ('"echo"', '"' + "\\ud800" + '"'),
    ('"macs": 0', '"macs": ' + "9" * 5000),
    ('"macs": 0', '"macs": ' + "[" * 2000 + "]" * 2000),
], ids=["twice", "twice inside", "surrogate", "digits", "depth"])
def test_json_is_read_strictly(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(WeftError, match="found something unreadable"):
        TModel.load(path)


def test_outputs_may_lie_over_inputs_and_each_other(path: Path) -> None:
    values = json.loads(path.read_text())
    values["outputs"][0]["base"] = values["outputs"][1]["base"] = 2
    path.write_text(json.dumps(values))
    assert TModel.load(path).outputs[1].base == 2


def test_host_part_that_does_not_run_is_a_message(path: Path) -> None:
    model = TModel.load(path)
    with pytest.raises(WeftError, match="model of the host's part: found not a valid ONNX model"):
        model.run_host({"y": np.zeros(8), "z": np.zeros((4, 2))})


PART_FAULTS: list[tuple[str, Callable[[Any], object], str]] = [
    ("what nothing makes", lambda it: it["parts"][0]["program"]["inputs"][0].update(name="w"),
     "parts[0] reads 'w', which nothing before it makes"),
    ("what is there", lambda it: it["parts"][0]["program"]["outputs"][0].update(name="x"),
     "parts[0] makes 'x', which is there before"),
    ("no output", lambda it: it["network"]["outputs"][0].update(name="q"),
     "network with the output 'q', which no part makes"),
    ("no shape", lambda it: [it["parts"][0]["program"]["outputs"][0].pop(key) for key in ("shape", "layout", "point")],
     "parts[0] with an input or output without a shape"),
]


@pytest.mark.parametrize(("change", "message"), [fault[1:] for fault in PART_FAULTS], ids=[each[0] for each in
                                                                                         PART_FAULTS])
def test_parts_read_what_was_made_before_them(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    echo(tmp_path, consts=2).save()
    path = tmp_path / "echo.tmodel"
    whole = json.loads(path.read_text())
    shape = [1, 2, 2, 2]
    program = {key: whole[key] for key in ("prog", "consts")} | {
        key: [{**whole[key][0], "shape": shape, "layout": shape[1:], "point": 8}] for key in ("inputs", "outputs")}
    tensors = {key: [{"name": name, "type": "float32", "shape": shape}] for key, name in (("inputs", "x"),
                                                                                         ("outputs", "y"))}
    parts = {"name": "echo", "arch": whole["arch"], "files": whole["files"], "parts": [{"program": program}],
             "network": tensors}
    path.write_text(json.dumps(parts))
    assert Network.load(path).signature.outputs[0].name == "y"
    change(parts)
    path.write_text(json.dumps(parts))
    with pytest.raises(WeftError, match=re.escape(message)):
        Network.load(path)
