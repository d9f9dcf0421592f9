# SPDX-License-Identifier: Apache-2.0
"""Compiled models: ``.tmodel``, and the ``.tprog`` and ``.tdata`` that it names."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.tb.hostile.case import ESTIMATE, RUN, RUN_RAW, Case, good_and, quick
from weft.tb.hostile.onnx_constants import CONSTANTS
from weft.tb.hostile.onnx_files import GRAPHS, OUTSIDE

TERA = 1 << 40
NINES = "9" * 5000
Change = Callable[[dict[str, Any]], Any]


def _changed(change: Change, name: str = "net.tmodel") -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        change(values)
        (folder / name).write_text(json.dumps(values))

    return apply


def _set(*path: Any) -> Change:
    """Return a change of the value at the end of the path of keys and indices."""
    *keys, last, value = path

    def change(values: Any) -> None:
        for key in keys:
            values = values[key]
        values[last] = value

    return change


def _host(make: Callable[[], Any]) -> Change:
    def change(values: dict[str, Any]) -> None:
        output = values["outputs"][0]["name"]
        model = make()
        model.graph.input[0].name = output
        for node in model.graph.node:
            node.input[:] = [output if name == "x" else name for name in node.input]
        values["host"] = {"model": base64.b64encode(model.SerializeToString()).decode(), "inputs": [output],
                          "outputs": [model.graph.output[0].name], "passes": [], "operators": ["?"], "nodes": ["?"]}

    return change


CHANGES: dict[str, Change] = {
    "order of 2**40": _set("inputs", 0, "order", [[0, 1, TERA]]),
    "order of negative counts": _set("inputs", 0, "order", [[0, 1, -5]]),
    "order outside": _set("inputs", 0, "order", [[TERA, 1, 32]]),
    "order of texts": _set("inputs", 0, "order", [["a", "b", "c"]]),
    "order that is flat": _set("inputs", 0, "order", [0, 1, 32]),
    "order of an output of 2**40": _set("outputs", 0, "order", [[0, 0, TERA]]),
    "layers of 2**40": _set("instruction_layers", f"0x{TERA}"), "layers of -1": _set("instruction_layers", "0x-1"),
    "layer -1": _set("instruction_layers", "-1x5"), "layer 999": _set("instruction_layers", "999x2"),
    "layers of letters": _set("instruction_layers", "axb"),
    "layers of 5000 digits": _set("instruction_layers", f"0x{NINES}"),
    "layers as a number": _set("instruction_layers", 5), "layers as a list": _set("instruction_layers", [0, 1]),
    "shape of 2**40": _set("inputs", 0, "shape", [TERA, TERA]), "shape of texts": _set("inputs", 0, "shape", ["a"]),
    "shape as a text": _set("inputs", 0, "shape", "1244"),
    "shape of floats": _set("inputs", 0, "shape", [1.0, 2.0, 4.0, 4.0]),
    "negative shape": _set("inputs", 0, "shape", [-1, 2, 4, 4]), "empty shape": _set("inputs", 0, "shape", []),
    "another shape": _set("inputs", 0, "shape", [1, 2, 5, 5]),
    "layout of 2**40": _set("inputs", 0, "layout", [TERA, 1, 1]), "layout of two": _set("inputs", 0, "layout", [2, 4]),
    "negative layout": _set("outputs", 0, "layout", [-2, 4, -4]),
    "layout of texts": _set("outputs", 0, "layout", ["2", "4", "4"]),
    "strides of 2**40": _set("inputs", 0, "strides", [TERA] * 4),
    "strides of two": _set("inputs", 0, "strides", [1, 2]),
    "strides of texts": _set("inputs", 0, "strides", ["a"] * 4), "point of 10**9": _set("inputs", 0, "point", 10**9),
    "point as a text": _set("inputs", 0, "point", "8"), "negative point": _set("outputs", 0, "point", -10**6),
    "base of 2**40": _set("inputs", 0, "base", TERA), "base of -1": _set("inputs", 0, "base", -1),
    "base as a text": _set("inputs", 0, "base", "0"), "base as a float": _set("inputs", 0, "base", 0.5),
    "size of 2**40": _set("inputs", 0, "size", TERA), "size of 0": _set("inputs", 0, "size", 0),
    "size of -4": _set("outputs", 0, "size", -4), "size null": _set("outputs", 0, "size", None),
    "output of 2**40": _set("outputs", 0, "size", TERA), "output behind the memory": _set("outputs", 0, "base", 255),
    "name as a number": _set("inputs", 0, "name", 5), "name as a list": _set("inputs", 0, "name", ["x"]),
    "name null": _set("name", None), "inputs null": _set("inputs", None),
    "inputs as an object": _set("inputs", {"x": 1}),
    "no inputs": _set("inputs", []), "no outputs": _set("outputs", []), "an input null": _set("inputs", [None]),
    "an output twice": lambda values: values["outputs"].append(values["outputs"][0]),
    "an input twice": lambda values: values["inputs"].append(values["inputs"][0]),
    "an input key nobody knows": _set("inputs", 0, "sise", 4), "a key nobody knows": _set("lyers", 1),
    "consts null": _set("consts", None), "consts of texts": _set("consts", ["net.tdata"]),
    "a const key nobody knows": _set("consts", 0, "offset", 1), "memory dram9": _set("consts", 0, "memory", "dram9"),
    "memory as a list": _set("consts", 0, "memory", ["dram1"]), "const at -1": _set("consts", 0, "base", -1),
    "const at 2**40": _set("consts", 0, "base", TERA), "const as a text": _set("consts", 0, "size", "5"),
    "const in another folder": _set("consts", 0, "file_name", "../net.tdata"),
    "const of the root": _set("consts", 0, "file_name", "/etc/hostname"),
    "const of /dev/zero": _set("consts", 0, "file_name", "/dev/zero"),
    "const of an escape": _set("consts", 0, "file_name", "\x1b[31m"),
    "const of NUL": _set("consts", 0, "file_name", "a\0b"),
    "const of a surrogate": _set("consts", 0, "file_name", "\ud800"),
    "const of 5000 letters": _set("consts", 0, "file_name", "a" * 5000),
    "const as a number": _set("consts", 0, "file_name", 5),
    "const that is the folder": _set("consts", 0, "file_name", "."),
    "prog null": _set("prog", None), "prog as a text": _set("prog", "net.tprog"),
    "prog of /dev/zero": _set("prog", "file_name", "/dev/zero"),
    "prog up": _set("prog", "file_name", "../../net.tprog"), "prog as a number": _set("prog", "file_name", 7),
    "prog of -1 bytes": _set("prog", "size", -1), "prog of 2**40 bytes": _set("prog", "size", TERA),
    "prog of true bytes": _set("prog", "size", True), "arch null": _set("arch", None),
    "arch as a text": _set("arch", "tiny"),
    "arch of a text": _set("arch", "array_size", "2"), "arch of 2**40": _set("arch", "array_size", TERA),
    "another arch": _set("arch", "dram0_depth", 4), "an arch key nobody knows": _set("arch", "bankes", 4),
    "layers of report null": _set("layers", None), "layers of report as texts": _set("layers", ["a"]),
    "layers of report of nothing": _set("layers", [{}]), "layer name as a number": _set("layers", 0, "name", 7),
    "layer MACs as a text": _set("layers", 0, "macs", "many"), "macs as a text": _set("macs", "many"),
    "macs of -1": _set("macs", -1), "packing null and true": _set("inputs", 0, "packing", True),
    "packing of 2**40": _set("inputs", 0, "packing", {"source": [TERA, 1, 1], "kernel": [TERA, 1]}),
    "host as a text": _set("host", "onnx"), "host of nothing": _set("host", {}),
    "host that is no base64": _set("host",
                                   {"model": "\u00e9", "inputs": [], "outputs": [], "passes": [], "operators": []}),
    "host that is no model": _set("host",
                                  {"model": "AAAA", "inputs": ["y"], "outputs": ["z"], "passes": [], "operators": []}),
    "host of 2**40 elements": _host(CONSTANTS["ConstantOfShape"]), "host of a loop": _host(GRAPHS["Loop of 10**12"]),
    "host of a file elsewhere": _host(OUTSIDE["/dev/zero"]),
    "an input of escapes": _set("inputs", 0, "name", "\x1b]0;owned\x07"),
    "an output of escapes": _set("outputs", 0, "name", "\x1b]0;owned\x07"),
}

TEXTS: dict[str, Callable[[str], str | bytes]] = {
    "deep lists": lambda text: "[" * 100_000, "deep in a name": lambda text: text.replace('"net"', "[" * 50_000, 1),
    "5000 digits": lambda text: text.replace('"base": 0', f'"base": {NINES}', 1),
    "infinite": lambda text: text.replace('"base": 0', '"base": Infinity', 1),
    "NaN": lambda text: text.replace('"base": 0', '"base": NaN', 1),
    "a key twice": lambda text: text.replace('"base": 0', '"base": 0, "base": 1', 1),
    "no UTF-8": lambda text: text.replace('"net"', '"n\xff"', 1).encode("latin1"),
    "cut": lambda text: text[:len(text) // 2],
    "behind the end": lambda text: text + "}", "UTF-16": lambda text: text.encode("utf-16"),
    "zeros": lambda text: bytes(10_000),
}


def _text(change: Callable[[str], str | bytes]) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        content = change((folder / "net.tmodel").read_text())
        (folder / "net.tmodel").write_bytes(content if isinstance(content, bytes) else content.encode())

    return apply


# -- programs and constants --------------------------------------------------------------------------------------------
def _program(*instructions: Instruction) -> Callable[[Path], Any]:
    """Return a maker of echo.tmodel with this program."""
    return _bytes(Isa(Arch.load("tiny")).assemble(instructions))


def _bytes(content: bytes) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        (folder / "echo.tprog").write_bytes(content)
        _changed(_set("prog", "size", len(content)), "echo.tmodel")(folder)

    return apply


def _random(seed: int) -> Callable[[Path], Any]:
    return _bytes(np.random.default_rng(seed).integers(0, 256, 500, np.uint8).tobytes())


_ISA = Isa(Arch.load("tiny"))
PROGRAMS: dict[str, Callable[[Path], Any]] = {
    "a cut instruction": _bytes(bytes(7)), "no such operation": _program(Instruction(0), Instruction(9)),
    "all ones": _bytes(b"\xff" * 50),
    "outside the local memory": _program(_ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 30, 0, 8)),
    "outside DRAM": _program(_ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 250, 16)),
    **{f"random bytes {seed}": _random(seed) for seed in range(6)},
}


def _sparse(name: str) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.truncate(TERA)

    return apply


def _placed(name: str, make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return apply


MAKERS: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo, "a folder": lambda path: path.mkdir(),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "unreadable memory": lambda path: path.symlink_to("/proc/self/mem"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def cases() -> list[Case]:
    disassemble = ["disassemble", "echo.tprog", "-a", "tiny"]
    found = [Case(f"tmodel: {name}", ".tmodel", good_and(RUN, _changed(change)), code=None if "escapes" in name else 1)
             for name, change in CHANGES.items()]
    found += [Case(f"tmodel text: {name}", ".tmodel", good_and(RUN, _text(change))) for name, change in TEXTS.items()]
    found += [Case(f"tmodel in estimate: {name}", ".tmodel", good_and(ESTIMATE, _changed(CHANGES[name])))
              for name in ("layers of 2**40", "order of 2**40", "layers of report of nothing", "arch of a text")]
    found += [Case(f"tmodel in estimate: {name}", ".tmodel", good_and(ESTIMATE, _text(TEXTS[name])))
              for name in ("deep lists", "5000 digits")]
    for file, reader in (("net.tmodel", ".tmodel"), ("net.tprog", ".tprog"), ("net.tdata", ".tdata")):
        found += [Case(f"{reader} place: {name}", reader, good_and(RUN, _placed(file, make))) for name,
                  make in MAKERS.items()]
        found += [Case(f"{reader} place: a terabyte", reader, good_and(RUN, _sparse(file)))]
    for name, change in PROGRAMS.items():
        found += [Case(f"tprog in run: {name}", ".tprog", good_and(RUN_RAW, change)),
                  Case(f"tprog in estimate: {name}", ".tprog", good_and(["estimate", "echo.tmodel"], change))]
    found += [Case("tprog in disassemble: a cut instruction", ".tprog", good_and(disassemble, _bytes(bytes(7)))),
              Case("tprog in disassemble: a terabyte", ".tprog", good_and(disassemble, _sparse("echo.tprog")))]
    found += [Case(f"tprog in disassemble: {name}", ".tprog", good_and(disassemble, _placed("echo.tprog", make)))
              for name, make in MAKERS.items()]
    found += [Case("tdata: cut", ".tdata", good_and(RUN, lambda folder: (folder / "net.tdata").write_bytes(b"x"))),
              Case("tdata: of another model", ".tdata", good_and(RUN, lambda folder: (folder / "net.tdata").write_bytes(
                  bytes(reversed((folder / "net.tdata").read_bytes()))[:-1] + b"\x55")))]
    return quick(found, "tmodel: order of 2**40", "tmodel: layers of 2**40", "tmodel: memory dram9",
                 "tmodel: base of -1",
                 "tmodel: const of the root", "tmodel: const of NUL", "tmodel: host of 2**40 elements",
                 "tmodel: an output of escapes", "tmodel text: deep lists", "tmodel text: 5000 digits",
                 "tmodel text: a key twice", ".tmodel place: a pipe", ".tprog place: an endless device",
                 "tprog in disassemble: a terabyte", "tprog in estimate: random bytes 1", "tdata: of another model")
