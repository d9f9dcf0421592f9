# SPDX-License-Identifier: Apache-2.0
"""Additions to the commands' help: summaries in the list of commands, and an example at the end."""

from __future__ import annotations

import inspect
import re

import typer

EXAMPLES = {
    "compile": "weft compile model.onnx -a pynq -o build/model --calibrate samples.npz",
    "inspect": "weft inspect model.onnx -a pynq",
    "archs": "weft archs",
    "explore": "weft explore model.onnx --part xc7a100t --output my.tarch",
    "report": "weft report build/model/model.tmodel -o build/model/model.html",
    "doctor": "weft doctor --extra synth",
    "demo": "weft demo --images 20",
    "verilog": "weft verilog -a pynq -o build/pynq",
    "run": "weft run build/model/model.tmodel --on rtl --input samples.npz --images 1",
    "estimate": "weft estimate build/model/model.tmodel --latency 50",
    "debug": 'weft debug build/model/model.tmodel -x "break instruction MatMul" -x run -x "local 0 4"',
    "resources": "weft resources -a pynq --part XC7A100T",
    "isa": "weft isa -a pynq",
    "disassemble": "weft disassemble build/model/model.tprog -a pynq",
    "schedule": "weft schedule model.onnx -a pynq -o schedule.json",
    "ir check": "weft ir check schedule.json --network model.onnx",
    "board list": "weft board list",
    "board build": "weft board build ecpix5 --mhz 50",
    "board flash": "weft board flash ecpix5",
    "board memory": "weft board memory serial:auto",
    "board standalone": "weft board standalone build/digits/digits.tmodel --board ulx3s --input x.npz -o build/boot",
}


def add_summaries(app: typer.Typer) -> None:
    """Set each command's summary to its whole first sentence; typer would cut it where a line ends."""
    for info in app.registered_commands:
        said = " ".join((inspect.getdoc(info.callback) or "").split())
        info.short_help = re.split(r"(?<=\.) ", said, maxsplit=1)[0]


def add_examples(app: typer.Typer, prefix: str = "") -> None:
    """Add an example to the help of every command of ``app``. Raise KeyError for one without an example.

    The commands' names begin with ``prefix``."""
    for info in app.registered_commands:
        name = info.name or (info.callback.__name__ if info.callback else "")
        info.epilog = f"Example: {EXAMPLES[prefix + name]}"
