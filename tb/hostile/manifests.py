# SPDX-License-Identifier: Apache-2.0
"""Compiled models once more: places that overlap, numbers at the ends of their types, files elsewhere, parts that do
not fit; and the arrays for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.tb.hostile.arrays import GOOD, npy, shaped, zipped
from weft.tb.hostile.case import ESTIMATE, FORGED, REPORT, RUN, Case, good_and, quick

Change = Callable[[dict[str, Any]], Any]


def _apply(change: Change) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / "net.tmodel").read_text())
        change(values)
        (folder / "net.tmodel").write_text(json.dumps(values))

    return apply


def _port(kind: str, **changes: Any) -> Change:
    return lambda values: values[kind][0].update(changes)


def _const(**changes: Any) -> Change:
    return lambda values: values["consts"][0].update(changes)


def _tensor(kind: str, **changes: Any) -> Change:
    return lambda values: values["network"][kind][0].update(changes)


def _file(name: str, **changes: Any) -> Change:
    return lambda values: values["files"][name].update(changes)


def _parts(*parts: dict[str, Any], change: Change | None = None) -> Change:
    """Return a change to the same network written as parts; None stands for its program."""
    def apply(values: dict[str, Any]) -> None:
        keys = ("prog", "consts", "inputs", "outputs", "macs", "layers", "instruction_layers")
        program = {key: values.pop(key) for key in keys if key in values}
        values.pop("load_consts_to_local")
        values["parts"] = [part or {"program": program} for part in parts]
        if change is not None:
            change(values)

    return apply


HOST = {"model": "AAAA", "inputs": ["y"], "outputs": ["z"], "passes": [], "operators": ["?"]}
PROGRAM: dict[str, Any] = {}

CHANGES: dict[str, Change] = {
    "an input over the constants of DRAM0": lambda values: values["consts"].append(
        {**values["consts"][0], "memory": "dram0", "base": 0}),
    "constants over each other": lambda values: values["consts"].append(values["consts"][0]),
    "constants at the end of memory": _const(base=(1 << 32) - 1), "constants of 2**32": _const(size=1 << 32),
    "an input at the end of memory": _port("inputs", base=1 << 32),
    "an input of 2**32 vectors": _port("inputs", size=1 << 32),
    "a shape of 2**32 twice": _port("inputs", shape=[1 << 32, 1 << 32], layout=[1 << 32, 1 << 32, 1]),
    "a shape whose product overflows": _port("inputs", shape=[1 << 32] * 32),
    "33 dimensions": _port("inputs", shape=[1] * 33), "a layout without a shape": _port("inputs", shape=None),
    "a point beyond a double": _port("outputs", point=1024), "a point of -5000": _port("outputs", point=-5000),
    "a scale in fixed point": _port("inputs", scale=0.5, point=None), "a scale of 0": _port("inputs", scale=0.0),
    "a scale of -1": _port("inputs", scale=-1.0), "a scale of 1e-45": _port("inputs", scale=1e-45),
    "a scale of 1e300": _port("inputs", scale=1e300), "a zero without a scale": _port("inputs", zero=5),
    "a zero of 200": _port("inputs", zero=200), "strides at the end of their type": _port(
        "inputs", strides=[1 << 48, -(1 << 48), 1 << 48, 1]),
    "strides that go back": _port("inputs", strides=[0, -16, 4, 1]),
    "strides of 0": _port("outputs", strides=[0, 0, 0, 0]),
    "strides and order": _port("inputs", strides=[32, 16, 4, 1], order=[[0, 1, 32]]),
    "an order of a million runs": _port("inputs", order=[[0, 1, 1]] * 1_000_000),
    "an order that is too short": _port("inputs", order=[[0, 1, 31]]), "an empty order": _port("inputs", order=[]),
    "an order that overflows": _port("inputs", order=[[1 << 48, 1 << 48, 1 << 32]]),
    "a packing of 2**32 taps": _port("inputs", packing={
        "source": [2, 4, 4], "size": [4, 4], "kernel": [1 << 32, 1 << 32], "strides": [1, 1], "pads": [0, 0],
        "dilations": [1, 1]}),
    "a packing of pads": _port("inputs", packing={
        "source": [2, 4, 4], "size": [4, 4], "kernel": [1, 1], "strides": [1, 1], "pads": [1 << 32, 1 << 32],
        "dilations": [1, 1]}),
    "a million layers": lambda values: values.update(layers=values["layers"] * 1_000_000),
    "a layer of deep objects": lambda values: values["layers"][0].update(more=json.loads("[" * 40 + "]" * 40)),
    "macs of 2**70": lambda values: values.update(macs=1 << 70),
    "a hundred thousand inputs": lambda values: values.update(inputs=values["inputs"] * 100_000),
    "a name of 5000 letters": _port("inputs", name="a" * 5000),
    "an input that the network has not": _tensor("inputs", name="q"),
    "an output that the network has not": _tensor("outputs", name="q"),
    "another shape of the network's input": _tensor("inputs", shape=[1, 2, 4, 5]),
    "another shape of the network's output": _tensor("outputs", shape=[1, 2, 4, 5]),
    "a shape of 2**32 of the network": _tensor("inputs", shape=[1 << 32] * 4),
    "a type of nobody": _tensor("inputs", type="float128"), "a scale of real numbers": _tensor("inputs", scale=0.5),
    "no network's inputs": lambda values: values["network"].update(inputs=[]),
    "a check sum of capitals": _file("net.tprog", sha256="A" * 64),
    "a check sum of nothing": _file("net.tprog", sha256=""),
    "a check sum of another file": _file("net.tprog", sha256=hashlib.sha256(b"").hexdigest()),
    "a file of 2**32 bytes": _file("net.tprog", bytes=1 << 32), "a file of -1 bytes": _file("net.tprog", bytes=-1),
    "a file too many": lambda values: values["files"].update({"../x": values["files"]["net.tprog"]}),
    "a file too few": lambda values: values["files"].pop("net.tdata"),
    "the program as constants": _const(file_name="net.tprog"),
    "a program that is the manifest": lambda values: values["prog"].update(file_name="net.tmodel"),
    "a program in a folder": lambda values: values["prog"].update(file_name="a/../net.tprog"),
    "a program of a backslash": lambda values: values["prog"].update(file_name="..\\net.tprog"),
    "a program of newlines": lambda values: values["prog"].update(file_name=FORGED),
    "a key of newlines": lambda values: values.update({FORGED: 1}),
    "an architecture key of newlines": lambda values: values["arch"].update({FORGED: 1}),
    "an architecture of newlines": lambda values: values["arch"].update(data_type=FORGED),
    "no parts": _parts(), "a part of neither": _parts({"host": None}),
    "parts of the host alone": _parts({"host": HOST}),
    "a part of both": _parts({}, change=lambda values: values["parts"][0].update(host=HOST)),
    "a program twice": _parts({}, {}), "2000 parts": _parts(*[{"host": HOST}] * 2000),
    "a host's part that is no model": _parts({}, {"host": HOST}, change=lambda values: values["network"].update(
        outputs=[{"name": "z", "type": "float32", "shape": [1]}])),
    "a part that reads what comes later": _parts({"host": HOST}, {}),
    "a part that makes an input": _parts({}, {"host": {**HOST, "outputs": ["x"]}}),
    "parts and a program": lambda values: values.update(parts=[]),
}


ODD = {"strides of 0", "a packing of pads"}
"""Every place lies within the memory."""


def _elsewhere(name: str) -> Callable[[Path], Any]:
    """Return a maker of a file that is a link to one of the same content in another folder."""
    def apply(folder: Path) -> None:
        (folder / "other").mkdir()
        (folder / name).rename(folder / "other" / name)
        (folder / name).symlink_to(Path("..") / folder.name / "other" / name)

    return apply


def _up(name: str) -> Callable[[Path], Any]:
    def apply(folder: Path) -> None:
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(Path("..") / name)

    return apply


def _arrays(**arrays: bytes) -> Callable[[Path], Any]:
    content = zipped(*((f"{name}.npy", data) for name, data in arrays.items()))
    return lambda folder: (folder / "x.npz").write_bytes(content)


ARRAYS: dict[str, bytes] = {
    "another rank": npy(GOOD[0, 0]), "two axes more": npy(GOOD[None, None]), "another size": npy(GOOD[..., :3]),
    "no axis": npy(np.float32(1)), "2**63 of no bytes": shaped((1 << 63, 0)), "0 of 2**63": shaped((0, 1 << 63)),
    "halves of 2**40": shaped((1 << 40,), "<f2"), "a type of 2**31 bytes": shaped((1,), "|V2147483647"),
    "a subarray": shaped((1,), ("<f4", (1 << 20, 1 << 20))), "names in a type": shaped((1,), [(FORGED, "<f4")]),
    "a type that computes": shaped((1,), "__import__('os')"), "true as a size": shaped((True, 2, 4, 4)),
    "long doubles": npy(GOOD.astype(np.longdouble)), "integers beyond": npy(np.full((1, 2, 4, 4), 1 << 62)),
    "times": npy(np.zeros((1, 2, 4, 4), "m8[s]")), "structures": npy(np.zeros((1, 2, 4, 4), "i4,i4")),
}
CURIOUS = {"long doubles", "integers beyond", "two axes more", "true as a size"}
"""Numbers like others."""

KEYS: dict[str, dict[str, Any]] = {
    "of newlines": {FORGED: 1}, "of markup": {"[red]array_size[/]": 1}, "of escapes": {"\x1b[2J": 1},
    "another direction": {"\u202earray_size": 1}, "5000 letters": {"a" * 5000: 1}, "nothing": {"": 1},
    "a surrogate": {"\ud800": 1}, "a value of newlines": {"data_type": FORGED},
    "a value of markup": {"data_type": "[red]"},
    "a list of a million": {"array_size": [0] * 1_000_000}, "an object": {"array_size": {}},
    "null": {"array_size": None},
    "true": {"array_size": True}, "a fraction": {"array_size": 2.5}, "1e300": {"array_size": 1e300},
    "2**64": {"local_depth": 1 << 64}, "-2**64": {"local_depth": -(1 << 64)}, "2**130": {"dram0_depth": 1 << 130},
}


def _architecture(changes: dict[str, Any]) -> Callable[[Path], Any]:
    return lambda folder: (folder / "a.tarch").write_text(json.dumps({**Arch.load("tiny").to_dict(), **changes}))


def cases() -> list[Case]:
    isa = ["isa", "-a", "a.tarch"]
    found = [Case(f"manifest: {name}", "manifests", good_and(RUN, _apply(change)),
                  code=None if name in ODD else 1) for name, change in CHANGES.items()]
    found += [Case(f"manifest in {command[0]}: {name}", "manifests", good_and(command, _apply(CHANGES[name])))
              for command in (ESTIMATE, [*REPORT, "-o", "p.html"])
              for name in ("constants of 2**32", "a million layers", "a key of newlines", "no parts", "2000 parts")]
    for name in ("net.tprog", "net.tdata"):
        found += [Case(f"manifest link: {name} in its folder", "manifests", good_and(RUN, _elsewhere(name)), code=0),
                  Case(f"manifest link: {name} up", "manifests", good_and(RUN, _up(name)))]
    found += [Case(f"array: {name}", "arrays", good_and(RUN, _arrays(x=data)), code=None if name in CURIOUS else 1)
              for name, data in ARRAYS.items()]
    named = _arrays(**{FORGED: npy(GOOD), "q": npy(GOOD)})
    found += [Case("array: a name of newlines", "arrays", good_and(RUN, named))]
    found += [Case(f"arch key: {name}", "architecture keys", good_and(isa, _architecture(changes)))
              for name, changes in KEYS.items()]
    return quick(found, "manifest: an order that overflows", "manifest: a scale of 1e-45",
                 "manifest link: net.tprog up", "manifest: a packing of 2**32 taps", "array: a subarray",
                 "arch key: of newlines",
                 "manifest: another shape of the network's output")
