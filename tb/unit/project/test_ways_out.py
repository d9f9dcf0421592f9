# SPDX-License-Identifier: Apache-2.0
"""The way out that a message names is one: its options exist, the command had them not, and following it works."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper

from weft.cli.app import application
from weft.tb.unit.project.conftest import Weft

ROOT = Path(__file__).parents[3]
ROOMS: dict[str, tuple[str, ...]] = {
    "compiler": ("compile",), "runtime": ("run", "compile", "board build", "board memory"), "cli": (),
    "explore": ("explore",), "hw": (), "boards": ()}
"""Room -> commands that say its messages; none: any."""
OTHERS = {"--saved-model", "--protocol", "--tls-ca-file"}
"""Options of other programs."""
MESSAGES = {"explain", "refuse", "refuse_node", "_refuse", "_error"}


def options_of(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command with its options."""
    for part, each in getattr(command, "commands", {}).items():
        yield from options_of(each, f"{name} {part}".strip())
    yield name, {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}


OPTIONS = dict(options_of(typer.main.get_command(application())))


OPTION = r"(?<![\w-])--[a-z][a-z-]*"


def named_options(path: Path) -> Iterator[tuple[str, int]]:
    """Options in the last part of every message of a file, and the line.

    Those of a command that is named before are left out."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and call.args and getattr(call.func, "id", "") in MESSAGES:
            texts = [node.value for node in ast.walk(call.args[-1])
                     if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            text = re.sub(rf"weft ([a-z]+) [^,;]*?({OPTION})",
                          lambda words: "" if words[2] in OPTIONS[words[1]] else words[0], " ".join(texts))
            for option in re.findall(OPTION, text):
                yield option, call.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_every_option_that_is_named_exists(room: str) -> None:
    known = set().union(*(OPTIONS[command] for command in ROOMS[room] or OPTIONS), OTHERS)
    found = [(option, f"{path.relative_to(ROOT)}:{line}") for path in sorted((ROOT / room).rglob("*.py"))
             for option, line in named_options(path)]
    assert [each for each in found if each[0] not in known] == []


def test_options_are_looked_for_where_they_stand() -> None:
    found = [option for room in ROOMS for path in (ROOT / room).rglob("*.py") for option, _ in named_options(path)]
    assert {"--end", "--plain", "--part", "--images", "--on"} <= set(found) and len(found) > 30


# -- followed ----------------------------------------------------------------------------------------------------------
def network(folder: Path, *nodes: onnx.NodeProto, shape: tuple[Any, ...] = (1, 2, 4, 4)) -> Path:
    weights = numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")
    first = helper.make_node("Conv", ["x", "w"], ["a"], name="first")
    graph = helper.make_graph([first, *nodes], "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weights])
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def relu(folder: Path) -> None:
    network(folder, helper.make_node("Relu", ["a"], ["y"]))


def cosine(folder: Path) -> None:
    network(folder, helper.make_node("Cos", ["a"], ["y"]))


def open_height(folder: Path) -> None:
    network(folder, helper.make_node("Relu", ["a"], ["y"]), shape=(1, 2, "height", 4))


COMPILE = ["compile", "net.onnx", "-a", "tiny", "-o", "out"]
TABLE: dict[str, tuple[Callable[[Path], object], list[str], str, list[str]]] = {
    "the host": (cosine, [*COMPILE, "--no-host-fallback"], r"--host-fallback", ["--host-fallback"]),
    "an earlier end": (cosine, [*COMPILE, "--no-host-fallback"], r"\(--end\)", ["--end", "a"]),
    "another end": (relu, [*COMPILE, "--end", "firs"], "", []),
    "sizes": (open_height, COMPILE, r"--shape (\S+)", ["--shape", "x:1,2,4,4"]),
    "no plain points": (relu, [*COMPILE, "--set", "data_type=INT8", "--plain"], "leave --plain out",
                        ["without --plain"]),
    "no ranges": (relu, [*COMPILE, "--ranges", "error"], "leave --ranges out", ["without --ranges"]),
    "a name": (relu, [*COMPILE, "--name", "a/b"], r"--name", ["--name", "b"]),
    "a chip": (relu, ["resources", "-a", "tiny", "--part", "xc7a35"], r"did you mean (\S+)\?", ["--part", "XC7A35T"]),
    "an end that is near": (relu, [*COMPILE, "--end", "yy"], "choose one of them|did you mean", ["--end", "y"]),
    "a value": (relu, ["estimate", "net.onnx"], r"weft compile net.onnx -a ARCH", []),
}


def followed(command: list[str], change: list[str]) -> list[str]:
    """The command with an option more, with another value of one that it had, or without one."""
    if change and change[0].startswith("without "):
        option = change[0].removeprefix("without ")
        at = command.index(option)
        takes = at + 1 < len(command) and not command[at + 1].startswith("-")
        return command[:at] + command[at + 1 + takes:]
    if change and change[0] in command:
        at = command.index(change[0])
        return [*command[:at], *change, *command[at + 2:]]
    return [*command, *change]


@pytest.mark.parametrize("name", TABLE)
def test_the_way_out_works(name: str, tmp_path: Path, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    make, command, pattern, change = TABLE[name]
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    refused = weft(*command)
    assert refused.code == 1 and "; way out: " in refused.err
    way = refused.err.split("; way out: ")[1]
    assert re.search(pattern, way), way
    given = {word for word in command if word.startswith("--")}
    advised = {option for option in re.findall(r"--[a-z-]+", way) if f"leave {option} out" not in way}
    assert not advised & given - {"--end", "--name", "--part"}, "it had that already"
    if change:
        assert weft(*followed(command, change)).code == 0, refused.err


@pytest.mark.parametrize("command", [COMPILE, [*COMPILE, "--host-fallback"]])
def test_the_host_is_no_way_out_where_it_is_used(command: list[str], tmp_path: Path, weft: Weft,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path, helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "s", "z"]),
            helper.make_node("DequantizeLinear", ["q", "c", "u"], ["y"]),
            helper.make_node("Constant", [], ["unused"], value_float=1.0))
    model = onnx.load("net.onnx")
    model.graph.initializer.extend([numpy_helper.from_array(np.array(0.5, np.float32), "c"),
                                    numpy_helper.from_array(np.array(3, np.uint8), "u")])
    onnx.save(model, "net.onnx")
    refused = weft(*command)
    assert refused.code == 1 and "no QuantizeLinear made" in refused.err and "--host-fallback" not in refused.err
