# SPDX-License-Identifier: Apache-2.0
"""Command lines: names, places to write to, disks that are full, TensorFlow files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.tb.hostile.case import COMPILE, ESTIMATE, REPORT, RUN, Case, good_and, quick

NAMES: dict[str, str] = {
    "up": "../evil", "of the root": "/tmp/evil", "below": "a/b", "a slash": "/", "two points": "..", "a point": ".",
    "hidden": ".net", "a newline": "a\nb", "an escape": "\x1b[31mnet", "a bell": "\x07", "a surrogate": "net\udcff",
    "5000 letters": "a" * 5000, "240 letters": "a" * 240, "a blank": " ", "a blank before": " net",
    "another direction": "\u202eten", "a broken line": "a\u2028b", "240 bytes": "\u20ac" * 80,
}

OUTPUTS: dict[str, str] = {
    "unknown": "z", "a comma": ",", "two commas": ",,", "an escape": "\x1b[31m", "a surrogate": "\udcff",
    "5000 letters": "a" * 5000, "half unknown": "y,z", "a path": "../y",
}

OPTIONS: dict[str, list[str]] = {
    "no command": ["\x1b[31m"], "a surrogate as command": ["\udcff"],
    "an unknown option": ["isa", "-a", "tiny", "--\x1b[31m"],
    "an option of surrogates": ["isa", "-a", "tiny", "--\udcff"], "images of letters": [*RUN, "--images", "many"],
    "images of 5000 digits": [*RUN, "--images", "9" * 5000], "images of -1": [*RUN, "--images", "-1"],
    "latency of 5000 digits": [*ESTIMATE, "--latency", "9" * 5000], "latency of 0": [*ESTIMATE, "--latency", "0"],
    "latency of NaN": [*ESTIMATE, "--latency", "nan"], "latency of 10**30": [*ESTIMATE, "--latency", "1" + "0" * 30],
    "a board of an escape": [*ESTIMATE, "--board", "\x1b[31m"],
    "a board of a surrogate": [*ESTIMATE, "--board", "\udcff"],
    "a board of 5000 letters": [*ESTIMATE, "--board", "a" * 5000],
    "a board of no memory": [*ESTIMATE, "--board", "tang_nano_20k"],
    "a board and a latency": [*ESTIMATE, "--board", "ulx3s", "--latency", "20"],
    "a board's memory on golden": [*RUN, "--board", "ulx3s"],
    "a page for a board of a surrogate": [*REPORT, "-o", "p.html", "--board", "\udcff"],
    "a part of an escape": ["resources", "-a", "tiny", "--part", "\x1b[31m"],
    "a part of a surrogate": ["resources", "-a", "tiny", "--part", "\udcff"],
    "on silicon": [*RUN, "--on", "\x1b[31m"], "on a surrogate": [*RUN, "--on", "\udcff"],
    "too many files": [*RUN, "a", "b"],
    "nothing to run": ["run", "", "--input", ""], "nothing to compile": ["compile", "", "-a", "tiny", "-o", "out"],
    "a folder to compile": ["compile", ".", "-a", "tiny", "-o", "out"],
    "a model of 5000 letters": ["compile", "a" * 5000, "-a", "tiny", "-o", "out"],
    "a run of 5000 letters": ["run", "a" * 5000, "--input", "x.npz"],
    "inputs of 5000 letters": ["run", "net.tmodel", "--input", "a" * 5000],
    "inputs of a surrogate": ["run", "net.tmodel", "--input", "\udcff"],
    "a program of 5000 letters": ["disassemble", "a" * 5000, "-a", "tiny"],
    "calibration of 5000 letters": [*COMPILE, "--calibrate", "a" * 5000],
    "a page for a part of an escape": [*REPORT, "-o", "p.html", "--part", "\x1b[31m"],
    "a page of nothing": ["report", "", "-o", "p.html"],
    "a page of 5000 letters": ["report", "a" * 5000, "-o", "p.html"],
    "a trace on golden": [*RUN, "--trace", "t.json"], "layers on golden": [*RUN, "--layers"],
}


def _file(folder: Path) -> None:
    (folder / "out").write_text("")


def _loop(folder: Path) -> None:
    (folder / "out").symlink_to("out")


FOLDERS: dict[str, tuple[str, Callable[[Path], Any] | None]] = {
    "a file": ("out", _file), "below a file": ("out/below", _file), "a link to itself": ("out", _loop),
    "of 5000 letters": ("a" * 5000, None), "a device": ("/dev/null", None), "below a device": ("/dev/null/out", None),
    "of the kernel": ("/proc/out", None), "many deep": ("a/" * 2500, None),
}

FILES: dict[str, tuple[str, Callable[[Path], Any] | None]] = {
    "a folder": ("out", lambda folder: (folder / "out").mkdir()), "below a file": ("out/y", _file),
    "a device": ("/dev/full", None),
    "of the kernel": ("/proc/y", None), "of 5000 letters": ("a" * 5000, None),
    "a pipe": ("out", lambda folder: os.mkfifo(folder / "out")),
    "of 254 letters": ("a" * 254, None),
}

COMMANDS: dict[str, list[str]] = {
    "isa": ["isa", "-a", "tiny"], "disassemble": ["disassemble", "net.tprog", "-a", "tiny"], "run": RUN,
    "run to JSON": [*RUN, "--json"], "debug": ["debug", "net.tmodel", "-x", "cycle"],
    "estimate": ESTIMATE, "estimate to JSON": [*ESTIMATE, "--json"],
    "compile": COMPILE,
    "help": ["--help"],
}

WRITERS: dict[str, tuple[list[str], int]] = {
    "compile": (COMPILE, 100), "compile's last file": (COMPILE, 1000),
    "compile's steps": ([*COMPILE, "--dump-dir", "steps"], 50), "a report": ([*COMPILE, "--report", "report.json"], 20),
    "outputs": ([*RUN, "--output", "y.npz"], 100), "a trace": ([*ESTIMATE, "--trace", "t.json"], 100),
    "a page": ([*REPORT, "-o", "page.html"], 1000),
    "verilog": (["verilog", "-a", "tiny", "-o", "out"], 1000),
}


def cases() -> list[Case]:
    found = [Case(f"name: {name}", "--name", good_and([*COMPILE, "--name", text])) for name, text in NAMES.items()]
    found += [Case(f"end: {name}", "--end", good_and([*COMPILE, "--end", text])) for name,
              text in OUTPUTS.items()]
    found += [Case(f"option: {name}", "options", good_and(arguments)) for name, arguments in OPTIONS.items()]
    for name, (place, change) in FOLDERS.items():
        found += [Case(f"folder of compile: {name}", "output places", good_and([*COMPILE[:-1], place], change))]
        found += [Case(f"folder of verilog: {name}", "output places",
                       good_and(["verilog", "-a", "tiny", "-o", place], change))]
    found += [Case(f"folder of steps: {name}", "output places",
                   good_and([*COMPILE, "--dump-dir", FOLDERS[name][0]], FOLDERS[name][1]))
              for name in ("below a device", "of 5000 letters")]
    for name, (place, change) in FILES.items():
        found += [Case(f"file of run: {name}", "output places", good_and([*RUN, "--output", place], change)),
                  Case(f"file of estimate: {name}", "output places", good_and([*ESTIMATE, "--trace", place], change)),
                  Case(f"file of report: {name}", "output places", good_and([*REPORT, "-o", place], change))]
    found += [Case(f"full output: {name}", "full disks", good_and(arguments), stdout="/dev/full")
              for name, arguments in COMMANDS.items() if name != "compile"]
    found += [Case(f"full disk: {name}", "full disks", good_and(arguments), most_bytes=most)
              for name, (arguments, most) in WRITERS.items()]
    found += [Case("legal: a full disk for the estimator's cache", "full disks", good_and(ESTIMATE), code=0,
                   most_bytes=300,
                   cache="cache", seconds=300),
              Case("legal: no place for the estimator's cache", "full disks", good_and(ESTIMATE), code=0,
                   cache="/dev/null/x",
                   seconds=300),
              Case("full disk: a report where no cache is", "full disks",
                   good_and(["verilog", "-a", "tiny", "-o", "/dev/null/x"]),
                   cache="/dev/null/x")]
    found += [Case(f"pb: {name}", ".pb",
                   good_and(["compile", "net.pb", "-a", "tiny", "-o", "out", "--end", "y"], change))
              for name, change in FROZEN.items()]
    return quick(found, "name: up", "name: a surrogate", "name: 5000 letters", "end: an escape",
                 "option: an unknown option", "option: images of 5000 digits", "folder of compile: a link to itself",
                 "file of run: a device", "file of estimate: of 5000 letters", "full output: isa",
                 "full output: run to JSON",
                 "full disk: compile", "full disk: compile's last file", "full disk: outputs", "pb: a pipe")


def _sparse(folder: Path) -> None:
    with (folder / "net.pb").open("wb") as file:
        file.truncate(1 << 40)


FROZEN: dict[str, Callable[[Path], Any]] = {
    "a folder": lambda folder: (folder / "net.pb").mkdir(), "a pipe": lambda folder: os.mkfifo(folder / "net.pb"),
    "nothing": lambda folder: None, "a device": lambda folder: (folder / "net.pb").symlink_to("/dev/zero"),
    "a terabyte": _sparse, "a link to itself": lambda folder: (folder / "net.pb").symlink_to("net.pb"),
}
