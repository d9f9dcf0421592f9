# SPDX-License-Identifier: Apache-2.0
"""Files and texts beside networks: choices of a search, results, scripts of the debugger, values of inputs, machines
that stand at the ends of their numbers, models whose files belong to others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.hostile.case import COMPILE, ESTIMATE, REPORT, RUN, Case, Recipe, compiled, copy_good, good_and, quick

NINES = "9" * 5000
LARGE = 1 << 62
TINY: dict[str, Any] = Arch.load("tiny").to_dict()

# -- choices -----------------------------------------------------------------------------------------------------------
EMPTY: dict[str, Any] = {"residents": {}, "spread": {}, "copy": None, "tilings": {}, "paces": {}, "fetch_paces": {},
                         "fetch_pace": None, "layers": ""}
TILING: dict[str, Any] = {"grain": [1, 1, None], "outputs": 1, "inputs": 1, "taps": 1, "buffers": 1, "weight_slots": 1,
                          "outputs_outer": False}


def _choices(*parts: Any, cycles: Any = (2, 1)) -> str:
    return json.dumps({"choices": 1, "cycles": cycles, "parts": list(parts)}, indent=1) + "\n"


def _chosen(**values: Any) -> str:
    return _choices({**EMPTY, **values})


def _tiling(**values: Any) -> str:
    return _chosen(tilings={"0": {**TILING, **values}})


CHOICES: dict[str, str] = {
    "nothing": "", "nothing chosen": _chosen(), "no part": _choices(), "two parts": _choices(EMPTY, EMPTY),
    "10000 parts": _choices(*[EMPTY] * 10_000), "a part null": _choices(None), "cycles of text": _choices(
        EMPTY, cycles=["a", "b"]),
    "cycles below 0": _choices(EMPTY, cycles=[-1, -2]), "three cycles": _choices(EMPTY, cycles=[1, 2, 3]),
    "cycles of 2**70": _choices(EMPTY, cycles=[1 << 70, 1]), "cycles of NaN": _choices(EMPTY, cycles=[float("nan"), 1]),
    "a layer -1": _chosen(paces={"-1": 2}), "a layer 2**62": _chosen(paces={str(LARGE): 2}),
    "a layer of 5000 digits": _chosen(paces={NINES: 2}), "a layer of letters": _chosen(paces={"one": 2}),
    "a pace of 0": _chosen(paces={"0": 0}), "a pace of 2**62": _chosen(fetch_paces={"0": LARGE}),
    "a pace of 2**70": _chosen(fetch_pace=1 << 70), "a pace of 1.5": _chosen(fetch_pace=1.5),
    "a tensor of nobody": _chosen(residents={"nobody": True}), "a tensor of escapes": _chosen(
        spread={"\x1b[31m\n": True}),
    "a tensor kept": _chosen(residents={"x": True}), "a tensor spread": _chosen(spread={"y": True}),
    "layers of others": _chosen(layers="0" * 20), "copied": _chosen(copy=True),
    "a tiling": _tiling(), "a grain of 0": _tiling(grain=[0, 0, None]), "a grain of -1": _tiling(grain=[-1, -1, None]),
    "a grain of 2**62": _tiling(grain=[LARGE, LARGE, None]), "a grain of 3": _tiling(grain=[3, 3, None]),
    "a part of 0": _tiling(grain=[1, 1, [0, 0]]), "a part of 2**62": _tiling(grain=[1, 1, [LARGE, LARGE]]),
    "a part of a part": _tiling(grain=[4, 4, [1, 1]]),
    **{f"{key} of {value}": _tiling(**{key: value}) for key in ("outputs", "inputs", "taps", "buffers", "weight_slots")
       for value in (0, -1, 3, LARGE)},
    "an order of 2": _tiling(outputs_outer=2), "a grain of text": _tiling(grain="ab"),
    "deep": "[" * 100_000, "another version": _chosen().replace('"choices": 1', '"choices": 99'),
    "a key twice": _chosen().replace('"copy": null', '"copy": null, "copy": true'),
}

# -- results of a search -----------------------------------------------------------------------------------------------
RESULT = {"what": "cycles", "network": "0" * 20, "machine": "0" * 20, "value": 5}


def _line(**values: Any) -> str:
    return json.dumps({**RESULT, **values}) + "\n"


RESULTS: dict[str, str | bytes] = {
    "a value below 0": _line(value=-1), "a value of 0.5": _line(value=0.5),
    "cycles of text": _line(value="no"), "a digest of capitals": _line(network="A" * 20),
    "another kind": _line(what="watts"), "a key too many": _line(more=1), "an empty line": _line() + "\n" + _line(),
    "a line of NUL": _line() + "\0" * 99 + "\n", "half a line of others": _line() + '{"what": "cycles", "x',
    "no UTF-8": _line().encode() + b'{"what": "cycles", "network": "\xff"}\n', "deep": _line() + "[" * 100_000 + "\n",
}
SEARCH = ["explore", "net.onnx", "--part", "XC7A35T", "--results", "results.jsonl"]

# -- the debugger ------------------------------------------------------------------------------------------------------
COMMANDS = (
    "break instruction " + NINES, "break pc " + NINES, "break instruction -1", "break instruction \u0663",
    "break instruction \u00b2",
    "break layer \x1b[31m", "break moon 1", "break", "step " + NINES, "step -1", "step 0", "step \u0661", "step 1.5",
    "local " + NINES, "local -1", "local 0 " + NINES, "local 0 0", "local 0 -5", "local 1 2 3 4", "dram0 " + NINES,
    "dram1 0 99999999", "accumulators 99999", "cycle " + NINES, "cycle -1", "list " + NINES, "list -3",
    "delete \x1b[2J", "delete", "moon",
    "\x1b[31m", "\udcff", "s", "", "#", "help me", "quit now", "where am I", "\u2028step", "r\u00fcn",
    "registers 5", "layers all", "weights 0 4", "tables 0", "restart now", "next 5", "run to the end",
)
SCRIPTS: dict[str, bytes] = {
    "nothing": b"", "no UTF-8": b"\xff\xfe\n", "NUL": bytes(5000), "a long line": b"step " * 200_000,
    "many lines": b"where\n" * 2000 + b"moon\n", "a long word": b"a" * 1_000_000, "UTF-16": "step".encode("utf-16"),
    "comments": b"# nothing\n" * 9, "the end twice": b"quit\nquit\nmoon\n", "a bell": b"\x07\n",
}

# -- values that an input always has -----------------------------------------------------------------------------------
FIXES = ("", "=", "x", "x=", "=1", "x=NaN", "x=inf", "x=1e999", f"x={NINES}", "x=1,2,3", "x=" + "1," * 5000, "y=1",
         "nobody=1", "x=\u0663", "\udcff=1", "x=\udcff", "\x1b[31m=1", "x=1=2", "x=x.npz", "x=true", "x=0x10", "x=1_0",
         "x=--1", "x= 1", "x=1", "x=-0.0", "x=1e38")

# -- machines ----------------------------------------------------------------------------------------------------------
MACHINES: dict[str, dict[str, Any]] = {
    "one vector of accumulators": {"accumulator_depth": 1}, "two vectors of local memory": {"local_depth": 2},
    "no DRAM to speak of": {"dram0_depth": 1}, "one vector of DRAM1": {"dram1_depth": 1},
    "no registers": {"simd_registers_depth": 0}, "one lane": {"array_size": 1}, "2**20 lanes": {"array_size": 1 << 20},
    "a local memory of 2**40": {"local_depth": 1 << 40}, "an accumulator of 2**31": {"accumulator_depth": 1 << 31},
    "strides of 2**200": {"stride0_depth": 1 << 200}, "-0.0": {"stride0_depth": -0.0}, "1e3": {"local_depth": 1e3},
    "a number as text": {"local_depth": "512"}, "a type of 2 bits": {"data_type": "FP2BP1"},
    "a type of 64 bits": {"data_type": "FP64BP32"}, "a type of 32 bits": {"data_type": "FP32BP16"},
    "a type of no bits": {"data_type": "FP0BP0"}, "INT4": {"data_type": "INT4"}, "float32": {"data_type": "FP32"},
}


def _machine(values: dict[str, Any], command: list[str]) -> Recipe:
    def change(folder: Path) -> None:
        (folder / "my.tarch").write_text(json.dumps({**TINY, **values}))

    return good_and(command, change)


# -- files of other models ---------------------------------------------------------------------------------------------
def _other(folder: Path) -> Path:
    """Return a folder of a compiled model of the same network for another machine."""
    compile_model(compiled() / "net.onnx", Arch.load("tiny").replace(array_size=4), folder / "other",
                  calibration={"x": np.ones((1, 2, 4, 4))})
    return folder / "other"


def _swapped(*endings: str, told: bool = False) -> Callable[[Path], Any]:
    """Return a change: files come from the other model; its check sums too if ``told``."""
    def apply(folder: Path) -> None:
        other = _other(folder)
        for ending in endings:
            shutil.copy(other / f"net.{ending}", folder / f"net.{ending}")
        if told:
            mine, theirs = (json.loads((place / "net.tmodel").read_text()) for place in (folder, other))
            mine["files"] = {name: theirs["files"][name] if name.rpartition(".")[2] in endings else value
                             for name, value in mine["files"].items()}
            (folder / "net.tmodel").write_text(json.dumps(mine))
        shutil.rmtree(other)

    return apply


def _without_sums(change: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Return a change of files, of which the manifest has no check sums."""
    def apply(folder: Path) -> None:
        change(folder)
        values = json.loads((folder / "net.tmodel").read_text())
        values.pop("files", None)
        (folder / "net.tmodel").write_text(json.dumps(values))

    return apply


def _cut(name: str, size: int) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def _grown(name: str, size: int) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + bytes(size))


SWAPS: dict[str, Callable[[Path], Any]] = {
    "the program of another machine": _swapped("tprog"), "the constants of another machine": _swapped("tdata"),
    "both of another machine": _swapped("tprog", "tdata"),
    "the program of another machine, told": _swapped("tprog", told=True),
    "the constants of another machine, told": _swapped("tdata", told=True),
    "both of another machine, told": _swapped("tprog", "tdata", told=True),
    "the manifest of another machine": _swapped("tmodel"),
    **{f"{name}, no sums": _without_sums(change) for name, change in {
        "the program of another machine": _swapped("tprog"), "a program of 8 bytes": _cut("net.tprog", 8),
        "a program of a byte less": lambda folder: _cut("net.tprog", (folder / "net.tprog").stat().st_size - 1)(folder),
        "a program of a byte more": _grown("net.tprog", 1), "a program of zeros behind": _grown("net.tprog", 9000),
        "no constants": _cut("net.tdata", 0), "constants of a byte more": _grown("net.tdata", 1),
        "constants of a MB more": _grown("net.tdata", 1 << 20)}.items()},
    "no sums": _without_sums(lambda folder: None),
}


def _written(name: str, content: str | bytes, command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        copy_good(folder)
        (folder / name).write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return command

    return recipe


def cases() -> list[Case]:
    """Return the cases; where odd texts may be right, None stands for the exit code."""
    found = [Case(f"choices: {name}", "choices", _written("c.json", content, [*COMPILE, "--choices", "c.json"]),
                  code=None) for name, content in CHOICES.items()]
    found += [Case(f"results: {name}", "results", _written("results.jsonl", content, SEARCH))
              for name, content in RESULTS.items()]
    found += [Case(f"debug {number}: {ascii(text)[1:-1][:20]}", "debugger",
                   good_and(["debug", "net.tmodel", "-x", text]), code=None) for number, text in enumerate(COMMANDS)]
    found += [Case(f"debug script: {name}", "debugger", _written("s", content, [
        "debug", "net.tmodel", "--script", "s"]), code=None) for name, content in SCRIPTS.items()]
    found += [Case(f"fix {command[0]}: {ascii(text)[1:-1][:40]}", "--fix", good_and([*command, "--fix", text]),
                   code=None) for text in FIXES for command in (COMPILE, ["inspect", "net.onnx", "-a", "tiny"])]
    found += [Case(f"machine {name} in {' '.join(command[:1])}", "machines", _machine(values, command), code=None)
              for name, values in MACHINES.items() for command in (
                  ["compile", "net.onnx", "-o", "out", "-a", "my.tarch"], ["resources", "-a", "my.tarch"],
                  ["verilog", "-a", "my.tarch", "-o", "out"])]
    found += [Case(f"swapped: {name} in {command[0]}", "swapped files", good_and(command, change), code=None)
              for name, change in SWAPS.items() for command in (RUN, ESTIMATE, [*REPORT, "-o", "p.html"], [
                  "debug", "net.tmodel", "-x", "run"])]
    return quick(found, "choices: a grain of 2**62", "results: deep", "debug 0: break instruction 99",
                 "fix compile: x=NaN", "machine -0.0 in compile",
                 "swapped: both of another machine, told in run")
