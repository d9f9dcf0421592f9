# SPDX-License-Identifier: Apache-2.0
"""Text of a file, in messages and tables: shown as text, never lines, colours or markup of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.hw.contract.arch import Arch
from weft.support.errors import ArchError, explain
from weft.tb.unit.project.conftest import Weft

FORGED = "weft: all is well"
NAME = f"n\n{FORGED}\n\x1b[31m\r[bold red]x[/]:smile:\t\u202e"
SHOWN = "[bold red]x[/]:smile:"


def named(name: str) -> str:
    return f"{name}{NAME}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network in which every name is one of those; its middle is the host's."""
    nodes = [helper.make_node("Conv", [named("x"), named("w")], [named("a")], name=named("conv")),
             helper.make_node("Cos", [named("a")], [named("b")], name=named("cos")),
             helper.make_node("Conv", [named("b"), named("w")], [named("y")], name=named("last"))]
    graph = helper.make_graph(
        nodes, named("g"), [helper.make_tensor_value_info(named("x"), TensorProto.FLOAT, [1, 2, 4, 4])],
        [helper.make_tensor_value_info(named("y"), TensorProto.FLOAT, [1, 2, 4, 4])],
        [numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), named("w"))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def forged(text: str) -> list[str]:
    """What a name made of its own: lines, and characters that steer a terminal."""
    return [line for line in text.splitlines() if line.lstrip().startswith(FORGED)] + [
        letter for letter in "\x1b\r\u202e" if letter in text]


def test_tables_show_it_as_text(model: Path, weft: Weft, tmp_path: Path) -> None:
    compiled = tmp_path / "m.tmodel"
    np.savez(tmp_path / "x.npz", x=np.ones((1, 2, 4, 4), np.float32))
    for command in (["inspect", model], ["compile", model, "-a", "tiny", "-o", tmp_path, "--host-fallback", "--report",
                                         tmp_path / "r.json"], ["estimate", compiled],
                    ["run", compiled, "--input", tmp_path / "x.npz"]):
        said = weft(*command)
        assert said.code == 0, (command, said.err)
        assert forged(said.out + said.err) == [], command
        assert SHOWN in said.out.replace("\n", "") or command[0] == "estimate", command


def test_a_message_is_a_line(model: Path, weft: Weft, tmp_path: Path) -> None:
    for command in (["compile", model, "-a", "tiny", "-o", tmp_path / "out", "--no-host-fallback"],
                    ["compile", model, "-a", "tiny", "-o", tmp_path / "out", "--end", named("z")],
                    ["compile", model, "-a", "tiny", "-o", tmp_path / "out", "--set", f"{NAME}=1"]):
        said = weft(*command)
        assert said.code == 1 and said.err.count("\n") == 1 and SHOWN in said.err, (command, said.err)
        assert forged(said.err) == [], command


def test_keys_of_an_architecture(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "a.tarch").write_text(json.dumps({**Arch.load("tiny").to_dict(), NAME: 1}))
    said = weft("isa", "-a", tmp_path / "a.tarch")
    assert said.code == 1 and said.err.count("\n") == 1 and forged(said.err) == []


def test_every_part_of_a_message_is_escaped() -> None:
    assert explain("a\nb", "c\td", "e\x1bf", "g\u2028h") == (
        "a\\u000ab: found c\\u0009d; allowed: e\\u001bf; way out: g\\u2028h")
    assert "\n" not in str(ArchError("a\nb", "c\nd", "e\nf", "g\nh"))
