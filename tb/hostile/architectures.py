# SPDX-License-Identifier: Apache-2.0
"""Architectures: their files, their names, and settings of keys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.hw.contract.arch import Arch
from weft.tb.hostile.case import Case, Recipe, good_and, quick

TINY: dict[str, Any] = Arch.load("tiny").to_dict()
NINES = "9" * 5000


def _with(**values: Any) -> str:
    return json.dumps({**TINY, **values})


def _without(key: str) -> str:
    return json.dumps({name: value for name, value in TINY.items() if name != key})


CONTENTS: dict[str, str | bytes] = {
    "empty": "", "a bracket": "{", "a list": "[]", "null": "null", "a number": "7", "a text": '"tiny"', "nothing": "{}",
    "no UTF-8": b"\xff\xfe\x00", "UTF-16": json.dumps(TINY).encode("utf-16"), "NUL bytes": bytes(1000),
    "deep lists": "[" * 100_000, "deep objects": '{"a":' * 100_000, "deep value": '{"array_size":' + "[" * 50_000,
    "5000 digits": _with(array_size=0).replace('"array_size": 0', f'"array_size": {NINES}'),
    "5000 digits negative": _with(array_size=0).replace('"array_size": 0', f'"array_size": -{NINES}'),
    "huge exponent": _with(array_size=0).replace('"array_size": 0', '"array_size": 1e999999'),
    "NaN": _with(array_size=float("nan")), "infinite": _with(dram0_depth=float("inf")),
    "float": _with(array_size=2.0), "text for a number": _with(array_size="2"), "true": _with(array_size=True),
    "list for a number": _with(local_depth=[1]), "object for a number": _with(local_depth={}),
    "null for a number": _with(local_depth=None), "number for a type": _with(data_type=5),
    "list for a type": _with(data_type=["FP16BP8"]), "null for a type": _with(data_type=None),
    "wide type": _with(data_type=f"FP{NINES}BP8"), "wide point": _with(data_type=f"FP16BP{NINES}"),
    "other digits": _with(data_type="FP١٦BP٨"), "surrogate type": _with(data_type="\udc80"),
    "escape in a type": _with(data_type="\x1b]0;owned\x07"), "escape in a key": _with(**{"\x1b[2J": 1}),
    "surrogate key": _with(**{"\ud800": 1}), "long key": _with(**{"a" * 100_000: 1}),
    "number for rounding": _with(mac_rounding=1), "list for rounding": _with(mac_rounding=["once"]),
    "all depths at most": _with(dram0_depth=1 << 32, dram1_depth=1 << 32, local_depth=1 << 40),
    "negative": _with(lut_count=-1), "a key twice": _with()[:-1] + ', "array_size": 4}',
    "no data type": _without("data_type"), "no depth": _without("local_depth"), "behind the end": _with() + "x",
    "a comment": "// tiny\n" + _with(),
}

NAMES: dict[str, str] = {
    "5000 characters": "a" * 5000, "5000 characters and a suffix": "a" * 5000 + ".tarch", "empty": "",
    "a surrogate": "tiny\udcff", "a surrogate and a suffix": "\udc80.tarch", "an escape": "\x1b[31mtiny",
    "a bell and a suffix": "\x07.tarch", "a path up": "../../tiny", "a preset's path": "/arch/tiny", "a folder": ".",
    "many folders": "a/" * 3000 + "b.tarch", "a device": "/dev/zero", "another direction": "\u202eynit",
}

SETTINGS: dict[str, str] = {
    "two minus": "local_depth=--5", "a minus": "local_depth=-", "5000 digits": f"local_depth={NINES}",
    "minus 5000 digits": f"local_depth=-{NINES}", "21 digits": "local_depth=" + "9" * 21, "nothing": "local_depth=",
    "a plus": "local_depth=+5", "an underscore": "local_depth=1_0", "a space": "local_depth= 5",
    "hex": "local_depth=0x5",
    "other digits": "local_depth=٥", "superscript": "local_depth=²", "no key": "=5", "only a sign": "=", "empty": "",
    "an unknown key": "depth=5", "an escape": "\x1b[31m=5", "an escape as value": "local_depth=\x1b[31m",
    "a surrogate": "\udcff=5", "a surrogate as value": "data_type=\udcff", "float": "local_depth=1e3",
    "5000 characters": "a" * 5000 + "=1", "a method": "from_dict=1", "dunder": "__class__=1", "zero": "array_size=0",
    "wide type": f"data_type=FP{NINES}BP1", "no point": "data_type=FP16", "point beyond": "data_type=FP16BP99",
}


def _tarch(content: str | bytes, command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        (folder / "my.tarch").write_bytes(data)
        return [*command, "-a", "my.tarch"]

    return recipe


def _folder(folder: Path) -> None:
    (folder / "my.tarch").mkdir()


def _sparse(folder: Path) -> None:
    with (folder / "my.tarch").open("wb") as file:
        file.truncate(1 << 40)


PLACES: dict[str, Callable[[Path], Any]] = {
    "a folder": _folder, "a pipe": lambda folder: os.mkfifo(folder / "my.tarch"), "a terabyte": _sparse,
    "a link to nowhere": lambda folder: (folder / "my.tarch").symlink_to("nowhere"),
    "a link to itself": lambda folder: (folder / "my.tarch").symlink_to("my.tarch"),
    "a device": lambda folder: (folder / "my.tarch").symlink_to("/dev/zero"),
    "unreadable memory": lambda folder: (folder / "my.tarch").symlink_to("/proc/self/mem"),
}


def _place(change: Callable[[Path], Any]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        change(folder)
        return ["isa", "-a", "my.tarch"]

    return recipe


COMMANDS: dict[str, list[str]] = {"isa": ["isa"], "verilog": ["verilog", "-o", "out"],
                                  "compile": ["compile", "net.onnx", "-o", "out"],
                                  "disassemble": ["disassemble", "net.tprog"]}


def cases() -> list[Case]:
    found = [Case(f"tarch: {name}", ".tarch", _tarch(content, ["isa"])) for name, content in CONTENTS.items()]
    found += [Case(f"tarch: {name} in {command}", ".tarch", _tarch(CONTENTS[name], arguments))
              for name in ("deep lists", "5000 digits", "escape in a type")
              for command, arguments in COMMANDS.items() if command != "isa"]
    found += [Case(f"tarch: {name}", ".tarch", _place(change)) for name, change in PLACES.items()]
    found += [Case(f"arch name: {name}", "arch names", lambda folder,
                   text=text: ["isa", "-a", text])  # type: ignore[misc]
              for name, text in NAMES.items()]
    found += [Case(f"arch name: {name} in {command}", "arch names", good_and([*COMMANDS[command], "-a", NAMES[name]]))
              for name in ("5000 characters", "a surrogate") for command in ("verilog", "compile", "disassemble")]
    found += [Case(f"set: {name}", "--set",
                   lambda folder, text=text: ["isa", "-a", "tiny", "--set", text])  # type: ignore[misc]
              for name, text in SETTINGS.items()]
    others = {"verilog": ["verilog", "-a", "tiny", "-o", "out"], "estimate": ["estimate", "net.tmodel"],
              "compile": ["compile", "net.onnx", "-a", "tiny", "-o", "out"],
              "run": ["run", "net.tmodel", "--input", "x.npz"]}
    found += [Case(f"set: two minus in {command}", "--set", good_and([*arguments, "--set", "local_depth=--5"]))
              for command, arguments in others.items()]
    return quick(found, "tarch: deep lists", "tarch: 5000 digits", "tarch: a key twice", "tarch: wide type",
                 "tarch: escape in a key", "tarch: a pipe", "tarch: a terabyte",
                 "arch name: 5000 characters and a suffix",
                 "arch name: a surrogate", "set: two minus", "set: 5000 digits", "set: a surrogate as value",
                 "set: an escape as value")
