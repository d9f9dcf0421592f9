# SPDX-License-Identifier: Apache-2.0
"""Parts of the host inside a ``.tmodel``: work without end, sizes that nobody has room for, models that lie."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from weft.tb.hostile.case import RUN, SHAPE, Case, good_and, quick
from weft.tb.hostile.host_lies import LEGAL, LIES, SIZES
from weft.tb.hostile.host_work import WORK
from weft.tb.hostile.onnx_constants import Make

TYPES = {TensorProto.FLOAT: "float32", TensorProto.INT64: "int64", TensorProto.BOOL: "bool", TensorProto.INT32: "int32"}


# -- what the .tmodel says of it ---------------------------------------------------------------------------------------
def hosted(make: Make, change: Callable[[dict[str, Any]], Any] | None = None) -> Callable[[Path], Any]:
    """Return a maker of net.tmodel with a part of the host behind the machine, which makes the network's outputs."""
    def apply(folder: Path) -> None:
        model = make()
        values = json.loads((folder / "net.tmodel").read_text())
        values["host"] = {"model": base64.b64encode(model.SerializeToString()).decode(), "inputs": ["y"],
                          "outputs": ["z"], "passes": [], "operators": ["?"], "nodes": ["?"]}
        claimed = next((value.type.tensor_type for value in model.graph.output if value.name == "z"), None)
        sizes = [entry.dim_value for entry in claimed.shape.dim] if claimed is not None else SHAPE
        kind = TYPES.get(claimed.elem_type, "float32") if claimed is not None else "float32"
        values["network"]["outputs"] = [{"name": "z", "type": kind, "shape": [max(size, 1) for size in sizes]}]
        if change is not None:
            change(values)
        (folder / "net.tmodel").write_text(json.dumps(values))

    return apply


def _entry(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda values: values["host"].update(changes)


def _output(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda values: values["network"]["outputs"][0].update(changes)


ENTRIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "inputs of nobody": _entry(inputs=["q"]), "inputs twice": _entry(inputs=["y", "y"]), "no inputs": _entry(inputs=[]),
    "outputs of nobody": lambda values: (_entry(outputs=["q"])(values), _output(name="q")(values)),
    "outputs twice": lambda values: (_entry(outputs=["z", "z"])(values), values["network"]["outputs"].append(
        values["network"]["outputs"][0])),
    "no outputs": lambda values: (_entry(outputs=[])(values), values["network"].update(outputs=[])),
    "an output that passes too": lambda values: (_entry(passes=["y"], outputs=["y"])(values), values["network"].update(
        outputs=[{**values["network"]["outputs"][0], "name": "y"}] * 2)),
    "passes of nobody": _entry(passes=["q"]), "passes twice": _entry(passes=["y", "y"]),
    "passes that the network has not": _entry(passes=["y"]), "fewer nodes": _entry(nodes=[]),
    "a name of escapes": lambda values: (_entry(outputs=["\x1b[31m"])(values), _output(name="\x1b[31m")(values)),
    "no base64": _entry(model="\u00e9"), "base64 of nothing": _entry(model=""),
    "base64 with a newline": _entry(model="AA\nAA"),
    "base64 that is cut": _entry(model="AAA"), "a model of zeros": _entry(model="A" * 4000),
    "a model of 100 MB": _entry(model="A" * 100_000_000), "a model as a list": _entry(model=["A"]),
    "a key nobody knows": _entry(gpu=1),
    "another type": _output(type="int64"), "truth values": _output(type="bool"), "a byte": _output(type="int8"),
    "another shape": _output(shape=[1, 2, 4, 5]), "another rank": _output(shape=[32]),
    "a flat shape": _output(shape=[]), "a shape of 2**32": _output(shape=[1 << 32, 1 << 32]),
    "a scale of what is no byte": _output(scale=0.5, type="float32"),
}


def flipped(seed: int) -> Callable[[dict[str, Any]], Any]:
    """Return a change of some bytes of a good model: it is refused, or still a model."""
    def change(values: dict[str, Any]) -> None:
        random = np.random.default_rng(seed)
        content = bytearray(base64.b64decode(values["host"]["model"]))
        for place in random.integers(0, len(content), 1 + seed % 4):
            content[place] = random.integers(0, 256)
        values["host"]["model"] = base64.b64encode(bytes(content)).decode()

    return change


FLIPS = 24


def cases() -> list[Case]:
    tables = {"work": WORK, "size": SIZES, "lie": LIES}
    found = [Case(f"host {kind}: {name}", "host part", good_and(RUN, hosted(make)))
             for kind, makers in tables.items() for name, make in makers.items()]
    found += [Case(f"legal host: {name}", "host part", good_and(RUN, hosted(make)), code=0)
              for name, make in LEGAL.items()]
    found += [Case(f"host entry: {name}", "host part", good_and(RUN, hosted(LEGAL["curves"], change)))
              for name, change in ENTRIES.items()]
    found += [Case(f"host bytes {seed}", "host part", good_and(RUN, hosted(LEGAL["curves"], flipped(seed))), code=None)
              for seed in range(FLIPS)]
    return quick(found, "host work: functions nested 24 deep", "host work: MatMul of 8000", "host work: If of much",
                 "host work: ConvTranspose whose columns are many", "host size: Expand to 2**40",
                 "host lie: a size that values decide, told as small", "host lie: an output twice",
                 "host lie: operator set 10**9", "host entry: outputs of nobody", "host entry: another shape",
                 "legal host: LSTM")
