# SPDX-License-Identifier: Apache-2.0
"""Command lines made from the tree of commands: every option of every command with values that it cannot take, device
strings, shell files, keys, strings with a grammar of their own, environment variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from weft.hw.contract.arch import Arch
from weft.tb.bench.dram_model import board_description
from weft.tb.hostile.case import COMPILE, ESTIMATE, REPORT, RUN, Case, Recipe, good_and, quick

NINES = "9" * 5000
NUMBERS = {"nothing": "", "letters": "many", "minus one": "-1", "5000 digits": NINES, "NaN": "nan", "infinite": "-inf",
           "a newline": "1\n2", "an escape": "\x1b[31m", "a surrogate": "\udcff", "hex": "0x10"}
NAMES = {"nothing": "", "a blank": " ", "unknown": "moon", "a newline": "tiny\nmoon", "an escape": "\x1b[31m",
         "a surrogate": "\udcff", "5000 letters": "a" * 5000, "another direction": "\u202eynit", "a path": "../tiny"}
PLACES = {"nothing": "", "a surrogate": "\udcff", "5000 letters": "a" * 5000, "a device": "/dev/null/x"}
GOOD: dict[str, list[str]] = {
    "compile": COMPILE, "inspect": ["inspect", "net.onnx", "-a", "tiny"], "archs": ["archs"],
    "report": [*REPORT, "-o", "page.html"], "explore": ["explore", "net.onnx", "--part", "XC7A35T"],
    "doctor": ["doctor"], "demo": ["demo", "-a", "tiny"], "verilog": ["verilog", "-a", "tiny", "-o", "out"], "run": RUN,
    "estimate": ESTIMATE, "resources": ["resources", "-a", "arty"], "isa": ["isa", "-a", "tiny"],
    "disassemble": ["disassemble", "net.tprog", "-a", "tiny"],
    "debug": ["debug", "net.tmodel", "-x", "where"], "board list": ["board", "list"],
    "ir check": ["ir", "check", "net.json"], "schedule": ["schedule", "net.onnx", "-a", "tiny", "-o", "new.json"],
    "board build": ["board", "build", "ecpix5"], "board flash": ["board", "flash", "ecpix5"],
    "board memory": ["board", "memory", "golden"],
    "board standalone": ["board", "standalone", "net.tmodel", "--board", "ecpix5", "--input", "x.npz", "-o", "out"]}
"""A command line of each command that nothing is wrong with, or nothing but what is asked last."""
LEGAL = {"--end": {"nothing"}, "--name": {"nothing", "unknown"}}
"""Option -> values that may be taken for something."""
MINUTES = ("explore", "demo", "board build")
"""Commands that take minutes once nothing is wrong: only what must be refused."""
OWN = ("--set", "--shape", "--axis", "--state", "--on")
"""Options with a grammar of their own: below."""

SHAPES = ("", ":", "x", "x:", ":1,2", "x:0", "x:-1", "x:1,,2", "x:1.5", "x:1e9", f"x:{NINES}", "x:1,2,4,4,x",
          "x:" + "1," * 40 + "1", "x:\u0661", "x:1\n", "moon:1,2,4,4", "\udcff:1", "\x1b[31m:1", "x:999999,999999,9,9")
STATES = ("", ":", "y", "y:", ":x", "y:moon", "moon:x", "y:x:x", "\udcff:x", "y:\x1b[31m", "a" * 5000, "x:y", "y:y")
AXES = ("", "=", "array_size", "array_size=", "=4", "array_size=4,,8", "array_size=nan", "array_size=-1",
        f"array_size={NINES}", "moon=4", "array_size=four", "data_type=moon", "\udcff=4",
        "\x1b[31m=1", "array_size=4," + ",".join(["moon"] * 5000), "array_size=1e3", "mac_rounding=1")
TARGETS = (
    "", ":", "?", "GOLDEN", "golden ", "golden:moon", "golden:\udcff", "golden:" + "a" * 5000, "golden:.", "golden?x=1",
    "rtl:tiny", "rtl?", "sim:moon", "sim?seconds=0", "sim?seconds=nan", "sim?moon=1", "serial", "serial:",
    "serial:/dev/null", "serial:/dev/zero", "serial:.", "serial:nowhere", "serial:" + "a" * 5000, "serial:\udcff",
    "serial:\x1b[31m", "serial:a\nb", "serial:auto?baud=0", "serial:auto?baud=13000000", "serial:auto?shell=nowhere",
    "serial:auto?shell=.", "serial:auto?shell=net.onnx", "serial:auto?shell=/dev/zero", "serial:auto", "serial:AUTO",
    "serial:x?baud=1&baud=2", "serial:x?registers=1", "serial:x?registers=0xfffffffc", "serial:x?bytes=0",
    "serial:x?memory=-4", "serial:x?seconds=1e999", "serial:socket://127.0.0.1:1", "udp", "udp:", "udp:h?port=70000",
    "udp:h?port=0", "udp:h?port=", "udp:::1", "udp:[::1]", "udp:256.1.1.1", "udp:127.0.0.1?port=9",
    "udp:255.255.255.255", "udp:no.such.host.invalid", "udp: ", "udp:..", "udp:" + "a." * 200, "udp:\u00e4.invalid",
    "udp:a b", "udp:\u202e1.1.1.1", "udp:127.0.0.1?port=9&shell=", "mmio", "mmio:", "mmio:moon",
    "mmio:pynq_z1?device=nowhere", "mmio:pynq_z1?device=/dev/zero&buffer=nowhere", "mmio:pynq_z1?registers=3",
    "mmio:pynq_z1?device=/dev/null", "mmio:pynq_z1?address=-1", "mmio:pynq_z1?bytes=1", "mmio:pynq_z1?device=.",
    "mmio:pynq_z1?buffer=" + "a" * 5000, "moon:x", "http://127.0.0.1", "\x00", "serial:x?" + "&" * 5000,
    "serial:x?" + "a=1&" * 1000)
KEY_VALUES = {"nothing": "", "minus one": "-1", "30 digits": "9" * 30, "a float": "1.5", "a word": "moon"}
SHELL_VALUES: dict[str, Any] = {"negative": -1, "huge": 1 << 70, "text": "moon", "null": None, "a list": [],
                                "true": True}
VARIABLES = {
    "COLUMNS": ("-1", "0", "nan", NINES, "\x1b[31m", "1"), "LINES": ("-1",), "TERM": ("", "moon\x1b[31m"),
    "HOME": ("",), "TMPDIR": ("", "/dev/null", "nowhere"), "LANG": ("moon", "C"), "LC_ALL": ("moon",),
    "PYTHONIOENCODING": ("ascii",), "NO_COLOR": ("1",), "PATH": ("",),
    "YOSYS": ("", "nowhere", "/dev/null", "/bin/false"),
    "WEFT_SIMULATOR_FLAGS": ("--moon",), "_WEFT_COMPLETE": ("moon", "complete_bash", ""),
}
SHOWERS = (GOOD["isa"], GOOD["archs"], GOOD["verilog"])
"""Commands that look at the terminal or start a tool."""


def cases() -> list[Case]:
    found = [*_commands(), *_options(), *_grammars(), *_keys(), *_shells(), *_variables()]
    return quick(found, "command line: explore --latency, NaN", "command line: run --images, a surrogate",
                 "command line: verilog -a, a newline", "command line: board build --mhz, infinite",
                 "command line: resources, one more", "device: 'udp:h?port=70000'", "device: 'serial:/dev/null'",
                 "device: 'mmio:pynq_z1?device=/dev/zero&buffer=nowhere'", "key: array_size, 30 digits",
                 "shell: clock_hz, negative", "environment: COLUMNS=nan with isa", "grammar: --shape 'x:'",
                 "grammar: --axis 'array_size=nan'", "grammar: --state 'y:moon'")


# -- the tree ----------------------------------------------------------------------------------------------------------
def _tree() -> dict[str, Any]:
    """Return every command by its name."""
    from weft.cli.app import application

    def walk(group: Any, before: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, f"{before}{name} ")
            else:
                yield before + name, command

    return dict(walk(typer.main.get_command(application()), ""))


def _commands() -> Iterator[Case]:
    """Yield cases of unknown commands, and for each command of too much, too little, and an unknown option."""
    for group in ([], ["board"]):
        for name, text in {**NAMES, "a dash": "-", "dashes": "--", "capitals": "ISA", "two words": "isa -a"}.items():
            if text != "--":
                yield Case(f"command line: {' '.join([*group, name])}", "command lines", good_and([*group, text]))
    assert set(_tree()) == set(GOOD)
    for name, command in _tree().items():
        words = name.split()
        if any(each.required for each in command.params):
            yield Case(f"command line: {name}, nothing", "command lines", good_and(words))
        if not any(each.nargs == -1 for each in command.params):
            yield Case(f"command line: {name}, one more", "command lines", good_and([*GOOD[name], "moon"]))
        yield Case(f"command line: {name}, an unknown option", "command lines", good_and([*GOOD[name], "--\x1b[31m\n"]))
        for each in command.params:
            if each.param_type_name == "option" and each.is_flag:
                yield Case(f"command line: {name} {each.opts[0]} with a value", "command lines",
                           good_and([*GOOD[name], f"{each.opts[0]}=moon"]))
            elif each.param_type_name == "option":
                yield Case(f"command line: {name} {each.opts[0]} without a value", "command lines",
                           good_and([*GOOD[name], each.opts[0]]))


def _options() -> Iterator[Case]:
    """Yield cases of each option with what its type cannot be."""
    for name, command in _tree().items():
        for each in command.params:
            if each.param_type_name != "option" or each.is_flag or each.opts[0] in OWN:
                continue
            kind = each.type_descriptor.annotation
            values = NUMBERS if kind in (int, float) else PLACES if kind is Path else NAMES
            for what, text in values.items():
                legal = what in LEGAL.get(each.opts[-1], ()) or kind is Path and (
                    what == "a surrogate" or what == "nothing" and each.metavar == "DIR")
                if not legal or name not in MINUTES:
                    yield Case(f"command line: {name} {each.opts[0]}, {what}", "command lines",
                               good_and([*GOOD[name], each.opts[0], text]), code=None if legal else 1)


# -- texts with a grammar ----------------------------------------------------------------------------------------------
def _grammars() -> Iterator[Case]:
    for option, texts, commands in (("--shape", SHAPES, ("compile", "inspect")), ("--state", STATES, ("run",)),
                                    ("--axis", AXES, ("explore",))):
        for number, text in enumerate(texts):
            command = commands[number % len(commands)]
            yield Case(f"grammar: {option} {ascii(text)[:60]}", "grammars", good_and([*GOOD[command], option, text]))
    for text in TARGETS:
        yield Case(f"device: {ascii(text)[:60]}", "devices", good_and([*RUN, "--on", text]))
    for text in TARGETS[::4]:
        yield Case(f"board memory: {ascii(text)[:60]}", "devices", good_and(["board", "memory", text]))


def _keys() -> Iterator[Case]:
    """Yield cases of every key of an architecture; some of the values suit some of the keys."""
    for key in Arch.load("tiny").to_dict():
        for what, value in KEY_VALUES.items():
            yield Case(f"key: {key}, {what}", "keys", good_and(["isa", "-a", "tiny", "--set", f"{key}={value}"]))
        yield Case(f"key: {key}, 0", "keys", good_and(["resources", "-a", "arty", "--set", f"{key}=0"]), code=None)


# -- shell files -------------------------------------------------------------------------------------------------------
def _shell(where: tuple[str, ...], bad: Any) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        content = json.loads(json.dumps(board_description(Arch.load("tiny"), "ulx3s")))
        place = content
        for key in where[:-1]:
            place = place[key]
        place[where[-1]] = bad
        (folder / "ulx3s").mkdir()
        (folder / "ulx3s" / "shell.json").write_text(json.dumps(content))
        return ["board", "memory", "serial:/dev/null", "--board", "ulx3s", "-o", "."]

    return recipe


def _shells() -> Iterator[Case]:
    content = board_description(Arch.load("tiny"), "ulx3s")
    places = [(key,) for key in content] + [("memory", "base"), ("memory", "bytes")] + [
        ("dram", key) for key in content["dram"]]
    for where in places:
        for what, bad in SHELL_VALUES.items():
            yield Case(f"shell: {'.'.join(where)}, {what}", "shell files", _shell(where, bad))


# -- the environment ---------------------------------------------------------------------------------------------------
def _variables() -> Iterator[Case]:
    for variable, values in VARIABLES.items():
        for value in values:
            for command in SHOWERS:
                yield Case(f"environment: {variable}={ascii(value)[1:-1][:30]} with {command[0]}", "environment",
                           good_and(command), code=None, environment={variable: value})
